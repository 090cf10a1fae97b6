"""`check-config` and `import-config`: validates the configuration, and makes topics of it from Kafka's own configs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, ConfigError, Problem
from cleantail_cli.command import Invocation, command
from cleantail_cli.parameters import FILE

if TYPE_CHECKING:
    from cleantail.kafka.broker_configs import DescribedTopic


@command("check-config", examples=["cleantail check-config", "cleantail check-config --config staging --json"])
def check_config(call: Invocation) -> int:
    """Validate the whole configuration.

    Every problem of every file; exit code 2 if there is one. What has no effect is a warning.
    """
    from cleantail.config.claims.platform_limits import in_its_sources
    from cleantail.config.loading import scan_groups, scan_topics
    from cleantail.config.settings_in_force import warnings_of
    from cleantail.config.yaml_file import read_yaml
    from cleantail.home.private_files import open_to_others
    from cleantail_cli.reports.configuration import Configuration

    if not (call.config / "topics").is_dir():
        missing = Problem("", "no such directory", "it holds one YAML file a topic; give the one above with --config")
        raise ConfigError(call.config / "topics", [missing])
    scanned = scan_topics(call.config, os.environ)
    files = [(file, in_its_sources(file, topic, call.platform)) for file, topic in scanned]
    topics = [(file, topic) for file, topic in files if isinstance(topic, Topic)]
    names = {topic.topic for _, topic in topics}
    read = partial(read_yaml, most_bytes=call.platform.limits.yaml_max_bytes)
    warnings = [f"{file}: {text}" for file, topic in topics for text in warnings_of(topic, read(file), names)]
    warnings += [warning for warning in [open_to_others(call.platform.home)] if warning]
    answer = Configuration(files, list(scan_groups(call.config, os.environ)), warnings)
    call.output.show(answer)
    return 2 if answer.errors else 0


@command(
    "import-config",
    click.argument("file", required=False, metavar="[FILE]", help="Output of kafka-configs --describe; - is stdin."),
    click.option("--bootstrap-server", metavar="HOST:PORT", help="Ask a live broker instead."),
    click.option("--command-config", type=FILE, metavar="F", help="Properties of the client, as librdkafka has them."),
    click.option(
        "--topic", "topics", multiple=True, metavar="T", help="Only this topic, compacted or not; may be repeated."
    ),
    click.option("--force", is_flag=True, help="Overwrite existing files."),
    examples=[
        "kafka-configs --bootstrap-server kafka:9092 --entity-type topics --describe --all | cleantail import-config -",
        "cleantail import-config --bootstrap-server kafka:9092 --topic customer-cdc",
    ],
)
def import_config(
    call: Invocation,
    file: str | None,
    bootstrap_server: str | None,
    command_config: Path | None,
    topics: tuple[str, ...],
    force: bool,
) -> int:
    """Write topic YAML from what Kafka says.

    Writes what is new and tells the rest. Exit code 2 where every file that was meant is there already: nothing was
    done then, and --force is asked for.
    """
    from cleantail.kafka.import_config import EXISTS, WRITTEN, import_topics
    from cleantail_cli.reports.configuration import ImportedTopics

    described = _described(file, bootstrap_server, command_config, topics)
    imported = import_topics(described, topics, call.config, call.platform.catalog, force)
    call.output.show(ImportedTopics(imported, call.config / "topics"))
    statuses = [each.status for each in imported if each.status in (WRITTEN, EXISTS)]
    return 2 if statuses and WRITTEN not in statuses else 0


def _described(
    file: str | None, bootstrap_server: str | None, command_config: Path | None, topics: Sequence[str]
) -> Sequence[DescribedTopic]:
    from cleantail.kafka import broker_configs, live_broker

    if bootstrap_server and file is None:
        return live_broker.describe(bootstrap_server, command_config, topics)
    if bootstrap_server is not None or file is None:
        raise CleantailError("give either FILE (- is stdin) or --bootstrap-server HOST:PORT")
    if file == "-":
        return broker_configs.parse_described(sys.stdin, "stdin")
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise CleantailError(f"{file} cannot be read: {e}") from None
    return broker_configs.parse_described(text.splitlines(), file)

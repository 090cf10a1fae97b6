"""`check-config` and `import-config`: validate the configuration, and write topics from Kafka's own configs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from cleantail.config.claims import in_its_sources
from cleantail.config.loading import scan_groups, scan_topics
from cleantail.config.run_schedule import schedule_text
from cleantail.config.settings_in_force import warnings_of
from cleantail.config.topic import Topic
from cleantail.config.topic_group import TopicGroup
from cleantail.config.yaml_file import read_yaml
from cleantail.errors import CleantailError, ConfigError, Problem
from cleantail.home.home_folder import open_to_others
from cleantail.human import counted
from cleantail.kafka.import_config import (
    EXISTS,
    INTERNAL,
    NOT_COMPACTED,
    WRITTEN,
    DescribedTopic,
    ImportedTopic,
    describe,
    import_topics,
    parse_described,
)
from cleantail_cli import parameters
from cleantail_cli.command import Invocation, command
from cleantail_cli.output import ConsoleOutput, Lines


@command("check-config", examples=["cleantail check-config", "cleantail check-config --config staging --json"])
def check_config(call: Invocation) -> int:
    """Validate the whole configuration.

    Prints every problem of every file; the exit code is 2 if there is one. Settings without effect give a warning.
    Only files are read: `cleantail doctor` also checks the catalog, the brokers and Airflow.
    """
    if not (call.config / "topics").is_dir():
        missing = Problem("", "no such directory", "it has one YAML file per topic; give its parent with --config")
        raise ConfigError(call.config / "topics", [missing])
    scanned = scan_topics(call.config)
    files = [(file, in_its_sources(file, topic)) for file, topic in scanned]
    topics = [(file, topic) for file, topic in files if isinstance(topic, Topic)]
    names = {topic.topic for _, topic in topics}
    read = partial(read_yaml, most_bytes=call.platform.limits.yaml_max_bytes)
    warnings = [f"{file}: {text}" for file, topic in topics for text in warnings_of(topic, read(file), names)]
    warnings += [warning for warning in [open_to_others(call.platform.home)] if warning]
    answer = CheckedConfiguration(files, list(scan_groups(call.config)), warnings)
    call.output.show(answer)
    return 2 if answer.errors else 0


@command(
    "import-config",
    click.argument("file", required=False, metavar="[FILE]", help="Output of kafka-configs --describe; - is stdin."),
    click.option("--bootstrap-server", metavar="HOST:PORT", help="Read the configs from a live broker instead."),
    parameters.command_config,
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
    """Write topic YAML from the configs of topics in Kafka.

    Existing files are kept and listed. The exit code is 2 if all files exist already; --force overwrites them.
    """
    described = _described(file, bootstrap_server, command_config, topics)
    imported = import_topics(described, topics, call.config, call.platform.catalog, force, bootstrap_server)
    call.output.show(_imported(imported, call.config / "topics"))
    statuses = [each.status for each in imported if each.status in (WRITTEN, EXISTS)]
    return 2 if statuses and WRITTEN not in statuses else 0


def _described(
    file: str | None, bootstrap_server: str | None, command_config: Path | None, topics: Sequence[str]
) -> Sequence[DescribedTopic]:
    if bootstrap_server and file is None:
        return describe(bootstrap_server, command_config, topics)
    if bootstrap_server is not None or file is None:
        raise CleantailError("give either FILE (- is stdin) or --bootstrap-server HOST:PORT")
    if file == "-":
        return parse_described(sys.stdin, "stdin")
    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError as e:
        raise CleantailError(f"{file} cannot be read: {e.strerror}") from None
    except UnicodeDecodeError:
        raise CleantailError(f"{file} cannot be read: it is not text in UTF-8") from None
    return parse_described(text.splitlines(), file)


def _imported(topics: Sequence[ImportedTopic], folder: Path) -> Lines:
    """Return the answer of `import-config`: the result for each described topic. `folder`: the folder of the files."""
    rows, lines = [], []
    for topic in topics:
        file = folder / topic.file
        row: dict[str, Any] = {"topic": topic.topic, "status": topic.status, "file": topic.file, "path": str(file)}
        rows.append(row | {"left_out": list(topic.notes), "bootstrap_servers": topic.brokers})
        lines.append(f"{topic.topic}: {file} {_STATUS[topic.status]}")
        lines += [f"  not carried over: {note}" for note in topic.notes]
        if topic.status == WRITTEN and topic.brokers:
            lines.append(f"  source: read from {topic.brokers}; a login belongs to the environment or to a connection")
        elif topic.status == WRITTEN:
            lines.append("  source: none; without one, add source.kafka to its file, or ingest files")
    return Lines({"ok": True, "topics": rows}, lines or ["no topics are described"])


_STATUS = {
    WRITTEN: "written",
    EXISTS: "exists already and is kept; --force overwrites it",
    NOT_COMPACTED: "not written: the topic is not compacted in Kafka; name it with --topic",
    INTERNAL: "not written: an internal topic; name it with --topic",
}


BROKEN = "(broken)"
"""Replaces a value of a broken file. The brackets show that it is not a name."""


@dataclass(frozen=True)
class CheckedConfiguration:
    """Answer of `check-config`: a row per file. Problems and warnings follow on stderr."""

    files: Sequence[tuple[Path, Topic | ConfigError]]
    groups: Sequence[tuple[Path, TopicGroup | ConfigError]]
    warnings: Sequence[str]

    @property
    def errors(self) -> list[ConfigError]:
        return [error for _, error in (*self.files, *self.groups) if isinstance(error, ConfigError)]

    def document(self) -> dict[str, Any]:
        topics = [{"file": str(f), "topic": t.topic, "table": t.table} for f, t in self.files if isinstance(t, Topic)]
        groups = [{"file": str(f), "group": g.group} for f, g in self.groups if isinstance(g, TopicGroup)]
        problems = [
            {"file": str(e.file), "key": p.key, "problem": str(p), "line": p.line}
            for e in self.errors
            for p in e.problems
        ]
        found = {"topics": topics, "groups": groups, "problems": problems, "warnings": list(self.warnings)}
        return {"ok": not self.errors, **found}

    def print_on(self, page: ConsoleOutput) -> None:
        title = counted(len(self.files), "topic file")
        columns = ("file", "topic", "table", "policy", "strategy", "schedule")
        page.table(columns, [_topic_row(file, topic) for file, topic in self.files], title)
        if self.groups:
            rows = [self._group_row(file, group) for file, group in self.groups]
            page.table(("file", "group", "topics", "schedule"), rows, counted(len(self.groups), "group file"))
        for error in self.errors:
            page.note(str(error))
        for text in self.warnings:
            page.warning(text)
        if not self.errors:
            page.line("only files were read; `cleantail doctor` also checks catalog, store, Kafka and Airflow")

    def _group_row(self, file: Path, group: TopicGroup | ConfigError) -> tuple[object, ...]:
        if isinstance(group, ConfigError):
            return file.name, "", "", BROKEN
        members = sum(isinstance(topic, Topic) and topic.group == group.group for _, topic in self.files)
        return file.name, group.group, members, schedule_text(group.schedule)


def _topic_row(file: Path, topic: Topic | ConfigError) -> tuple[str, ...]:
    if isinstance(topic, ConfigError):
        return file.name, "", "", BROKEN, "", ""
    policy = ",".join(sorted(topic.config.cleanup_policy))
    when = schedule_text(topic.schedule) if topic.group is None else f"with group {topic.group}"
    return file.name, topic.topic, topic.table, policy, topic.config.compaction_strategy, when

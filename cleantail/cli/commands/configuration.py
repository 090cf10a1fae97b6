"""`cleantail import-config`: topic YAML from kafka-configs' output or from a live broker."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cleantail.config import Platform
from cleantail.errors import CleantailError

if TYPE_CHECKING:
    from cleantail.broker_configs import DescribedTopic
    from cleantail.import_config import Imported


def add_arguments(made: argparse.ArgumentParser) -> None:
    made.add_argument("file", nargs="?", metavar="FILE", help="output of kafka-configs --describe; - is stdin")
    made.add_argument("--bootstrap-server", metavar="HOST:PORT", help="ask a live broker instead")
    made.add_argument(
        "--command-config", type=Path, metavar="F", help="properties of the client, as librdkafka has them"
    )
    made.add_argument("--topic", action="append", default=[], metavar="T", help="only this topic, compacted or not")
    made.add_argument("--force", action="store_true", help="overwrite existing files")


def run(arguments: argparse.Namespace, platform: Platform) -> int:
    """Writes what is new and tells the rest. Exit code 2 where every file that was meant is there already: nothing was
    done then, and --force is asked for."""
    from cleantail.import_config import EXISTS, WRITTEN, import_topics

    described = _described(arguments)
    namespace = platform.catalog.namespace
    found = import_topics(described, arguments.topic, arguments.config, namespace, arguments.force)
    _report(found, arguments.config / "topics", arguments.json)
    meant = [i.status for i in found if i.status in (WRITTEN, EXISTS)]
    return 2 if meant and WRITTEN not in meant else 0


def _described(arguments: argparse.Namespace) -> Sequence[DescribedTopic]:
    from cleantail import broker_configs, live_broker

    if (arguments.file is None) == (arguments.bootstrap_server is None):
        raise CleantailError("give either FILE (- is stdin) or --bootstrap-server HOST:PORT")
    if arguments.bootstrap_server:
        return live_broker.describe(arguments.bootstrap_server, arguments.command_config, arguments.topic)
    if arguments.file == "-":
        return broker_configs.parse_described(sys.stdin, "stdin")
    try:
        text = Path(arguments.file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise CleantailError(f"{arguments.file} cannot be read: {e}") from None
    return broker_configs.parse_described(text.splitlines(), arguments.file)


def _report(found: Sequence[Imported], place: Path, for_machines: bool) -> None:
    from cleantail import import_config

    if for_machines:
        rows = [
            {
                "topic": i.topic,
                "status": i.status,
                "file": i.file,
                "path": str(place / i.file),
                "left_out": list(i.notes),
            }
            for i in found
        ]
        print(json.dumps({"ok": True, "topics": rows}))
        return
    said = {
        import_config.WRITTEN: "written",
        import_config.EXISTS: "exists already and is left as it is; --force overwrites it",
        import_config.NOT_COMPACTED: "not written: the topic is not compacted in Kafka; name it with --topic",
        import_config.INTERNAL: "not written: an internal topic; name it with --topic",
    }
    for imported in found:
        print(f"{imported.topic}: {place / imported.file} {said[imported.status]}")
        for note in imported.notes:
            print(f"  not carried over: {note}")
    if not found:
        print("no topics are described")

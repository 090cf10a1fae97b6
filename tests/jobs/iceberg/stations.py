"""Commands that commit, each with what it finds, and what is compared after it: whatever a catalog answers, the end is
the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cleantail.lake.catalogs import open_catalog
from cleantail.lake.namespaces import namespace_properties
from cleantail.rounds.size_history import OPERATION
from spark_jobs.iceberg.iceberg_reads import history, texts
from tests.jobs.round.test_held_rounds import SHORT
from tests.jobs.round.test_rounds import NOW, record

DAY = 86_400_000
CONFIG = {"cleantail.reclaim.deleted.ratio": 0.01, "cleantail.reclaim.min.merge.files": 2}
LONG = "far too long"


def ingested(shop: Any, topic: str) -> None:
    shop.topic(topic, CONFIG)
    for n in range(2):
        lines = [record(3 * n + o, "k", None if o == 1 else f"v{n}{o}") for o in range(3)]
        shop.ok("ingest", topic, "--file", shop.file(f"{topic}-{n}.jsonl", lines))


def compacted(shop: Any, topic: str) -> None:
    ingested(shop, topic)
    shop.ok("compact", topic, "--now", NOW)


def tombstoned(shop: Any, topic: str) -> None:
    """Has a tombstone past its horizon."""
    shop.topic(topic, CONFIG)
    lines = [record(0, "a", "x"), record(1, "a", None), record(2, "b", "x")]
    shop.ok("ingest", topic, "--file", shop.file(f"{topic}.jsonl", lines))
    shop.ok("compact", topic, "--now", NOW)


def red(shop: Any, topic: str) -> None:
    """Has a log that fails a check."""
    shop.topic(topic, CONFIG, checks=[SHORT])
    lines = [record(o, k, f"v{o}", p) for p, k in ((0, "k"), (1, LONG)) for o in range(3)]
    shop.ok("ingest", topic, "--file", shop.file(f"{topic}.jsonl", lines))


def held(shop: Any, topic: str) -> None:
    red(shop, topic)
    assert shop.run("compact", topic, "--now", NOW)[0] == 1


def keyless(shop: Any, topic: str) -> None:
    shop.topic(topic, CONFIG | {"cleantail.keyless.policy": "quarantine"})
    lines = [record(0, "a", "x"), record(1, None, "y"), record(2, "a", "z")]
    shop.ok("ingest", topic, "--file", shop.file(f"{topic}.jsonl", lines))


def remembering(shop: Any, topic: str) -> None:
    """Has a tombstone past its horizon, whose version is remembered."""
    config = CONFIG | {"compaction.strategy": "timestamp", "cleantail.tombstone.lateness.ms": DAY}
    shop.topic(topic, config)
    lines = [record(0, "a", "x"), record(1, "a", None), record(2, "b", "x")]
    shop.ok("ingest", topic, "--file", shop.file(f"{topic}.jsonl", lines))
    shop.ok("compact", topic, "--now", NOW)


def landed(shop: Any, topic: str) -> None:
    """Has a file to ingest, and no table."""
    shop.topic(topic, CONFIG)
    shop.file(f"{topic}-0.jsonl", [record(o, f"k{o}", "x") for o in range(3)])


def reader(shop: Any, topic: str) -> None:
    compacted(shop, topic)
    shop.ok("reader", "set", topic, "index", "--partition", 0, "--offset", 1)


@dataclass(frozen=True)
class Station:
    """A command and what it finds; `{file}` in it is a file of the topic."""

    find: Callable[[Any, str], None]
    argv: tuple[object, ...]

    def run(self, shop: Any, topic: str) -> tuple[int, str, str]:
        command, *more = self.argv
        words = [str(word).replace("{file}", str(shop.config / f"{topic}-0.jsonl")) for word in more]
        return (
            shop.run(command, topic, *words) if command != "reader" else shop.run(command, words[0], topic, *words[1:])
        )


STATIONS = {
    "a first ingestion": Station(landed, ("ingest", "--file", "{file}")),
    "a compaction": Station(ingested, ("compact", "--now", NOW)),
    "an expiry": Station(tombstoned, ("compact", "--now", NOW + DAY)),
    "an expiry that remembers": Station(remembering, ("compact", "--now", NOW + DAY)),
    "a check that fails": Station(red, ("compact", "--now", NOW)),
    "records without a key": Station(keyless, ("compact", "--now", NOW)),
    "a release": Station(held, ("release", 1)),
    "a reader": Station(ingested, ("reader", "set", "index", "--partition", 0, "--offset", 1)),
    "a reader that goes": Station(reader, ("reader", "remove", "index")),
    "a rollback": Station(compacted, ("rollback", "--to", "last")),
    "an ingestion taken back": Station(ingested, ("rollback", "--ingestion", "last")),
    "a reclaim": Station(compacted, ("reclaim", "--now", NOW + 60 * DAY)),
}


def end(shop: Any, table: Any, topic: str, done: tuple[int, str, str]) -> dict[str, Any]:
    """What there is after a command: what it said, the table, its evidence, and what lies beside it."""
    iceberg = table.load()
    properties = texts(iceberg.properties())
    platform = shop.platform()
    beside = namespace_properties(open_catalog(platform, dict(__import__("os").environ)), platform.catalog.namespace)
    names = ("kind", "outcome", "partition", "records_in", "records_out", "tombstones_out", "deleted", "passed")
    said = "\n".join(line for line in done[1].splitlines() if topic in line or ":" in line)
    states = {name: json.loads(text) for name, text in properties.items() if name.startswith("cleantail.partition.")}
    for state in states.values():
        state.pop("quarantine", None) if not state.get("quarantine") else state["quarantine"].pop("branch", None)
    return {
        "exit code": done[0],
        "said": _plain(said, topic),
        "records": [(r["partition"], r["offset"], r["payload"]) for r in shop.read(topic)],
        "states": states,
        "marks": sum(name.startswith("cleantail.ingested.") for name in properties),
        "branches": sorted(re.sub(r"\d{4,}", "N", name) for name in texts(iceberg.refs())),
        "commits of main": [commit.summary.get(OPERATION) for commit in history(iceberg)],
        "evidence": sorted(tuple(row[name] for name in names) for row in shop.evidence(topic)) if _has(shop) else [],
        "beside": sorted(_plain(text, topic) for text in beside.values() if f'"{topic}"' in text),
        "side tables": _side_rows(table),
    }


def _has(shop: Any) -> bool:
    from cleantail.config.topic_table import EVIDENCE

    platform = shop.platform()
    return open_catalog(platform, dict(__import__("os").environ)).table_exists(
        f"{platform.catalog.namespace}.{EVIDENCE}"
    )


def _side_rows(table: Any) -> dict[str, int]:
    from cleantail.config.topic_table import KEYLESS_SUFFIX, LEDGER_SUFFIX

    sides = {suffix: f"{table.name[:-1]}{suffix}`" for suffix in (KEYLESS_SUFFIX, LEDGER_SUFFIX)}
    there = {suffix: name for suffix, name in sides.items() if table.spark.catalog.tableExists(name)}
    return {suffix: table.spark.table(name).count() for suffix, name in there.items()}


def _plain(text: str, topic: str) -> str:
    """Without the name of the topic, numbers of snapshots, times and sizes."""
    text = text.replace(topic, "T").replace(topic.replace("-", "_"), "T")
    text = re.sub(r" +", " ", text)
    text = re.sub(r"[0-9a-f]{32,64}|[0-9a-f]{8}-[0-9a-f-]{27}", "ID", text)
    return re.sub(r"\d[\d.,]*( ?(KiB|MiB|bytes|B|ms|s)\b)|\d{6,}|\d\d:\d\d:\d\d\S*|\S+\.jsonl", "N", text)

"""Commands that commit, each with its initial state, and the state that is compared afterwards. The result must be the
same for every answer of the catalog."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cleantail.lake.catalogs import open_catalog
from cleantail.lake.own_namespace import namespace_properties
from cleantail.rounds.commit_summaries import OPERATION
from spark_jobs.iceberg.iceberg_reads import history
from spark_jobs.iceberg.java_calls import texts
from spark_jobs.iceberg.session import start_session
from tests.jobs.iceberg.test_registered_twice import Twice
from tests.jobs.round.test_held_rounds import SHORT
from tests.jobs.round.test_rounds import NOW, record
from tests.jobs.round.upkeep.test_mend import with_two_vectors
from tests.jobs.source_tables import FLAT, PLAIN
from tests.jobs.upsert_sink import UPSERT, UpsertSink

DAY = 86_400_000
CONFIG = {"cleantail.reclaim.deleted.ratio": 0.01, "cleantail.reclaim.min.merge.files": 2}
LONG = "far too long"
MAPPED = tuple(word for name, column in PLAIN.items() for word in ("--column", f"{name}={column}"))


def ingested(shop: Any, topic: str) -> None:
    shop.topic(topic, CONFIG)
    for n in range(2):
        lines = [record(3 * n + o, "k", None if o == 1 else f"v{n}{o}") for o in range(3)]
        shop.ok("ingest", topic, "--file", shop.file(f"{topic}-{n}.jsonl", lines))


def compacted(shop: Any, topic: str) -> None:
    ingested(shop, topic)
    shop.ok("compact", topic, "--now", NOW)


def tombstoned(shop: Any, topic: str) -> None:
    """Make a topic with a tombstone past its horizon."""
    shop.topic(topic, CONFIG)
    lines = [record(0, "a", "x"), record(1, "a", None), record(2, "b", "x")]
    shop.ok("ingest", topic, "--file", shop.file(f"{topic}.jsonl", lines))
    shop.ok("compact", topic, "--now", NOW)


def red(shop: Any, topic: str) -> None:
    """Make a topic with a log that fails a check."""
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
    """Make a topic with a tombstone past its horizon. Its expiry stores the deleted version."""
    config = CONFIG | {"compaction.strategy": "timestamp", "cleantail.tombstone.lateness.ms": DAY}
    shop.topic(topic, config)
    lines = [record(0, "a", "x"), record(1, "a", None), record(2, "b", "x")]
    shop.ok("ingest", topic, "--file", shop.file(f"{topic}.jsonl", lines))
    shop.ok("compact", topic, "--now", NOW)


def waiting(shop: Any, topic: str) -> None:
    """Make a topic whose round waits for approval."""
    shop.topic(topic, CONFIG, publish="approve")
    lines = [record(o, "k", None if o == 1 else f"v{o}") for o in range(3)]
    shop.ok("ingest", topic, "--file", shop.file(f"{topic}-0.jsonl", lines))


def foreign(shop: Any, topic: str) -> UpsertSink:
    """Make a table of another writer, with three records, which a topic may read."""
    file = shop.config / "defaults.yaml"
    platform = (json.loads(file.read_text()) if file.exists() else {}).get("platform", {})
    file.write_text(json.dumps({"platform": platform | {"source_tables": ["cleantail.sinks.*", "faulty.sinks.*"]}}))
    platform = shop.platform()
    spark, name = start_session(platform, "a sink"), platform.catalog.name
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}.sinks")
    table = f"{name}.sinks.`{topic}`"
    spark.sql(f"CREATE TABLE {table} ({FLAT}) USING iceberg TBLPROPERTIES ('format-version'='3')")
    rows = [(0, o, 5, k, "x") for o, k in enumerate("aba")]
    spark.createDataFrame(rows, FLAT).coalesce(1).writeTo(table).append()
    return UpsertSink(spark, table, ["k"])


def adopted(shop: Any, topic: str) -> UpsertSink:
    sink = foreign(shop, topic)
    shop.ok("adopt", f"sinks.{topic}", *MAPPED)
    return sink


def upserted(shop: Any, topic: str) -> None:
    """Make an adopted table whose sink has deleted by values."""
    adopted(shop, topic).commit((UPSERT, {"p": 0, "o": 3, "ms": 5, "k": "b", "v": "y"}))


def damaged(shop: Any, topic: str) -> None:
    """Make an adopted table whose only data file has two deletion vectors."""
    sink = adopted(shop, topic)
    twice = Twice(sink.spark, sink.full)
    with_two_vectors(twice, twice.files()[0])


def fed(shop: Any, topic: str) -> None:
    """Make a topic with a source table, and without its own table."""
    foreign(shop, topic)
    shop.topic(topic, CONFIG, source={"table": {"name": f"sinks.{topic}", "columns": PLAIN}})


def fed_again(shop: Any, topic: str) -> None:
    """Make a topic that has read its source table once. The source table has new records."""
    sink = foreign(shop, topic)
    shop.topic(topic, CONFIG, source={"table": {"name": f"sinks.{topic}", "columns": PLAIN}})
    shop.ok("ingest", topic)
    sink.spark.createDataFrame([(0, 3, 5, "c", "x")], FLAT).coalesce(1).writeTo(sink.full).append()


def landed(shop: Any, topic: str) -> None:
    """Make a topic with a file to ingest, and without a table."""
    shop.topic(topic, CONFIG)
    shop.file(f"{topic}-0.jsonl", [record(o, f"k{o}", "x") for o in range(3)])


def reader(shop: Any, topic: str) -> None:
    compacted(shop, topic)
    shop.ok("reader", "set", topic, "index", "--partition", 0, "--offset", 1)


@dataclass(frozen=True)
class Station:
    """A command and its initial state. `{file}` in the command is a file of the topic. `of_table`: its argument is the
    table of a sink, not a topic."""

    find: Callable[[Any, str], None]
    argv: tuple[object, ...]
    of_table: bool = False

    def run(self, shop: Any, topic: str) -> tuple[int, str, str]:
        command, *more = self.argv
        if self.of_table:
            return shop.run(command, f"sinks.{topic}", *more)
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
    "a round that waits": Station(waiting, ("compact", "--now", NOW)),
    "a round that is approved": Station(waiting, ("compact", "--now", NOW, "--approve")),
    "an adoption": Station(foreign, ("adopt", *MAPPED), of_table=True),
    "a conversion": Station(upserted, ("convert-deletes",), of_table=True),
    "a mend": Station(damaged, ("mend",), of_table=True),
    "a first read of a table": Station(fed, ("ingest",)),
    "a read of a table": Station(fed_again, ("ingest",)),
}


def end(shop: Any, table: Any, topic: str, done: tuple[int, str, str]) -> dict[str, Any]:
    """The state after a command: its output, the table, the evidence, and the side tables."""
    iceberg = table.load()
    properties = texts(iceberg.properties())
    platform = shop.platform()
    beside = namespace_properties(open_catalog(platform), platform.catalog.namespace)
    names = ("kind", "outcome", "partition", "records_in", "records_out", "tombstones_out", "deleted", "passed")
    said = "\n".join(line for line in done[1].splitlines() if topic in line or ":" in line)
    states = {name: json.loads(text) for name, text in properties.items() if name.startswith("cleantail.partition.")}
    for state in states.values():
        state.pop("quarantine", None) if not state.get("quarantine") else state["quarantine"].pop("branch", None)
    return {
        "exit code": done[0],
        "said": _plain(said.replace(str(shop.config), "CONFIG"), topic),
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
    return open_catalog(platform).table_exists(f"{platform.catalog.namespace}.{EVIDENCE}")


def _side_rows(table: Any) -> dict[str, int]:
    from cleantail.config.topic_table import KEYLESS_SUFFIX, LEDGER_SUFFIX

    sides = {suffix: f"{table.name[:-1]}{suffix}`" for suffix in (KEYLESS_SUFFIX, LEDGER_SUFFIX)}
    there = {suffix: name for suffix, name in sides.items() if table.spark.catalog.tableExists(name)}
    return {suffix: table.spark.table(name).count() for suffix, name in there.items()}


def _plain(text: str, topic: str) -> str:
    """Return a text without the topic's name, ids of snapshots, times and sizes."""
    text = text.replace(topic, "T").replace(topic.replace("-", "_"), "T")
    text = re.sub(r" +", " ", text)
    text = re.sub(r"[0-9a-f]{32,64}|[0-9a-f]{8}-[0-9a-f-]{27}", "ID", text)
    return re.sub(r"\d[\d.,]*( ?(KiB|MiB|bytes|B|ms|s)\b)|\d{6,}|\d\d:\d\d:\d\d\S*|\S+\.(jsonl|parquet)", "N", text)

"""`check`, `reclaim`, `release` and `mend`: prove, tidy and repair a topic's table."""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cleantail.config.topic import Topic
from cleantail.config.topic_table import quoted
from cleantail.errors import CleantailError
from cleantail.human import counted, instant
from cleantail.lake import releases
from cleantail.lake.catalogs import load_named, require_usable, side_due
from cleantail.lake.evaluate import log_states, read_facts
from cleantail.lake.reclaim_plan import resolve_reclaim
from cleantail.lake.repairable_deletes import damaged_vectors
from cleantail.rounds.check_results import Proof
from cleantail.rounds.station_results import (
    RECLAIM_RESULT_JSON,
    ReclaimResult,
)
from cleantail_cli import parameters
from cleantail_cli.command import Invocation, command
from cleantail_cli.long_work import spark_session, table_in_spark
from cleantail_cli.output import ConsoleOutput, Lines
from cleantail_cli.parameters import NATURAL, clock

if TYPE_CHECKING:
    from spark_jobs.iceberg.tables import TopicTable


R = TypeVar("R")


@command("check", parameters.topic, examples=["cleantail check customer-cdc"])
def check(call: Invocation, topic: str) -> int:
    """Verify that keys and offsets are unique.

    Reads the whole table with Spark's Iceberg reader, as readers see it, and changes nothing. The exit code is 1 if a
    key occurs twice below its log's first dirty offset, or if an offset has two different records.
    """
    configured = call.topic(topic)
    facts = read_facts(configured)
    if facts is None:
        raise CleantailError(
            f"nothing to prove: topic {configured.topic} has no table yet; run `cleantail ingest` first"
        )
    logs = log_states(configured, facts, 0)
    records = sum(log.records for log in logs)
    if not records:
        call.output.show(Proven(configured, Proof()))
        return 0
    from spark_jobs.round.check import prove_topic

    about = f"{counted(len(logs), 'partition')}, {counted(records, 'record')}"
    proof = _by_spark(call, configured, "check", "proving", about, prove_topic)
    call.output.show(Proven(configured, proof))
    return 0 if proof.ok else 1


@command("reclaim", parameters.topic, parameters.now, examples=["cleantail reclaim customer-cdc"])
def reclaim(call: Invocation, topic: str, now: int | None) -> int:
    """Rewrite files, expire snapshots and remove orphan files of a topic, if due.

    Spark starts only if something is due.
    """
    configured, now_ms = call.topic(topic), clock(now)
    planned = resolve_reclaim(read_facts(configured), configured.config, now_ms, by_person=True)
    if not planned.due and not side_due(configured, now_ms):
        call.output.show(Reclaimed(configured, ReclaimResult((planned.reason,))))
        return 0
    from spark_jobs.round.reclaim import reclaim_topic

    result = _by_spark(
        call, configured, "reclaim", "reclaiming", "", partial(reclaim_topic, now_ms=now_ms, by_person=True)
    )
    call.output.show(Reclaimed(configured, result))
    return 0


def _by_spark(call: Invocation, topic: Topic, name: str, doing: str, about: str, work: Callable[[TopicTable], R]) -> R:
    """Return the result of `work` on the topic's table. Checks that the catalog is usable before a JVM starts."""
    require_usable(topic)
    with call.output.progress() as progress:
        progress.about(about)
        with table_in_spark(topic, name, progress, doing) as table:
            return work(table)


@command(
    "release",
    parameters.topic,
    click.argument("partition", type=NATURAL, metavar="PARTITION", help="The partition's number."),
    examples=["cleantail release customer-cdc 0"],
)
def release(call: Invocation, topic: str, partition: int) -> int:
    """Unblock a partition: the next run retries it."""
    configured = call.topic(topic)
    now_ms = int(time.time() * 1000)
    was = releases.release(configured, partition, getpass.getuser(), now_ms)
    lines = [
        f"{configured.topic}: partition {partition} is no longer blocked; the next run retries it",
        f"  it was blocked since {instant(was.since_ms)} UTC, {counted(was.attempts, 'attempt')}: {was.reason}",
    ]
    call.output.show(Lines({"topic": configured.topic, "partition": partition, "released": asdict(was)}, lines))
    return 0


@command(
    "mend",
    click.argument("table", metavar="TABLE", help="namespace.name in the catalog."),
    parameters.dry_run,
    examples=["cleantail mend sink.orders --dry-run", "cleantail mend sink.orders"],
)
def mend(call: Invocation, table: str, dry_run: bool) -> int:
    """Make a table with damaged deletion vectors readable.

    Writes one vector with all deletes for each data file that has two vectors, or a vector older than the file's
    registration. Drops the vectors of data files that no longer exist. Deleted records stay deleted.
    """
    damaged = damaged_vectors(load_named(call.platform, table))
    if damaged.any and not dry_run:
        from spark_jobs.round.mend import mend_table

        with call.output.progress() as progress, spark_session(call.platform, f"cleantail mend {table}", progress) as s:
            progress("mending")
            mend_table(s, quoted(f"{call.platform.catalog.name}.{table}"), damaged)
    lines = list(damaged.unreadable.values())
    lines += [f"{path} no longer exists, but still has a deletion vector" for path in damaged.gone]
    files, gone = counted(len(damaged.unreadable), "data file"), counted(len(damaged.gone), "file")
    verb = "would be" if dry_run else "were"
    if damaged.any:
        lines.append(f"{table}: the deletion vectors of {files} {verb} rewritten, those of {gone} dropped")
    else:
        lines.append(f"{table}: all deletion vectors are valid; nothing was changed")
    found = {"unreadable": dict(damaged.unreadable), "gone": list(damaged.gone)}
    call.output.show(Lines({"table": table, "mended": bool(damaged.any and not dry_run), **found}, lines))
    return 0


@dataclass(frozen=True)
class Proven:
    """Answer of `check`: duplicate keys below the first dirty offsets, and offsets with several records."""

    topic: Topic
    proof: Proof

    def document(self) -> dict[str, Any]:
        return {"topic": self.topic.topic, **self.proof.as_json()}

    def print_on(self, page: ConsoleOutput) -> None:
        name, proof = self.topic.topic, self.proof
        if not proof.partitions:
            page.line(f"{name}: no round has cleaned a record yet, so no key was checked")
        for log in proof.partitions:
            several = f"keys that occur more than once: {log.duplicate_keys} of {log.keys}"
            text = several if log.duplicate_keys else f"{counted(log.keys, 'key')}, all unique"
            page.line(f"{name}: partition {log.partition}: {text}, below offset {log.end_offset}")
        for contradiction in proof.contradictions:
            page.line(f"{name}: partition {contradiction.partition}: {contradiction.text}")
        if not proof.contradictions:
            page.line(f"{name}: no offset has two different records")


@dataclass(frozen=True)
class Reclaimed:
    """Answer of `reclaim`: why it ran, and how much it removed."""

    topic: Topic
    result: ReclaimResult

    def document(self) -> dict[str, Any]:
        return {"topic": self.topic.topic, **RECLAIM_RESULT_JSON.plain(self.result)}

    def print_on(self, page: ConsoleOutput) -> None:
        page.line(f"{self.topic.topic}: {'; '.join(self.result.reasons)}")
        for name, count in self.result.counts.items():
            page.line(f"  {name.replace('_', ' ')}: {count}")

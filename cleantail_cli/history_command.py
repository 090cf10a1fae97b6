"""`history`: list what happened to a topic, or to the records of one key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.human import counted, instant
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.recorded_rounds import load_evidence, read_evidence
from cleantail.lake.records.shown_records import PastRecord, key_history, shown
from cleantail.lake.table_metadata import history_of
from cleantail.rounds.commit_summaries import OPERATION, ROUND
from cleantail.rounds.topic_history import HistoryEvent, events_of
from cleantail.sources.kcat import format_record
from cleantail_cli import parameters
from cleantail_cli.command import Invocation, command
from cleantail_cli.output import ConsoleOutput
from cleantail_cli.parameters import NATURAL, key_bytes

SHOWN = 50
VALUE_CHARS = 60


@command(
    "history",
    parameters.topic,
    click.option("--limit", type=NATURAL, default=SHOWN, metavar="N", help=f"The N newest events (default: {SHOWN})."),
    parameters.key,
    parameters.key_encoding,
    examples=[
        "cleantail history customer-cdc",
        "cleantail history customer-cdc --limit 5 --json",
        "cleantail history customer-cdc --key customer-17",
    ],
)
def history(call: Invocation, topic: str, limit: int, key: str | None, encoding: str) -> int:
    """List ingestions, rounds, rollbacks and other commits of a topic, newest first.

    `read`, `latest` and `restore` accept a snapshot of the list as --as-of. `rollback` accepts it as --to, and that of
    an ingestion as --ingestion. Events without a snapshot are rounds that were not published, were undone, or are older
    than the kept snapshots. With --key it lists all records of a key that the kept snapshots have, and which round
    removed each.
    """
    configured, wanted, catalog = call.topic(topic), key_bytes(key, encoding), open_catalog(call.platform)
    table = load_table(catalog, configured)
    if table is None:
        raise CleantailError(f"topic {configured.topic} has no table yet; run `cleantail ingest` first")
    commits = list(history_of(table))
    with call.output.progress() as progress:
        progress("reading")
        if wanted is not None:
            records = key_history(table, wanted, progress)
            since_ms = commits[-1].at_ms if commits else None
            report: KeyHistory | ShownHistory = KeyHistory(configured, records, since_ms)
        else:
            evidence = load_evidence(catalog, call.platform)
            rounds = read_evidence(evidence, configured.topic) if evidence is not None else []
            events = events_of(commits, rounds, configured.topic)
            refs = {name: ref.snapshot_id for name, ref in sorted(table.metadata.refs.items()) if name != "main"}
            report = ShownHistory(configured, events[:limit], max(len(events) - limit, 0), refs)
    call.output.show(report)
    return 0


@dataclass(frozen=True)
class ShownHistory:
    """Answer of `history`. `older`: the number of events that are not shown. `branches`: with tags, but not `main`."""

    topic: Topic
    events: Sequence[HistoryEvent]
    older: int
    branches: dict[str, int]

    def document(self) -> dict[str, Any]:
        events = [asdict(event) for event in self.events]
        return {"topic": self.topic.topic, "events": events, "older": self.older, "branches": self.branches}

    def print_on(self, page: ConsoleOutput) -> None:
        name = self.topic.topic
        if not self.events:
            page.line(f"{name}: nothing has happened yet")
            return
        rows = [
            (instant(e.at_ms), e.snapshot_id or "-", f"{e.kind}: {e.what}", "yes" if e.undo else "")
            for e in self.events
        ]
        page.table(("at (UTC)", "snapshot", "what", "undo"), rows, f"history of {name}")
        if self.older:
            page.line(f"{counted(self.older, 'older event')}: --limit shows more")
        for branch, snapshot_id in self.branches.items():
            page.line(f"branch or tag {branch} is at snapshot {snapshot_id}")
        page.line(
            f"`cleantail read {name} --as-of SNAPSHOT` reads the topic as it was. `cleantail rollback {name} --to "
            "SNAPSHOT` undoes all rounds after it, and `--ingestion SNAPSHOT` one ingestion"
        )


@dataclass(frozen=True)
class KeyHistory:
    """Answer of `history --key`. `since_ms`: the time of the oldest kept snapshot (Unix ms)."""

    topic: Topic
    records: Sequence[PastRecord]
    since_ms: int | None

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.topic.topic,
            "since_ms": self.since_ms,
            "records": [
                json.loads(format_record(self.topic.topic, past.record))
                | {"removed": _removal(past), "last_snapshot_id": past.last_snapshot_id}
                for past in self.records
            ],
        }

    def print_on(self, page: ConsoleOutput) -> None:
        rows, removals = [], dict[str, int]()
        for past in self.records:
            record, removal, removed = past.record, _removal(past), ""
            if removal and past.last_snapshot_id is not None:
                removed = f"{removal['kind']} of {instant(removal['at_ms'])}"
                removals[removed] = past.last_snapshot_id
            at = "-" if record.timestamp_ms is None else instant(record.timestamp_ms)
            rows.append((record.partition, record.offset, at, shown(record.value, None, VALUE_CHARS), removed))
        name = self.topic.topic
        if rows:
            page.table(("partition", "offset", "at (UTC)", "value", "removed by"), rows)
        else:
            page.line(f"{name}: no kept snapshot has a record of this key")
        for removed, snapshot_id in removals.items():
            page.line(f"{removed}: `cleantail read {name} --key … --as-of {snapshot_id}` prints what it removed")
        if self.since_ms is not None:
            page.line(f"the oldest kept snapshot is of {instant(self.since_ms)} UTC")


def _removal(past: PastRecord) -> dict[str, Any] | None:
    """Return what removed a record: a round's kind and name, or another writer's operation."""
    commit = past.removed_by
    if commit is None:
        return None
    kind = commit.summary.get(OPERATION) or commit.operation
    return {
        "kind": kind,
        "round": commit.summary.get(ROUND),
        "snapshot_id": commit.snapshot_id,
        "at_ms": commit.at_ms,
    }

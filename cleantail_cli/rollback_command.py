"""`rollback`: undo published rounds, or take an ingestion back."""

from __future__ import annotations

import getpass
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from cleantail.config.input_limits import DEFAULT_LIMITS, InputLimits
from cleantail.config.source_paths import matching_files
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.home.home_folder import exclusive
from cleantail.human import counted, instant
from cleantail.lake.catalogs import require_usable
from cleantail.lake.rollbacks import LogUndo, LogWithout, preview, preview_ingestion
from cleantail.rounds.past_ingestions import IngestionChoice, IngestionUndo, UndoneIngestion
from cleantail.rounds.rollback_plan import RollbackPlan
from cleantail.sources.digest_cache import DigestCache
from cleantail.sources.source_files import content_digest
from cleantail_cli import parameters
from cleantail_cli.command import Invocation, command
from cleantail_cli.long_work import Progress, table_in_spark
from cleantail_cli.output import ConsoleOutput, Lines, Report
from cleantail_cli.parameters import LAST, TARGET


@command(
    "rollback",
    parameters.topic,
    click.option(
        "--to",
        type=TARGET,
        metavar="SNAPSHOT",
        help="last (the default) undoes the last published round; an id undoes all rounds after that snapshot.",
    ),
    click.option(
        "--ingestion",
        metavar="last|SNAPSHOT|FILE",
        help="Undo an ingestion instead: the newest, or the one of a snapshot or file (by its content, else by "
        "its name). Removes its records; a file can then be ingested again. --dry-run lists the known ingestions.",
    ),
    parameters.dry_run,
    examples=[
        "cleantail rollback customer-cdc --dry-run",
        "cleantail rollback customer-cdc --to last",
        "cleantail rollback customer-cdc --ingestion customers.jsonl.gz --dry-run",
    ],
)
def rollback(call: Invocation, topic: str, to: str | None, ingestion: str | None, dry_run: bool) -> int:
    """Undo published rounds, or an ingestion.

    Later appends are kept. --dry-run only shows what would be undone.
    """
    if to is not None and ingestion is not None:
        raise click.UsageError("--ingestion: not allowed with argument --to", click.get_current_context())
    configured = call.topic(topic)
    with exclusive(call.platform.home, f"round-{configured.topic}"), call.output.progress() as progress:
        require_usable(configured)
        if ingestion is not None:
            report = take_back(configured, ingestion, dry_run, progress)
        else:
            snapshot = None if to in (None, LAST) else int(str(to))
            report = _undo_rounds(configured, snapshot, dry_run, progress)
    call.output.show(report)
    return 0


def _undo_rounds(topic: Topic, to: int | None, dry_run: bool, progress: Progress) -> Report:
    planned, logs = preview(topic, to)
    if dry_run:
        return RolledBack(topic, planned, logs, None)
    from spark_jobs.round.undo import rollback_topic

    with table_in_spark(topic, "rollback", progress, "rolling back") as table:
        done = rollback_topic(table, planned, logs, getpass.getuser(), int(time.time() * 1000))
    return RolledBack(topic, planned, logs, done.snapshot_id)


SNAPSHOT_DIGITS = 19


def parse_ingestion(text: str, limits: InputLimits = DEFAULT_LIMITS) -> IngestionChoice:
    """Parse `--ingestion`: `last`, a snapshot's id, or a file.

    An existing file is identified by its content, a missing one by its name. Write `./NUMBER` for a file whose name is
    a number. Raises BadLineError for a damaged file.
    """
    if text == LAST:
        return IngestionChoice(text)
    if text.isascii() and text.isdigit() and len(text) <= SNAPSHOT_DIGITS:
        return IngestionChoice(text, snapshot_id=int(text))
    file = Path(text)
    return IngestionChoice(
        text, sha256=content_digest(file.resolve(), limits) if file.is_file() else None, name=file.name
    )


def take_back(topic: Topic, text: str, dry_run: bool, progress: Progress) -> Report:
    """Undo the ingestion and report it. An ingestion that was undone before is only reported."""
    preview = preview_ingestion(topic, parse_ingestion(text, topic.platform.limits.of_input))
    if isinstance(preview, UndoneIngestion):
        return _done_before(topic, preview)
    planned, logs = preview
    snapshot_id = None
    if not dry_run:
        from spark_jobs.round.undo import undo_in_topic

        with table_in_spark(topic, "rollback", progress, "undoing the ingestion") as table:
            snapshot_id = undo_in_topic(table, planned, logs, getpass.getuser(), int(time.time() * 1000))
    return TakenBack(topic, planned, tuple(logs), tuple(_files_ingested_again(topic, planned)), snapshot_id)


def _files_ingested_again(topic: Topic, planned: IngestionUndo) -> list[str]:
    """Return the ingestion's files that source.path still matches. The DAG's next run would ingest them again."""
    try:
        matching = matching_files(topic.platform, topic.source.path) if topic.source.path else []
    except CleantailError:  # the path is not allowed: the next run reports it
        return []
    digests = {file.sha256 for file in planned.sources.files}
    with DigestCache(topic.platform.home, topic.platform.limits.of_input) as cache:
        return [str(file) for file in matching if cache.digest_if_readable(file) in digests]


@dataclass(frozen=True)
class RolledBack:
    """Answer of `rollback`. `snapshot_id` is None if nothing was changed."""

    topic: Topic
    planned: RollbackPlan
    logs: Sequence[LogUndo]
    snapshot_id: int | None

    def document(self) -> dict[str, Any]:
        logs = [asdict(log) for log in self.logs]
        document = {"topic": self.topic.topic, **self.planned.as_json(), "partitions": logs}
        return document | {"ok": True, "snapshot_id": self.snapshot_id}

    def print_on(self, page: ConsoleOutput) -> None:
        planned = self.planned
        for undone in planned.undone:
            page.line(f"{self.topic.topic}: undoes {undone.kind} round {undone.round} of {instant(undone.at_ms)} UTC")
        rewrites = f", undoes {counted(planned.rewrites, 'rewrite')} of files" if planned.rewrites else ""
        page.line(f"  back to snapshot {planned.to_snapshot_id} of {instant(planned.to_at_ms)} UTC{rewrites}")
        page.line(f"  later appends, which are kept: {len(planned.appends)}")
        columns = ("partition", "first dirty", "first dirty after", "records", "records after")
        page.table(columns, map(_log_row, self.logs))
        page.line("\n".join(self._end()))

    def _end(self) -> list[str]:
        if self.snapshot_id is not None:
            return [f"done in snapshot {self.snapshot_id}; the next run compacts again, by the policy in force"]
        further = [
            f"  --to {e.before_snapshot_id} would undo {e.kind} round {e.round} of {instant(e.at_ms)} UTC too"
            for e in self.planned.earlier
        ]
        return [*further, "nothing was changed: --dry-run"]


def _log_row(log: LogUndo) -> tuple[object, ...]:
    checkpoints = ("-" if c is None else c for c in (log.checkpoint, log.checkpoint_after))
    return (log.partition, *checkpoints, log.records, log.records_after)


@dataclass(frozen=True)
class TakenBack:
    """Answer of `rollback --ingestion`. `snapshot_id` is None if nothing was changed.

    `come_again`: files that the DAG would ingest again.
    """

    topic: Topic
    planned: IngestionUndo
    logs: Sequence[LogWithout]
    come_again: Sequence[str]
    snapshot_id: int | None

    def document(self) -> dict[str, Any]:
        logs = [asdict(log) for log in self.logs]
        document = {"ok": True, "topic": self.topic.topic, **self.planned.as_json(), "partitions": logs}
        return document | {"come_again": list(self.come_again), "snapshot_id": self.snapshot_id}

    def print_on(self, page: ConsoleOutput) -> None:
        planned, ingestion = self.planned, self.planned.ingestion
        page.line(
            f"{self.topic.topic}: undoes ingestion {ingestion.snapshot_id} of {instant(ingestion.at_ms)} UTC: "
            f"{ingestion.names}"
        )
        back = "the empty table" if planned.to_snapshot_id is None else f"snapshot {planned.to_snapshot_id}"
        rewrites = f", undoes rewrites of files: {planned.rewrites}" if planned.rewrites else ""
        page.line(f"  back to {back}{rewrites}; later appends, which are kept: {len(planned.appends)}")
        for log in self.logs:
            page.line(
                f"  partition {log.partition}: records {log.records} -> {log.records_after}, "
                f"log end {log.log_end} -> {log.log_end_after}{', no longer blocked' if log.lifts_quarantine else ''}"
            )
        for line in warnings(self.topic, planned, self.logs, self.come_again):
            page.line(f"  warning: {line}")
        if self.snapshot_id is None:
            page.line("\n".join(_listed(planned)))
        else:
            page.line(f"done in snapshot {self.snapshot_id}; the undone files or offsets can be ingested again")


def warnings(topic: Topic, planned: IngestionUndo, logs: Sequence[LogWithout], come_again: Sequence[str]) -> list[str]:
    """Return the user's next steps: for readers, and for sources that the next run would ingest again."""
    of_readers = [
        f"reader {r.name} is at offset {r.offset} of partition {log.partition} and may have read undone records, "
        f"because the log ends at {log.log_end_after} afterwards. The reader has to load the state again: `cleantail "
        f"latest {topic.topic}`, then `cleantail reader set {topic.topic} {r.name}`"
        for log in logs
        for r in log.readers
    ]
    if planned.sources.read is not None and (topic.source.kafka or topic.source.table):
        source = "Kafka" if topic.source.kafka else "a table"
        of_readers.append(f"the source is {source}: the DAG's next run reads these offsets again, unless it is paused")
    return of_readers + [
        f"{file} still matches source.path: the DAG's next run ingests it again; move it out of that folder"
        for file in come_again
    ]


def _listed(planned: IngestionUndo) -> list[str]:
    """Return lines for `--dry-run`: the other ingestions, newest first."""
    lines = []
    for other in planned.others:
        count = counted(other.records, "record")
        head = f"  --ingestion {other.snapshot_id}: {instant(other.at_ms)} UTC, {count}, {other.names}"
        lines.append(head + (f"; not now: {other.refusal}" if other.refusal else ""))
    return [*lines, "nothing was changed: --dry-run"]


def _done_before(topic: Topic, undone: UndoneIngestion) -> Lines:
    ingestion = undone.ingestion
    document = {
        "ok": True,
        "topic": topic.topic,
        "done_before": True,
        "snapshot_id": undone.snapshot_id,
        "ingestion": {"snapshot_id": ingestion.snapshot_id, "files": [asdict(file) for file in ingestion.files]},
        "at_ms": undone.at_ms,
        "by": undone.by,
    }
    text = (
        f"{topic.topic}: ingestion {ingestion.snapshot_id} ({ingestion.names}) was already undone on "
        f"{instant(undone.at_ms)} UTC by {undone.by}, in snapshot {undone.snapshot_id}; nothing was changed"
    )
    return Lines(document, [text])

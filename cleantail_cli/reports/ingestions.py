"""Says what `rollback --ingestion` answers: the ingestion that is taken back, or that it was before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cleantail.config.topic import Topic
from cleantail.human import instant
from cleantail.lake.runs.rollback_preview import LogWithout
from cleantail.rounds.past_ingestions import IngestionUndo, UndoneIngestion
from cleantail_cli.output import Page


@dataclass(frozen=True)
class TakenBack:
    """Says what taking an ingestion back does, or has done where there is its snapshot.

    `come_again` has the files that the DAG would ingest again.
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

    def tell(self, page: Page) -> None:
        planned, ingestion = self.planned, self.planned.ingestion
        page.line(
            f"{self.topic.topic}: takes back ingestion {ingestion.snapshot_id} of {instant(ingestion.at_ms)} UTC: "
            f"{ingestion.names}"
        )
        back = "the empty table" if planned.to_snapshot_id is None else f"snapshot {planned.to_snapshot_id}"
        rewrites = f", undoes rewrites of files: {planned.rewrites}" if planned.rewrites else ""
        page.line(f"  back to {back}{rewrites}; commits since whose records stay: {len(planned.appends)}")
        for log in self.logs:
            page.line(
                f"  partition {log.partition}: records {log.records} -> {log.records_after}, "
                f"log end {log.log_end} -> {log.log_end_after}{', leaves quarantine' if log.lifts_quarantine else ''}"
            )
        for line in warnings(self.topic, planned, self.logs, self.come_again):
            page.line(f"  warning: {line}")
        page.line("\n".join(_listed(planned)) if self.snapshot_id is None else _done(self.snapshot_id))


def warnings(topic: Topic, planned: IngestionUndo, logs: Sequence[LogWithout], come_again: Sequence[str]) -> list[str]:
    """Returns what a person still has to do: readers that have read what goes, what would come again."""
    of_readers = [
        f"reader {r.name} is at offset {r.offset} of partition {log.partition} and may have read what is taken back; "
        f"the log ends at {log.log_end_after}: have it load the state anew (`cleantail latest {topic.topic}`), then "
        f"`cleantail reader set {topic.topic}`"
        for log in logs
        for r in log.readers
    ]
    if planned.sources.read is not None and (topic.source.kafka or topic.source.table):
        source = "Kafka" if topic.source.kafka else "a table"
        of_readers.append(f"the source is {source}: the DAG's next run reads these offsets again, unless it is paused")
    return of_readers + [
        f"{file} is still where source.path looks: the DAG's next run ingests it again; take it out of there"
        for file in come_again
    ]


def _done(snapshot_id: int) -> str:
    return f"done, as snapshot {snapshot_id}; what was taken back can be ingested again"


def _listed(planned: IngestionUndo) -> list[str]:
    """Returns lines with the other ingestions, newest first, and one that says that nothing was changed."""
    lines = []
    for other in planned.others:
        count = f"{other.records} record{'' if other.records == 1 else 's'}"
        head = f"  --ingestion {other.snapshot_id}: {instant(other.at_ms)} UTC, {count}, {other.names}"
        lines.append(head + (f"; not now: {other.refusal}" if other.refusal else ""))
    return [*lines, "nothing was changed: --dry-run"]


@dataclass(frozen=True)
class DoneBefore:
    """Says that the ingestion was taken back already."""

    topic: Topic
    undone: UndoneIngestion

    def document(self) -> dict[str, Any]:
        undone, ingestion = self.undone, self.undone.ingestion
        files = [asdict(file) for file in ingestion.files]
        taken = {
            "ingestion": {"snapshot_id": ingestion.snapshot_id, "files": files},
            "at_ms": undone.at_ms,
            "by": undone.by,
        }
        head = {"ok": True, "topic": self.topic.topic, "done_before": True, "snapshot_id": undone.snapshot_id}
        return head | taken

    def tell(self, page: Page) -> None:
        undone, ingestion = self.undone, self.undone.ingestion
        page.line(
            f"{self.topic.topic}: ingestion {ingestion.snapshot_id} ({ingestion.names}) was taken back on "
            f"{instant(undone.at_ms)} UTC by {undone.by}, as snapshot {undone.snapshot_id}; nothing was changed"
        )

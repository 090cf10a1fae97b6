"""Says what `ingest`, `rollback`, `check`, `reclaim` and `release` answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cleantail.config.topic import Topic
from cleantail.human import counted, instant
from cleantail.lake.runs.damaged_vectors import DamagedVectors
from cleantail.lake.runs.rollback_preview import LogUndo
from cleantail.log.partition_state import Quarantine
from cleantail.rounds.check_results import Proof
from cleantail.rounds.rollback_plan import RollbackPlan
from cleantail.rounds.station_results import (
    INGEST_RESULT_JSON,
    KAFKA_INGEST_RESULT_JSON,
    RECLAIM_RESULT_JSON,
    TABLE_INGEST_RESULT_JSON,
    IngestResult,
    KafkaIngestResult,
    ReclaimResult,
    TableIngestResult,
)
from cleantail_cli.console import folding_table
from cleantail_cli.output import Page


@dataclass(frozen=True)
class Ingested:
    """Holds each file, and how many records were appended."""

    topic: Topic
    result: IngestResult

    def document(self) -> dict[str, Any]:
        return {"topic": self.topic.topic, **INGEST_RESULT_JSON.plain(self.result)}

    def tell(self, page: Page) -> None:
        for row in self.result.files:
            page.line(f"{row.file}: {'already in the table, nothing added' if row.skipped else 'appended'}")
        page.line(f"{self.topic.topic}: {counted(self.result.records, 'record')} appended")
        for text in self.result.warnings:
            page.warning(text)


@dataclass(frozen=True)
class ReadFromKafka:
    """Says what was read of each partition in Kafka, and how many records were appended. `origin` says where they came
    from, where that is no broker."""

    topic: Topic
    result: KafkaIngestResult
    origin: str = ""

    def document(self) -> dict[str, Any]:
        return {"topic": self.topic.topic, **KAFKA_INGEST_RESULT_JSON.plain(self.result)}

    def tell(self, page: Page) -> None:
        for row in self.result.partitions:
            page.line(f"partition {row.partition}: read from offset {row.from_offset} to {row.to_offset}")
        origin = self.origin or f"from {self.result.kafka_topic} in Kafka"
        page.line(f"{self.topic.topic}: {counted(self.result.records, 'record')} appended {origin}")
        for text in self.result.warnings:
            page.warning(text)


@dataclass(frozen=True)
class ReadFromTable:
    """Says up to which snapshot a source table was read, and how many records were appended."""

    topic: Topic
    result: TableIngestResult

    def document(self) -> dict[str, Any]:
        return {"topic": self.topic.topic, **TABLE_INGEST_RESULT_JSON.plain(self.result)}

    def tell(self, page: Page) -> None:
        result = self.result
        for row in result.partitions:
            page.line(f"partition {row.partition}: read records between offset {row.from_offset} and {row.to_offset}")
        if result.snapshot_id is None:
            page.line(f"{self.topic.topic}: nothing is new in {result.table}")
        else:
            page.line(
                f"{self.topic.topic}: {counted(result.records, 'record')} appended from {result.table} up to snapshot "
                f"{result.snapshot_id}"
            )
        for text in result.warnings:
            page.warning(text)


@dataclass(frozen=True)
class Proven:
    """Is the answer of `check`: keys below every clean point, which of them are there twice, and which offsets are."""

    topic: Topic
    proof: Proof

    def document(self) -> dict[str, Any]:
        return {"topic": self.topic.topic, **self.proof.as_json()}

    def tell(self, page: Page) -> None:
        name, proof = self.topic.topic, self.proof
        if not proof.partitions:
            page.line(f"{name}: no record is below a clean point yet, so no key is proven")
        for log in proof.partitions:
            several = f"keys that are there more than once: {log.duplicate_keys} of {log.keys}"
            text = several if log.duplicate_keys else f"no key is there twice, of {log.keys}"
            page.line(f"{name}: partition {log.partition}: {text} below {log.end_offset}")
        for contradiction in proof.contradictions:
            page.line(f"{name}: partition {contradiction.partition}: {contradiction.text}")
        if not proof.contradictions:
            page.line(f"{name}: no offset has two different records")


@dataclass(frozen=True)
class Reclaimed:
    """Is the answer of `reclaim`: why it ran, and how much of what it removed."""

    topic: Topic
    result: ReclaimResult

    def document(self) -> dict[str, Any]:
        return {"topic": self.topic.topic, **RECLAIM_RESULT_JSON.plain(self.result)}

    def tell(self, page: Page) -> None:
        page.line(f"{self.topic.topic}: {'; '.join(self.result.reasons)}")
        for name, count in self.result.counts.items():
            page.line(f"  {name.replace('_', ' ')}: {count}")


@dataclass(frozen=True)
class Released:
    """Is the answer of `release`: what the log was held back for."""

    topic: Topic
    partition: int
    was: Quarantine

    def document(self) -> dict[str, Any]:
        return {"topic": self.topic.topic, "partition": self.partition, "released": asdict(self.was)}

    def tell(self, page: Page) -> None:
        was = self.was
        page.line(f"{self.topic.topic}: partition {self.partition} is out of quarantine; the next run tries it")
        page.line(f"  it was there since {instant(was.since_ms)} UTC, {counted(was.attempts, 'attempt')}: {was.reason}")


@dataclass(frozen=True)
class RolledBack:
    """Is the answer of `rollback`: what it does, or has done where there is its snapshot."""

    topic: Topic
    planned: RollbackPlan
    logs: Sequence[LogUndo]
    snapshot_id: int | None

    def document(self) -> dict[str, Any]:
        logs = [asdict(log) for log in self.logs]
        document = {"topic": self.topic.topic, **self.planned.as_json(), "partitions": logs}
        return document | {"ok": True, "snapshot_id": self.snapshot_id}

    def tell(self, page: Page) -> None:
        planned = self.planned
        for undone in planned.undone:
            page.line(f"{self.topic.topic}: undoes {undone.kind} round {undone.round} of {instant(undone.at_ms)} UTC")
        rewrites = f", undoes {counted(planned.rewrites, 'rewrite')} of files" if planned.rewrites else ""
        page.line(f"  back to snapshot {planned.to_snapshot_id} of {instant(planned.to_at_ms)} UTC{rewrites}")
        page.line(f"  commits that have appended since, and are kept: {len(planned.appends)}")
        table = folding_table("partition", "checkpoint", "checkpoint after", "records", "records after")
        for log in self.logs:
            checkpoints = ("-" if c is None else str(c) for c in (log.checkpoint, log.checkpoint_after))
            table.add_row(str(log.partition), *checkpoints, str(log.records), str(log.records_after))
        page.table(table)
        page.line("\n".join(self._end()))

    def _end(self) -> list[str]:
        if self.snapshot_id is not None:
            return [f"done, as snapshot {self.snapshot_id}; the next run compacts anew by the policy in force"]
        further = [
            f"  --to {e.before_snapshot_id} would undo {e.kind} round {e.round} of {instant(e.at_ms)} UTC as well"
            for e in self.planned.earlier
        ]
        return [*further, "nothing was changed: --dry-run"]


@dataclass(frozen=True)
class Mended:
    """Says which data files had damaged deletion vectors, and that they were mended."""

    table: str
    damaged: DamagedVectors
    dry_run: bool

    def document(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "mended": bool(self.damaged.any and not self.dry_run),
            "unreadable": dict(self.damaged.unreadable),
            "gone": list(self.damaged.gone),
        }

    def tell(self, page: Page) -> None:
        for text in self.damaged.unreadable.values():
            page.line(text)
        for path in self.damaged.gone:
            page.line(f"{path} is gone, and its deletion vector is left")
        if not self.damaged.any:
            page.line(f"{self.table}: every deletion vector is as it has to be; nothing was changed")
            return
        verb = "would be" if self.dry_run else "were"
        files = counted(len(self.damaged.unreadable), "data file")
        gone = counted(len(self.damaged.gone), "file")
        page.line(f"{self.table}: the deletion vectors of {files} {verb} written anew, those of {gone} taken away")

"""Says what `restore` answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cleantail.config.topic import Topic
from cleantail.human import counted
from cleantail.kafka.restore.restore_results import RESTORE_RESULT_JSON, RestoredLog, RestoreResult
from cleantail_cli.output import Page

FOUND = "found"
"""The name under which scripts read how many records an earlier run had written."""


@dataclass(frozen=True)
class Restored:
    """Says how many records each partition got, and which of the archive they are."""

    topic: Topic
    result: RestoreResult

    def document(self) -> dict[str, Any]:
        result = self.result
        totals = {"written": result.written, FOUND: result.already_written, "verified": result.verified}
        plain = RESTORE_RESULT_JSON.plain(result)
        partitions = [
            {FOUND if name == "already_written" else name: n for name, n in log.items()} for log in plain["partitions"]
        ]
        return {"topic": self.topic.topic, **plain, "partitions": partitions, **totals}

    def tell(self, page: Page) -> None:
        result = self.result
        for log in result.partitions:
            page.line(f"partition {log.partition}: {_counts(log)}{_span(log)}")
        which = "the latest records" if result.mode == "latest" else "the log"
        page.line(
            f"{self.topic.topic}: {which} of snapshot {result.snapshot_id} in {result.target}: "
            f"{counted(result.verified, 'record')}, each read back as the archive has it"
        )
        if result.without_type:
            page.warning(
                f"{counted(result.without_type, 'record')} had a timestamp of the broker's own (LogAppendTime): it is "
                "the same, and counts as the producer's (CreateTime)"
            )


def _counts(log: RestoredLog) -> str:
    earlier = f", {log.already_written} were there from an earlier run" if log.already_written else ""
    return f"{counted(log.verified, 'record')}, {log.written} written now{earlier}"


def _span(log: RestoredLog) -> str:
    """Returns which offsets of the archive the partition's first and last record had."""
    if log.first_offset is None:
        return ""
    return f"; offset 0 is the archive's {log.first_offset}, offset {log.verified - 1} its {log.last_offset}"

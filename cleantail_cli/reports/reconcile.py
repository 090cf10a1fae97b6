"""Says what `reconcile` answers: what is gone at the source, and what became of it here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.human import counted
from cleantail.rounds.checked_round import ROUND_RESULT_JSON, RoundResult
from cleantail.rounds.station_results import COMPARISON_RESULT_JSON, ComparisonResult
from cleantail_cli.console import folding_table
from cleantail_cli.output import Output, Page
from cleantail_cli.reports.rounds import tell_checks, tell_waiting

GONE = "gone_at_source"


@dataclass(frozen=True)
class Compared:
    """Says what a reconciliation would remove, by partition."""

    topic: Topic
    result: ComparisonResult

    def document(self) -> dict[str, Any]:
        return {"topic": self.topic.topic, "keys": self.result.keys, **COMPARISON_RESULT_JSON.plain(self.result)}

    def tell(self, page: Page) -> None:
        table = folding_table("partition", "compared to offset", "keys gone", "their records", "cut off, they stay")
        for log in self.result.partitions:
            cells = (log.partition, log.end_offset, log.keys, log.records, log.cut_off_keys)
            table.add_row(*(str(cell) for cell in cells))
        page.table(table)
        gone = f"{counted(self.result.keys, 'key')} would be removed: alive here, and gone in {self.result.kafka_topic}"
        page.line(f"{self.topic.topic}: {gone}; nothing was changed")


@dataclass(frozen=True)
class Reconciled:
    """Says what the round has removed of each log, and what its checks said."""

    topic: Topic
    result: RoundResult

    def document(self) -> dict[str, Any]:
        return {"topic": self.topic.topic, **ROUND_RESULT_JSON.plain(self.result)}

    def tell(self, page: Page) -> None:
        passed = {v.partition: v.passed for v in self.result.verdicts}
        table = folding_table("partition", "records in", "records out", "gone at source", "checks")
        for measure in self.result.measures:
            cells = (measure.partition, measure.records_in, measure.records_out, measure.deleted.get(GONE, 0))
            verdict = "[green]passed[/green]" if passed[measure.partition] else "[red]failed[/red]"
            table.add_row(*(str(cell) for cell in cells), verdict)
        page.table(table)
        published = counted(len(self.result.published), "partition")
        page.line(f"{self.topic.topic}: {published} reconciled with {self.topic.kafka_topic} in Kafka")
        tell_checks([self.result], page)


def tell_held_round(topic: Topic, platform: Platform, result: RoundResult, output: Output) -> bool:
    """Returns whether the round waits for approval; says so on stderr, with a sample and what to do."""
    return tell_waiting(topic, platform, [result], output, "reconcile")

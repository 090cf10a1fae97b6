"""Makes the rows of the page: one for each topic, and one for each log of a topic."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, ConfigError
from cleantail.lake.runs.run_plan import RunPlan
from cleantail.log.log_state import LogState
from cleantail.log.quarantine import KeptBranch, kept_branch
from cleantail.log.triggers import Decision
from cleantail.watch.charts import Bar, log_bar
from cleantail.watch.dag_state import DagState
from cleantail.watch.observed_table import TableSummary
from cleantail.watch.topic_list import TopicRow, topic_row
from cleantail.watch.topic_states import MEANING, State
from cleantail_airflow.page.page_charts import SavedBytes

BAR_WIDTH = 1000.0
ROW_LIVES_MS = 5_000


@dataclass(frozen=True, slots=True)
class LogView:
    """Describes one log on a topic's page."""

    log: LogState
    decision: Decision
    bar: Bar
    lag_ms: int | None
    sweep: bool
    kept: KeptBranch | None
    held_by: tuple[str, ...] = ()
    retention: str = ""
    """Why a run would move its start; empty where it would not."""

    @property
    def work(self) -> str:
        """Says in a word or two what a run would do with it now; empty where nothing."""
        if self.decision.compact:
            return "Compact"
        return "Apply retention" if self.retention else "Expire tombstones" if self.sweep else ""


def row_of(
    name: str,
    topic: Topic | ConfigError,
    table: TableSummary | None,
    now_ms: int,
    approval_task: str = "",
    saved_bytes: SavedBytes | None = None,
    dag: DagState | None = None,
    group: str | None = None,
) -> TopicRow:
    """Makes the row of one topic at a glance, whatever is wrong with it.

    `approval_task` is the task that waits for a person's answer; `saved_bytes` is what the evidence says of all its
    rounds and reclaims; `dag` is what Airflow says of the DAG that runs it; `group` the one that its YAML names.
    """
    if isinstance(topic, ConfigError):
        return TopicRow(name, State.BROKEN, str(topic.problems[0]), dag=dag, group=group)
    about = topic.description
    if table is None:
        return TopicRow(name, State.READING, MEANING[State.READING], about, dag=dag, group=group)
    if table.error:
        return TopicRow(name, State.UNREADABLE, table.error, about, dag=dag, group=group)
    try:
        logs = table.states(topic, now_ms)
    except CleantailError as e:
        return TopicRow(name, State.UNREADABLE, str(e), about, dag=dag, group=group)
    evidence = saved_bytes or SavedBytes()
    reclaimed = max(table.saved.reclaimed_bytes, evidence.freed_bytes)
    total = replace(table.saved, reclaimed_bytes=reclaimed, so_far_bytes=evidence.so_far_bytes)
    row = topic_row(topic, logs, total, now_ms, approval_task, table.readers, dag, table.last_round_at_ms)
    return replace(row, group=group)


class RowCache:
    """Keeps rows for some seconds: nothing of a row but its ages changes while the table, the YAML and what Airflow
    says of the DAG stay as they are."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[int, tuple[Any, ...], tuple[Any, ...], TopicRow]] = {}

    def row(
        self, name: str, topic: Topic | ConfigError, table: TableSummary | None, now_ms: int, *more: Any
    ) -> TopicRow:
        """Returns what row_of returns for the same arguments, or returned some seconds ago."""
        kept = self._rows.get(name)
        if kept is not None:
            at_ms, (of_topic, of_table), others, row = kept
            fresh = 0 <= now_ms - at_ms < ROW_LIVES_MS and of_topic is topic and of_table is table
            if fresh and table is not None and others == more:
                return row
        row = row_of(name, topic, table, now_ms, *more)
        self._rows[name] = (now_ms, (topic, table), more, row)
        return row


def log_views(plan: RunPlan, topic: Topic, platform: Platform, branches: Collection[str]) -> list[LogView]:
    """Makes the rows of a topic's logs, with what a run would do with each now."""
    in_units = {work.partition for unit in plan.units for work in unit.partitions}
    return [
        LogView(
            log=log,
            decision=planned.decision,
            bar=log_bar(log, BAR_WIDTH),
            lag_ms=_lag_ms(log, plan.now_ms),
            sweep=log.partition in plan.sweep,
            kept=kept_branch(log.state, log.partition, topic, platform.catalog.name, branches),
            held_by=tuple(h.name for h in plan.holds if h.partition == log.partition and h.tombstones),
            retention=planned.retention.reason if planned.retention.due and log.partition in in_units else "",
        )
        for planned in plan.by_log
        for log in [planned.log]
    ]


def _lag_ms(log: LogState, now_ms: int) -> int | None:
    """Returns how old the oldest dirty record is, None where nothing is dirty."""
    earliest_ms = log.earliest_dirty_timestamp_ms
    return None if earliest_ms is None else max(now_ms - earliest_ms, 0)

"""The values that the templates show: rows of topics and logs, charts, and whole pages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from cleantail.config.run_schedule import Schedule
from cleantail.config.settings_in_force import Setting
from cleantail.config.topic import Topic
from cleantail.config.topic_group import TopicGroup
from cleantail.erasure.requests import ErasureRequest
from cleantail.errors import CleantailError, ConfigError
from cleantail.log.log_state import LogState
from cleantail.log.quarantine import KeptBranch, kept_branch
from cleantail.log.source_position import SnapshotPosition
from cleantail.log.triggers import Decision
from cleantail.rounds.commit_summaries import SizePoint
from cleantail.rounds.past_rounds import Round
from cleantail.rounds.rollback_plan import UndoneRound
from cleantail.rounds.run_plan import EvaluatedTopic
from cleantail.watch.charts import (
    Bar,
    ColumnChart,
    PartitionChart,
    SizeChart,
    dropped_chart,
    duration_chart,
    log_bar,
    partition_charts,
    size_chart,
)
from cleantail.watch.dag_state import DagState, failure_text
from cleantail.watch.log_metrics import Totals
from cleantail.watch.metrics import PUT_BACK, RECLAIMED, SAVED, TAKEN_AGAIN
from cleantail.watch.observed_table import TableSummary
from cleantail.watch.source_watch import Lag, SourceView
from cleantail.watch.topic_list import Listing, Selection, TopicRow, topic_row
from cleantail.watch.topic_states import MEANING, State
from cleantail_airflow.page.records_and_docs import DocsPage

PARTITIONS_SHOWN = 12
"""Number of partitions with a visible history. The page folds the others."""


@dataclass(frozen=True, slots=True)
class Charts:
    """The charts of one topic. None for a chart without data."""

    size: SizeChart | None
    dropped: ColumnChart | None
    durations: ColumnChart | None
    partitions: Sequence[PartitionChart]

    @classmethod
    def of(cls, sizes: Sequence[SizePoint], rounds: Sequence[Round]) -> Charts:
        """Draw the charts. `rounds`: without rollbacks, because rollbacks drop no records."""
        return cls(size_chart(sizes), dropped_chart(rounds), duration_chart(rounds), partition_charts(rounds))


@dataclass(frozen=True, slots=True)
class SavedBytes:
    """The bytes that one topic has saved according to the evidence, without undone rounds and reclaims.

    `freed_bytes`: freed by reclaims. `so_far_bytes`: hidden by rounds, None until the evidence is read.
    """

    freed_bytes: int = 0
    so_far_bytes: int | None = None


def saved_bytes(totals: Totals | None, topics: Iterable[str]) -> dict[str, SavedBytes]:
    """Return topic -> its saved bytes. Empty until the evidence is read."""
    if totals is None:
        return {}
    return {
        name: SavedBytes(
            max(totals[RECLAIMED, (name,)] - totals[TAKEN_AGAIN, (name,)], 0),
            max(totals[SAVED, (name,)] - totals[PUT_BACK, (name,)], 0),
        )
        for name in topics
    }


BAR_WIDTH = 1000.0
ROW_LIVES_MS = 5_000


@dataclass(frozen=True, slots=True)
class LogView:
    """One log on a topic's page. `retention`: why a run would move the log start, empty if it would not."""

    log: LogState
    decision: Decision
    bar: Bar
    lag_ms: int | None
    sweep: bool
    kept: KeptBranch | None
    held_by: tuple[str, ...] = ()
    retention: str = ""

    @property
    def work(self) -> str:
        """The work of a run on the log now. Empty without work."""
        if self.decision.compact:
            return "Compact"
        return "Apply retention" if self.retention else "Expire tombstones" if self.sweep else ""


_AT_REST = (State.DUE, State.WAITING, State.CLEAN, State.RETAINED, State.EMPTY)
"""States in which a row also names unread records at the source, because the next run would read them first."""


def row_of(
    name: str,
    topic: Topic | ConfigError,
    table: TableSummary | None,
    now_ms: int,
    approval_task: str = "",
    saved_bytes: SavedBytes | None = None,
    dag: DagState | None = None,
    group: str | None = None,
    source_lag: Lag | str | None = None,
) -> TopicRow:
    """Return the row of one topic, even if its file or its table is broken.

    `approval_task`: the task that waits for a person's answer. `dag`: the state of the topic's DAG. `group`: the group
    that its YAML names. `source_lag`: as in TopicRow.
    """

    def unread(state: State, note: str) -> TopicRow:
        about = topic.description if isinstance(topic, Topic) else ""
        known = [note, *([failure_text(dag, now_ms)] if dag and dag.failed else [])]
        return TopicRow(name, state, "; ".join(known), about, dag=dag, group=group, approval_task=approval_task)

    if isinstance(topic, ConfigError):
        return unread(State.BROKEN, str(topic.problems[0]))
    if table is None:
        return unread(State.READING, MEANING[State.READING])
    if table.error:
        return unread(State.UNREADABLE, table.error)
    try:
        logs = table.states(topic, now_ms)
    except CleantailError as e:
        return unread(State.UNREADABLE, str(e))
    evidence = saved_bytes or SavedBytes()
    reclaimed = max(table.saved.reclaimed_bytes, evidence.freed_bytes)
    total = replace(table.saved, reclaimed_bytes=reclaimed, so_far_bytes=evidence.so_far_bytes)
    row = topic_row(topic, logs, total, now_ms, approval_task, table.readers, dag, table.last_round_at_ms)
    if row.state in _AT_REST and source_lag and not isinstance(source_lag, str) and source_lag.behind:
        row = replace(row, note=f"{row.note}; {source_lag.text} of its source not read yet")
    return replace(row, group=group, source_lag=source_lag)


class RowCache:
    """Caches rows for some seconds. While table, YAML and state of the DAG stay the same, only a row's ages change."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[int, tuple[Any, ...], tuple[Any, ...], TopicRow]] = {}

    def row(
        self, name: str, topic: Topic | ConfigError, table: TableSummary | None, now_ms: int, *more: Any
    ) -> TopicRow:
        """Return the result of row_of, which may be some seconds old."""
        kept = self._rows.get(name)
        if kept is not None:
            at_ms, (of_topic, of_table), others, row = kept
            fresh = 0 <= now_ms - at_ms < ROW_LIVES_MS and of_topic is topic and of_table is table
            if fresh and table is not None and others == more:
                return row
        row = row_of(name, topic, table, now_ms, *more)
        self._rows[name] = (now_ms, (topic, table), more, row)
        return row


def log_views(plan: EvaluatedTopic, topic: Topic, branches: Collection[str]) -> list[LogView]:
    """Return the rows of a topic's logs, with the work of a run on each now."""
    in_units = {work.partition for unit in plan.units for work in unit.partitions}
    return [
        LogView(
            log=log,
            decision=planned.decision,
            bar=log_bar(log, BAR_WIDTH),
            lag_ms=_lag_ms(log, plan.now_ms),
            sweep=log.partition in plan.swept,
            kept=kept_branch(log.state, log.partition, topic, topic.platform.catalog.name, branches),
            held_by=tuple(h.name for h in plan.holds if h.partition == log.partition and h.tombstones),
            retention=planned.retention.reason if planned.retention.due and log.partition in in_units else "",
        )
        for planned in plan.by_log
        for log in [planned.log]
    ]


def _lag_ms(log: LogState, now_ms: int) -> int | None:
    """Return the age of the oldest dirty record, or None without dirty records."""
    earliest_ms = log.earliest_dirty_timestamp_ms
    return None if earliest_ms is None else max(now_ms - earliest_ms, 0)


@dataclass(frozen=True, slots=True)
class GroupPage:
    """The head of a group's page: the group as in its YAML, and the state of its DAG."""

    name: str
    group: TopicGroup
    dag: DagState


@dataclass(frozen=True, slots=True)
class TopicsPage:
    """A page of many topics.

    `reading`: some tables are not read yet. `of_group`: the group, on a group's page. `catalog_error`: why no table can
    be read.
    """

    listing: Listing
    selection: Selection
    groups: Sequence[str]
    meaning: Mapping[State, str]
    reading: bool
    now_ms: int
    of_group: GroupPage | None = None
    catalog_error: str = ""


@dataclass(frozen=True, slots=True)
class TopicPage:
    """The page of one topic.

    `owner` and `schedule` may be the group's. `approval_task`: the task that waits for a person's answer, or "".
    `waiting_round`: its round. `rounds`: the newest rounds, with their Data Docs in `docs`. `more_rounds`: number of
    older rounds that are not shown. `undoable`: the rounds that a rollback can undo, by name and kind. `newest`: the
    first of them to undo. `rounds_error`: why the evidence cannot be read. `source`: the topic's source in Kafka, if
    any. `source_table`: the position in a source table. `erasures`: the requests to erase keys, newest first. If the
    table cannot be read, `plan` is None, and `row` has the reason.
    """

    topic: Topic
    row: TopicRow
    owner: str
    schedule: Schedule | None
    ingestion: str
    dag: DagState
    approval_task: str
    waiting_round: Round | None
    meaning: Mapping[State, str]
    limits: str
    plan: EvaluatedTopic | None
    logs: Sequence[LogView]
    charts: Charts
    charts_shown: int
    rounds: Sequence[Round]
    docs: Mapping[str, Sequence[DocsPage]]
    more_rounds: int
    undoable: Mapping[tuple[str, str], UndoneRound]
    newest: UndoneRound | None
    settings: Sequence[Setting]
    now_ms: int
    source: SourceView | None = None
    source_table: SnapshotPosition | None = None
    rounds_error: str = ""
    erasures: Sequence[ErasureRequest] = ()


def by_name(page: TopicsPage | TopicPage) -> dict[str, Any]:
    """Return the fields unchanged for a template. dataclasses.asdict would convert nested values."""
    return {field.name: getattr(page, field.name) for field in fields(page)}

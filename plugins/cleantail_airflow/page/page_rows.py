"""Makes the rows of the page: one for each topic, and one for each log of a topic."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, ConfigError
from cleantail.lake.runs.evaluate import RunPlan, log_states
from cleantail.log.log_state import LogState
from cleantail.log.policy.triggers import Decision
from cleantail.rounds.failed_branches import KeptBranch, kept_branch
from cleantail.rounds.size_history import last_round_at_ms, saved
from cleantail.watch.charts.log_bar import Bar, log_bar
from cleantail.watch.dag_state import DagState
from cleantail.watch.metadata_cache import ObservedTable
from cleantail.watch.overview import TopicRow, topic_row
from cleantail.watch.topic_states import MEANING, State
from cleantail_airflow.page.page_charts import SavedBytes

BAR_WIDTH = 1000.0


@dataclass(frozen=True, slots=True)
class LogView:
    """One log on a topic's page."""

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
    observed: ObservedTable | None,
    now_ms: int,
    approval_task: str = "",
    saved_bytes: SavedBytes | None = None,
    dag: DagState | None = None,
) -> TopicRow:
    """Makes the row of one topic at a glance, whatever is wrong with it.

    `approval_task` is the task that waits for a person's answer; `saved_bytes` is what the evidence says of all its
    rounds and reclaims; `dag` is what Airflow says of its DAG.
    """
    if isinstance(topic, ConfigError):
        return TopicRow(name, State.BROKEN, str(topic.problems[0]), dag=dag)
    if observed is None:
        return TopicRow(name, State.READING, MEANING[State.READING], topic.description, dag=dag)
    if observed.error:
        return TopicRow(name, State.UNREADABLE, observed.error, topic.description, dag=dag)
    try:
        logs = log_states(topic, observed.facts, now_ms)
    except CleantailError as e:
        return TopicRow(name, State.UNREADABLE, str(e), topic.description, dag=dag)
    files, readers = (observed.facts.files, observed.facts.readers) if observed.facts else ((), ())
    evidence = saved_bytes or SavedBytes()
    total = saved(files, observed.sizes, evidence.freed_bytes, evidence.so_far_bytes)
    return topic_row(topic, logs, total, now_ms, approval_task, readers, dag, last_round_at_ms(observed.sizes))


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

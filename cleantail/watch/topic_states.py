"""State of a topic: the most urgent state that applies, with its reason, for the page and `cleantail status`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from cleantail.config.loading import scan_topics
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import ConfigError, ConflictError, TableError
from cleantail.human import counted, readable_reason
from cleantail.intake import feed_of
from cleantail.kafka.client_settings import settings_of_topic
from cleantail.kafka.table_position import last_caught_up_ms
from cleantail.lake.evaluate import log_states, read_facts
from cleantail.log.due_work import DueWork
from cleantail.log.horizons import ReaderHold, resolve_holds, slowest, waiting_text
from cleantail.log.log_state import LogState
from cleantail.log.source_position import ReadPosition
from cleantail.watch.dag_state import BLOCKED_BY_CHECK, DagState, failure_text, standstill_text
from cleantail.watch.source_watch import Lag, SourceWatch, TableEnds


class State(StrEnum):
    """States of a topic, most urgent first. The page shows them in this order."""

    BROKEN = "broken"
    UNREADABLE = "unreadable"
    NO_DAG = "no DAG"
    FAILED = "failed"
    QUARANTINED = "quarantined"
    AWAITING_APPROVAL = "waits for approval"
    REJECTED = "rejected"
    RECONCILE = "reconcile needed"
    OVERDUE = "overdue"
    PAUSED = "paused"
    DUE = "due"
    WAITING = "waiting"
    CLEAN = "clean"
    RETAINED = "retention only"
    EMPTY = "empty"
    READING = "reading"

    @property
    def shown(self) -> str:
        """Return the name for people."""
        return "blocked" if self is State.QUARANTINED else self.value

    @property
    def for_people(self) -> bool:
        """Whether a user has to act, so that the topic comes first in the list."""
        return list(State).index(self) <= list(State).index(State.DUE)


MEANING = {
    State.BROKEN: "its YAML cannot be used",
    State.UNREADABLE: "its table cannot be read",
    State.NO_DAG: "Airflow has no DAG of it, or cannot import its file: due work is not done",
    State.FAILED: "the last run of its DAG failed",
    State.QUARANTINED: "a check failed: partitions are blocked until their next try",
    State.AWAITING_APPROVAL: "a checked round waits for a person's approval",
    State.REJECTED: "a round was rejected or not approved in time: its partitions rest until their next try",
    State.RECONCILE: "Kafka may have removed deletions before they were read: deleted keys may be alive",
    State.OVERDUE: "dirty records have passed max.compaction.lag.ms",
    State.PAUSED: "work is due, but its DAG is paused in Airflow",
    State.DUE: "the next run has work to do",
    State.WAITING: "dirty, but not above the limit or not yet cleanable; or tombstones wait for a registered reader",
    State.CLEAN: "clean up to the log end",
    State.RETAINED: "cleanup.policy has no compact",
    State.EMPTY: "nothing was ingested yet",
    State.READING: "its metadata is being read",
}


def state_of(
    topic: Topic, logs: Sequence[LogState], work: DueWork, now_ms: int, approval_task: str, dag: DagState | None
) -> tuple[State, str]:
    """Return the most urgent state of a topic, with its reason: that of the DAG, or of the log in that state."""
    dag = dag or DagState()
    # 1. states that stop every run
    if dag.import_error:
        return State.NO_DAG, "Airflow cannot import the file of its DAG (Import Errors): no run starts"
    if approval_task:
        return State.AWAITING_APPROVAL, f"task {approval_task} waits for the decision on a checked round"
    # 2. the state of the logs, and whether a run will handle it
    state, note = _of_logs(topic, logs, work)
    if dag.failed:
        adds_reason = state in (State.QUARANTINED, State.REJECTED, State.RECONCILE, State.OVERDUE)
        known = (f"{topic.topic}: {BLOCKED_BY_CHECK}",) if state is State.QUARANTINED else ()
        return State.FAILED, "; ".join([failure_text(dag, now_ms, known), *([note] if adds_reason else [])])
    if state is State.OVERDUE and dag.stands_still:
        return state, f"{note}; {standstill_text(dag)}"
    if state is State.DUE and dag.stands_still:
        return (
            State.PAUSED if dag.exists else State.NO_DAG,
            f"{standstill_text(dag)}, so due work is not done: {note}",
        )
    return state, note


def _of_logs(topic: Topic, logs: Sequence[LogState], work: DueWork) -> tuple[State, str]:
    """Return the most urgent state of the logs, with the reason of the log that is in it."""
    held = [(log.partition, log.state.quarantine) for log in logs if log.state.quarantine]
    late = [d for d in work.decisions if d.compact and d.overdue_ms > 0]
    # 1. a user or a check blocks a log
    if held:
        partition, why = min(held, key=lambda held_log: not held_log[1].check_failed)
        others = len(held) - 1
        more = f" (and {counted(others, 'more partition')})" if others else ""
        return State.QUARANTINED if why.check_failed else State.REJECTED, f"{_of(partition, why.reason)}{more}"
    # 2. there is no log
    if not logs:
        return State.EMPTY, f"{MEANING[State.EMPTY]}: {feed_of(topic).first(topic)}"
    # 3. states without proof of a right table
    if forgotten := next((log.forgotten for log in logs if log.forgotten), None):
        return State.RECONCILE, forgotten.text
    # 4. the work of a run
    if late:
        worst = max(late, key=lambda d: d.overdue_ms)
        return State.OVERDUE, _of(worst.partition, worst.reason)
    if work.any_due:
        return State.DUE, _due_text(work)
    # 5. waiting work, with the reason
    if not topic.config.compacts:
        return State.RETAINED, MEANING[State.RETAINED]
    if waiting := slowest(work.holds):
        return State.WAITING, waiting_text(waiting)
    dirty = [d for d, log in zip(work.decisions, logs, strict=True) if log.first_dirty_offset < log.log_end_offset]
    if dirty:
        worst = max(dirty, key=lambda d: d.dirty_ratio)
        return State.WAITING, _of(worst.partition, worst.reason)
    return State.CLEAN, MEANING[State.CLEAN]


def _due_text(work: DueWork) -> str:
    """Return the first work of a run: the dirtiest log, retention, or tombstones."""
    if work.compact:
        worst = max((d for d in work.decisions if d.compact), key=lambda d: d.dirty_ratio)
        return _of(worst.partition, worst.reason)
    if work.retain:
        return next(
            _of(d.partition, r.reason)
            for d, r in zip(work.decisions, work.retentions, strict=True)
            if d.partition == work.retain[0]
        )
    return work.sweep_reason


def _of(partition: int, reason: str) -> str:
    return f"partition {partition}: {readable_reason(reason)}"


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """A topic's logs, its registered readers with the tombstones that each blocks, and how far its source was read.

    `lag`: how far the table is behind its source, or why that is unknown. None before with_lags, or if the source is
    neither in Kafka nor a table.
    """

    topic: Topic
    logs: Sequence[LogState]
    holds: Sequence[ReaderHold] = ()
    source: ReadPosition | None = None
    ends: TableEnds = TableEnds()
    lag: Lag | str | None = None


def status_of(topic: Topic, now_ms: int) -> TopicStatus:
    """Return the status of a topic, from metadata. Raises TableError, or OutsideError if the catalog cannot be
    reached."""
    facts = read_facts(topic)
    logs = log_states(topic, facts, now_ms)
    if facts is None:
        return TopicStatus(topic, logs)
    holds = resolve_holds(logs, facts.readers, topic.config, now_ms)
    caught_up_ms = last_caught_up_ms(topic, facts.source) if topic.source.kafka else 0
    ends = TableEnds(facts.position, {log.partition: log.log_end_offset for log in logs}, caught_up_ms)
    return TopicStatus(topic, logs, holds, facts.position, ends)


LAGS_WITHIN_S = 6.0
"""Maximum wait of `status` for the sources of all topics."""


def with_lags(statuses: Sequence[TopicStatus], now_ms: int) -> list[TopicStatus]:
    """Return the statuses with the lag of each table behind its source. Uses the logins of the environment."""
    with SourceWatch(settings_of_topic) as watch:
        lags = watch.lags([(status.topic, status.ends) for status in statuses], now_ms, LAGS_WITHIN_S)
    return [replace(status, lag=lags.get(status.topic.topic)) for status in statuses]


Counting = Callable[[Sequence[Any], str], Iterable[Any]]
"""Passes the items on and shows progress; the text names one item."""


def status_of_all(
    config_dir: Path, platform: Platform, now_ms: int, counting: Counting
) -> tuple[list[TopicStatus], list[str]]:
    """Return each topic's status, and a message for each topic whose file or table is broken."""
    statuses: list[TopicStatus] = []
    broken: list[str] = []
    for _, topic in counting(list(scan_topics(config_dir)), "topic"):
        try:
            if isinstance(topic, ConfigError):
                raise topic
            statuses.append(status_of(topic, now_ms))
        except ConfigError as e:
            broken.append(str(e))
        except (TableError, ConflictError) as e:  # also a table that was changed while it was read
            broken.append(f"{topic.topic}: {e}" if isinstance(topic, Topic) else str(e))
    return statuses, broken

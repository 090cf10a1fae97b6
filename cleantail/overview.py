"""One row a topic for the page of all topics: its state at a glance, its worst log, and the order of the rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cleantail.config_row import LONG_MAX
from cleantail.history import Saved
from cleantail.log_state import LogState
from cleantail.topic import Topic
from cleantail.triggers import Decision, decide, due_tombstones
from cleantail.words import duration, in_words


class State(StrEnum):
    """A topic at a glance, the most pressing first: the first that holds is shown."""

    BROKEN = "broken"
    UNREADABLE = "unreadable"
    ASKING = "waits for approval"
    QUARANTINED = "quarantined"
    PAUSED = "paused"
    OVERDUE = "overdue"
    DUE = "due"
    WAITING = "waiting"
    CLEAN = "clean"
    RETAINED = "retention only"
    EMPTY = "empty"
    READING = "reading"


MEANING = {
    State.BROKEN: "its YAML cannot be used",
    State.UNREADABLE: "its table cannot be read",
    State.ASKING: "a round that was checked is published when a person says so",
    State.QUARANTINED: "a check failed: partitions are held back until their next try",
    State.PAUSED: "a person said no to a round, or nobody said yes: its partitions rest until their next try",
    State.OVERDUE: "dirty records have passed max.compaction.lag.ms",
    State.DUE: "the next run has something to do",
    State.WAITING: "dirty, but not above the limit or not yet cleanable",
    State.CLEAN: "clean up to the log end",
    State.RETAINED: "cleanup.policy has no compact",
    State.EMPTY: "nothing was ingested yet",
    State.READING: "its metadata is being read",
}
"""What each state means, in words."""


@dataclass(frozen=True, slots=True)
class TopicRow:
    """What the page of all topics shows of one. The ratio and the lag are those of its worst log. The last round by its
    own clock, and by the wall's, which is None where its snapshot is not kept."""

    name: str
    state: State
    note: str
    description: str = ""
    logs: int = 0
    records: int = 0
    live_bytes: int = 0
    dirty_ratio: float = 0.0
    dirty_limit: float | None = None
    lag_ms: int | None = None
    overdue_ms: int = 0
    limits: str = ""
    tombstones: int = 0
    next_horizon_ms: int | None = None
    quarantined: tuple[int, ...] = ()
    last_round_ms: int | None = None
    last_round_at_ms: int | None = None
    saved: Saved = Saved(0, 0)

    @property
    def known(self) -> bool:
        """Whether there is a table that was read: without one the numbers say nothing."""
        return self.state not in (State.BROKEN, State.UNREADABLE, State.READING, State.EMPTY)


def topic_row(
    topic: Topic,
    logs: Sequence[LogState],
    saved: Saved,
    now_ms: int,
    asking: str = "",
    last_round_at_ms: int | None = None,
) -> TopicRow:
    """The row of a topic whose table was read. `asking`: the task that waits for a person's answer, if any."""
    configs = topic.config
    decisions = [decide(log, configs, now_ms) for log in logs]
    state, note = (State.ASKING, asking_words(asking)) if asking else _state(topic, logs, decisions, now_ms)
    earliest = [log.earliest_dirty_timestamp_ms for log in logs if log.earliest_dirty_timestamp_ms is not None]
    horizons = [log.next_horizon_ms for log in logs if log.next_horizon_ms is not None]
    rounds = [log.state.last_round_ms for log in logs if log.state.last_round_ms is not None]
    return TopicRow(
        name=topic.topic,
        state=state,
        note=note,
        description=topic.description,
        logs=len(logs),
        records=sum(log.records for log in logs),
        live_bytes=sum(log.total_bytes for log in logs),
        dirty_ratio=max((log.dirty_ratio for log in logs), default=0.0) if configs.compacts else 0.0,
        dirty_limit=configs.min_cleanable_dirty_ratio if configs.compacts else None,
        lag_ms=max(now_ms - min(earliest), 0) if earliest and configs.compacts else None,
        overdue_ms=max((d.overdue_ms for d in decisions), default=0) if configs.compacts else 0,
        limits=lag_limits(topic),
        tombstones=sum(log.pending_tombstones for log in logs),
        next_horizon_ms=min(horizons, default=None),
        quarantined=quarantined(logs),
        last_round_ms=max(rounds, default=None),
        last_round_at_ms=last_round_at_ms,
        saved=saved,
    )


def asking_words(task: str) -> str:
    """`task approve asks whether a checked round may be published`."""
    return f"task {task} asks whether a checked round may be published"


def quarantined(logs: Iterable[LogState]) -> tuple[int, ...]:
    """Partitions that are held back."""
    return tuple(log.partition for log in logs if log.state.quarantine)


def lag_limits(topic: Topic) -> str:
    """The bounds of the compaction lag in words; empty where there are none."""
    low, high = topic.config.min_compaction_lag_ms, topic.config.max_compaction_lag_ms
    texts = [f"min {duration(low)}"] if low else []
    return ", ".join([*texts, f"max {duration(high)}"] if high < LONG_MAX else texts)


def _state(topic: Topic, logs: Sequence[LogState], decisions: Sequence[Decision], now_ms: int) -> tuple[State, str]:
    """The most pressing state, and the reason in words of the log that is in it."""
    held = [(log.partition, log.state.quarantine) for log in logs if log.state.quarantine]
    late = [d for d in decisions if d.overdue_ms > 0 and d.cleanable_bytes > 0]
    due = [d for d in decisions if d.compact]
    if held:
        partition, why = min(held, key=lambda each: not each[1].check_failed)
        return State.QUARANTINED if why.check_failed else State.PAUSED, _of(partition, why.reason)
    if not logs:
        return State.EMPTY, MEANING[State.EMPTY]
    if not topic.config.compacts:
        return State.RETAINED, MEANING[State.RETAINED]
    if late:
        worst = max(late, key=lambda d: d.overdue_ms)
        return State.OVERDUE, _of(worst.partition, worst.reason)
    if due:
        worst = max(due, key=lambda d: d.dirty_ratio)
        return State.DUE, _of(worst.partition, worst.reason)
    if tombstones := sum(due_tombstones(log, now_ms) for log in logs):
        return State.DUE, f"{tombstones} tombstones are past their horizon"
    dirty = [d for d, log in zip(decisions, logs, strict=True) if log.first_dirty_offset < log.log_end_offset]
    if dirty:
        worst = max(dirty, key=lambda d: d.dirty_ratio)
        return State.WAITING, _of(worst.partition, worst.reason)
    return State.CLEAN, MEANING[State.CLEAN]


def _of(partition: int, reason: str) -> str:
    return f"partition {partition}: {in_words(reason)}"


def in_order(rows: Iterable[TopicRow]) -> list[TopicRow]:
    """Most overdue first, then the dirtiest; of equal ones those in quarantine first, then by name."""
    return sorted(rows, key=lambda r: (-r.overdue_ms, -r.dirty_ratio, not r.quarantined, r.name))


def counts(rows: Iterable[TopicRow]) -> list[tuple[State, int]]:
    """How many topics are in each state, states that none is in left out."""
    states = [row.state for row in rows]
    return [(state, states.count(state)) for state in State if state in states]

"""One row a topic for the page of all topics: its state at a glance, its worst log, and the order of the rows. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cleantail.config.settings.config_model import LONG_MAX
from cleantail.config.topic import Topic
from cleantail.human import duration
from cleantail.log.due_work import resolve_due_work
from cleantail.log.horizons import Reader
from cleantail.log.log_state import LogState
from cleantail.rounds.commit_summaries import Saved
from cleantail.watch.dag_state import DagState
from cleantail.watch.topic_states import State, state_of


@dataclass(frozen=True, slots=True)
class TopicRow:
    """Describes what the page of all topics shows of one topic.

    The ratio and the lag are those of its worst log. `last_round_ms` is by the round's own clock, `last_round_at_ms` by
    the wall clock: None where the round's snapshot is not kept. `group` is the one that its YAML names.
    """

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
    sweeps: bool = False
    last_round_at_ms: int | None = None
    saved: Saved = Saved(0, 0)
    dag: DagState | None = None
    group: str | None = None

    @property
    def was_read(self) -> bool:
        """Returns whether there is a table that was read: without one the numbers say nothing."""
        return self.logs > 0

    @property
    def also(self) -> list[str]:
        """Returns what else is so, beside the state: a word each."""
        dag = self.dag or DagState()
        notes = {
            "no DAG": not dag.exists and self.state not in (State.NO_DAG, State.BROKEN),
            "paused": dag.exists and dag.paused and self.state is not State.PAUSED,
            "failed": dag.failed and self.state is not State.FAILED,
            "quarantined": bool(self.quarantined)
            and self.state in (State.FAILED, State.AWAITING_APPROVAL, State.NO_DAG),
            # the run of a group says of none of its topics that it is worked on
            dag.active.state if dag.active else "": dag.active is not None and not dag.group,
        }
        return [word for word, holds in notes.items() if holds]


def topic_row(
    topic: Topic,
    logs: Sequence[LogState],
    saved: Saved,
    now_ms: int,
    approval_task: str = "",
    readers: Sequence[Reader] = (),
    dag: DagState | None = None,
    last_round_at_ms: int | None = None,
) -> TopicRow:
    """Returns the row of a topic whose table was read.

    `approval_task` is the task that waits for a person's answer, if any. `dag` is what Airflow says of its DAG, None
    where nobody has asked.
    """
    configs = topic.config
    work = resolve_due_work(logs, readers, configs, now_ms)
    state, note = state_of(topic, logs, work, now_ms, approval_task, dag)
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
        overdue_ms=max((d.overdue_ms for d in work.decisions), default=0) if configs.compacts else 0,
        limits=lag_limits(topic),
        tombstones=sum(log.pending_tombstones for log in logs),
        next_horizon_ms=min(horizons, default=None),
        quarantined=quarantined(logs),
        last_round_ms=max(rounds, default=None),
        sweeps=bool(work.sweep),
        last_round_at_ms=last_round_at_ms,
        saved=saved,
        dag=dag,
    )


def quarantined(logs: Iterable[LogState]) -> tuple[int, ...]:
    """Returns the partitions that are held back."""
    return tuple(log.partition for log in logs if log.state.quarantine)


def lag_limits(topic: Topic) -> str:
    """Returns the bounds of the compaction lag in words; empty where there are none."""
    low, high = topic.config.min_compaction_lag_ms, topic.config.max_compaction_lag_ms
    texts = [f"min {duration(low)}"] if low else []
    return ", ".join([*texts, f"max {duration(high)}"] if high < LONG_MAX else texts)


def in_order(rows: Iterable[TopicRow]) -> list[TopicRow]:
    """Returns the rows in their order on the page.

    First come topics that a person has to do something about, by state, the most overdue and the dirtiest of each; then
    the rest, the dirtiest first. Equal ones are ordered by name.
    """
    order = list(State)
    rank = {state: order.index(state) if state.for_people else len(order) for state in order}
    return sorted(rows, key=lambda r: (rank[r.state], -r.overdue_ms, -r.dirty_ratio, r.name))


def counts(rows: Iterable[TopicRow]) -> list[tuple[State, int]]:
    """Returns how many topics are in each state, without states that no topic is in."""
    counted = Counter(row.state for row in rows)
    return [(state, counted[state]) for state in State if state in counted]

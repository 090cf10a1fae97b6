"""The page of all topics: one row for each topic, with filters and order. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from cleantail.config.config_model import LONG_MAX
from cleantail.config.topic import Topic
from cleantail.human import interval
from cleantail.log.due_work import resolve_due_work
from cleantail.log.horizons import Reader
from cleantail.log.log_state import LogState
from cleantail.rounds.commit_summaries import Saved
from cleantail.watch.dag_state import DagState
from cleantail.watch.source_watch import Lag
from cleantail.watch.topic_states import State, state_of


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic on the page of all topics.

    Ratio and lag are those of its worst log. `last_round_ms` is by the round's own clock. `last_round_at_ms` is by the
    wall clock, None if the round's snapshot is not kept. `group` is the group in the topic's YAML. `source_lag` is how
    far the table is behind its source, or why that is unknown; None if the source is neither in Kafka nor a table.
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
    source_lag: Lag | str | None = None
    approval_task: str = ""

    @property
    def behind(self) -> int | None:
        """Number of unread offsets in Kafka, or snapshots of a source table; None if unknown or without either."""
        return None if self.source_lag is None or isinstance(self.source_lag, str) else self.source_lag.behind

    @property
    def was_read(self) -> bool:
        """Whether a table was read. Otherwise the numbers have no meaning."""
        return self.logs > 0

    @property
    def also(self) -> list[str]:
        """Return facts in addition to the state, one word for each."""
        dag = self.dag or DagState()
        notes = {
            "no DAG": not dag.exists and self.state not in (State.NO_DAG, State.BROKEN),
            "paused": dag.exists and dag.paused and self.state is not State.PAUSED,
            "failed": dag.failed and self.state is not State.FAILED,
            State.AWAITING_APPROVAL.value: bool(self.approval_task) and self.state is not State.AWAITING_APPROVAL,
            State.QUARANTINED.shown: bool(self.quarantined)
            and self.state in (State.FAILED, State.AWAITING_APPROVAL, State.NO_DAG),
            # the run of a group does not show which of its topics it is working on
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
    """Return the row of a topic whose table was read.

    `approval_task`: the task that waits for approval, if any. `dag`: None if Airflow was not queried.
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
        approval_task=approval_task,
    )


def quarantined(logs: Iterable[LogState]) -> tuple[int, ...]:
    return tuple(log.partition for log in logs if log.state.quarantine)


def lag_limits(topic: Topic) -> str:
    """Return the bounds of the compaction lag as text, or "" if the topic has no bounds."""
    low, high = topic.config.min_compaction_lag_ms, topic.config.max_compaction_lag_ms
    texts = [f"min {interval(low)}"] if low else []
    return ", ".join([*texts, f"max {interval(high)}"] if high < LONG_MAX else texts)


def in_order(rows: Iterable[TopicRow]) -> list[TopicRow]:
    """Return the rows in the order of the page.

    Topics that need a user come first, by state, then by overdue time, then by dirty ratio. The others follow by dirty
    ratio. Names decide ties.
    """
    order = list(State)
    rank = {state: order.index(state) if state.for_people else len(order) for state in order}
    return sorted(rows, key=lambda r: (rank[r.state], -r.overdue_ms, -r.dirty_ratio, r.name))


def counts(rows: Iterable[TopicRow]) -> list[tuple[State, int]]:
    """Return how many topics are in each state, without empty states."""
    counted = Counter(row.state for row in rows)
    return [(state, counted[state]) for state in State if state in counted]


PER_PAGE = 50
NO_GROUP = "(none)"
"""The filter's name for topics in no group. No group can have this name."""
_STATES = list(State)
SORTS: Mapping[str, tuple[Callable[[TopicRow], Any], bool]] = {
    "name": (lambda row: row.name, False),
    "state": (lambda row: -_STATES.index(row.state), True),
    "behind": (lambda row: row.behind or 0, True),
    "ratio": (lambda row: row.dirty_ratio, True),
    "lag": (lambda row: (row.overdue_ms, row.lag_ms or 0), True),
    "tombstones": (lambda row: row.tombstones, True),
    "held": (lambda row: len(row.quarantined), True),
    "round": (lambda row: row.last_round_at_ms or row.last_round_ms or 0, True),
    "freed": (lambda row: row.saved.reclaimed_bytes, True),
}
"""Column -> sort key, and whether the first click puts the largest first."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows a page of topics shows.

    `text` is part of a name, state or reason. `group` is a group's name or NO_GROUP. `sort` is a column of SORTS, with
    `-` in front for the reverse, or "" for the page's own order.
    """

    text: str = ""
    group: str = ""
    state: str = ""
    sort: str = ""
    page: int = 1

    @property
    def all_of_them(self) -> bool:
        return not (self.text.strip() or self.group or self.state)

    def query(self, **changes: Any) -> str:
        """Return the query string of this selection with changes. Defaults are left out."""
        selection = replace(self, **changes)
        values = {"q": selection.text, "group": selection.group, "state": selection.state, "sort": selection.sort}
        pages = {"page": selection.page} if selection.page > 1 else {}
        return urlencode({name: value for name, value in values.items() if value} | pages)

    def next_sort(self, column: str) -> str:
        """Return the sort after a click on a column's head: reversed if the column is sorted already."""
        return f"-{column}" if self.sort == column else column

    def direction(self, column: str) -> str:
        """Return aria-sort of a column's head."""
        if self.sort.removeprefix("-") != column or column not in SORTS:
            return "none"
        return "descending" if SORTS[column][1] is not self.sort.startswith("-") else "ascending"


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of rows.

    `found` covers all pages, `counts` all pages and all states. `total` counts the topics that the viewer may see.
    `whole`: all of these topics are on this page.
    """

    rows: Sequence[TopicRow]
    counts: Sequence[tuple[State, int]]
    found: int
    total: int
    page: int
    pages: int
    whole: bool

    @property
    def first(self) -> int:
        """Number of the page's first row, from 1."""
        return (self.page - 1) * PER_PAGE + 1


def listing(rows: Sequence[TopicRow], selection: Selection) -> Listing:
    """Return the selected page, or the last one if there are fewer pages."""
    text = selection.text.strip().lower()
    of_group = [row for row in rows if selection.group in ("", row.group or NO_GROUP)]
    matching = [row for row in of_group if text in f"{row.name}\n{row.state.shown}\n{row.note}".lower()]
    selected = [row for row in matching if selection.state in ("", row.state.value)]
    pages = max(-(-len(selected) // PER_PAGE), 1)
    page = min(max(selection.page, 1), pages)
    shown = _sorted(selected, selection.sort)[(page - 1) * PER_PAGE : page * PER_PAGE]
    whole = selection.all_of_them and pages == 1
    return Listing(shown, counts(matching), len(selected), len(rows), page, pages, whole)


def _sorted(rows: Sequence[TopicRow], sort: str) -> list[TopicRow]:
    column = sort.removeprefix("-")
    if column not in SORTS:
        return in_order(rows)
    by, largest_first = SORTS[column]
    in_line = sorted(rows, key=lambda row: row.name)
    return sorted(in_line, key=by, reverse=largest_first is not sort.startswith("-"))

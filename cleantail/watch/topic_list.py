"""The page of many topics: which of their rows are shown, in what order, and how many there are. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from cleantail.watch.overview import TopicRow, counts, in_order
from cleantail.watch.topic_states import State

PER_PAGE = 50
NO_GROUP = "(none)"
"""What a filter calls the topics in no group: no group can have such a name."""
_STATES = list(State)
SORTS: Mapping[str, tuple[Callable[[TopicRow], Any], bool]] = {
    "name": (lambda row: row.name, False),
    "state": (lambda row: -_STATES.index(row.state), True),
    "ratio": (lambda row: row.dirty_ratio, True),
    "lag": (lambda row: (row.overdue_ms, row.lag_ms or 0), True),
    "tombstones": (lambda row: row.tombstones, True),
    "held": (lambda row: len(row.quarantined), True),
    "round": (lambda row: row.last_round_at_ms or row.last_round_ms or 0, True),
    "saved": (lambda row: row.saved.so_far_bytes or 0, True),
}
"""Column -> by what its rows are ordered, and whether the largest comes first at the first click."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Says which rows a page of topics shows. `text`: what a name, state or reason has in it; `group`: a group's name,
    or NO_GROUP; `sort`: a column of SORTS, with - before it from the other end, and empty for the page's own order."""

    text: str = ""
    group: str = ""
    state: str = ""
    sort: str = ""
    page: int = 1

    @property
    def all_of_them(self) -> bool:
        """Returns whether nothing is left out."""
        return not (self.text.strip() or self.group or self.state)

    def query(self, **changes: Any) -> str:
        """Returns the part of an address after ? that asks for this, with changes; defaults are left out."""
        selection = replace(self, **changes)
        values = {"q": selection.text, "group": selection.group, "state": selection.state, "sort": selection.sort}
        pages = {"page": selection.page} if selection.page > 1 else {}
        return urlencode({name: value for name, value in values.items() if value} | pages)

    def next_sort(self, column: str) -> str:
        """Returns what a click on a column's head asks for: the other end where it is sorted by that already."""
        return f"-{column}" if self.sort == column else column

    def direction(self, column: str) -> str:
        """Returns aria-sort of a column's head."""
        if self.sort.removeprefix("-") != column or column not in SORTS:
            return "none"
        return "descending" if SORTS[column][1] is not self.sort.startswith("-") else "ascending"


@dataclass(frozen=True, slots=True)
class Listing:
    """Describes one page of rows. `found` and `counts` are of all pages, the counts of all states; `total` is of all
    topics that the viewer may see. `whole`: every one of these is on this page."""

    rows: Sequence[TopicRow]
    counts: Sequence[tuple[State, int]]
    found: int
    total: int
    page: int
    pages: int
    whole: bool

    @property
    def first(self) -> int:
        """Returns the number of the page's first row, from 1."""
        return (self.page - 1) * PER_PAGE + 1


def listing(rows: Sequence[TopicRow], selection: Selection) -> Listing:
    """Returns the page that is selected, the last one where there are not so many."""
    text = selection.text.strip().lower()
    of_group = [row for row in rows if selection.group in ("", row.group or NO_GROUP)]
    matching = [row for row in of_group if not text or _says(row, text)]
    selected = [row for row in matching if selection.state in ("", row.state.value)]
    pages = max(-(-len(selected) // PER_PAGE), 1)
    page = min(max(selection.page, 1), pages)
    shown = _sorted(selected, selection.sort)[(page - 1) * PER_PAGE : page * PER_PAGE]
    whole = selection.all_of_them and pages == 1
    return Listing(shown, counts(matching), len(selected), len(rows), page, pages, whole)


def _says(row: TopicRow, text: str) -> bool:
    return text in row.name.lower() or text in row.state.value or text in row.note.lower()


def _sorted(rows: Sequence[TopicRow], sort: str) -> list[TopicRow]:
    column = sort.removeprefix("-")
    if column not in SORTS:
        return in_order(rows)
    by, largest_first = SORTS[column]
    in_line = sorted(rows, key=lambda row: row.name)
    return sorted(in_line, key=by, reverse=largest_first is not sort.startswith("-"))

"""Which rows of many are shown, in what order, and how many there are."""

import pytest

from cleantail.watch.topic_list import NO_GROUP, PER_PAGE, SORTS, Selection, TopicRow, listing
from cleantail.watch.topic_states import State

ROWS = [
    TopicRow("b.orders", State.DUE, "partition 0: dirty", dirty_ratio=0.7, group="small"),
    TopicRow("a.bills", State.CLEAN, "clean", dirty_ratio=0.1, group="small"),
    TopicRow("c.clicks", State.CLEAN, "clean", dirty_ratio=0.3),
]
MANY = [TopicRow(f"t{n:03d}", State.CLEAN, "clean") for n in range(2 * PER_PAGE + 1)]


def names(rows, selection):
    return [row.name for row in listing(rows, selection).rows]


@pytest.mark.parametrize(
    ("selection", "found"),
    [
        (Selection(), ["b.orders", "c.clicks", "a.bills"]),
        (Selection(text=" ORD "), ["b.orders"]),
        (Selection(text="due"), ["b.orders"]),
        (Selection(text="partition 0"), ["b.orders"]),
        (Selection(group="small", sort="name"), ["a.bills", "b.orders"]),
        (Selection(group=NO_GROUP), ["c.clicks"]),
        (Selection(state="clean", sort="name"), ["a.bills", "c.clicks"]),
        (Selection(text="bills", group=NO_GROUP), []),
        (Selection(sort="-name"), ["c.clicks", "b.orders", "a.bills"]),
        (Selection(sort="ratio"), ["b.orders", "c.clicks", "a.bills"]),
        (Selection(sort="-ratio"), ["a.bills", "c.clicks", "b.orders"]),
        (Selection(sort="nonsense"), ["b.orders", "c.clicks", "a.bills"]),
    ],
)
def test_rows_are_found_by_text_group_and_state_in_the_order_of_a_column(selection, found):
    assert names(ROWS, selection) == found


def test_counts_are_of_what_the_text_and_the_group_leave_whatever_the_state():
    found = listing(ROWS, Selection(group="small", state="clean"))
    assert (found.found, found.total, dict(found.counts)) == (1, 3, {State.DUE: 1, State.CLEAN: 1})


@pytest.mark.parametrize(("page", "first", "count"), [(1, 1, 50), (2, 51, 50), (3, 101, 1), (99, 101, 1)])
def test_many_rows_are_shown_page_by_page(page, first, count):
    found = listing(MANY, Selection(page=page))
    assert (found.first, len(found.rows), found.pages, found.whole) == (first, count, 3, False)


def test_a_browser_may_filter_by_itself_only_where_it_has_every_row():
    assert listing(ROWS, Selection()).whole
    assert not listing(ROWS, Selection(text="b")).whole
    assert listing([], Selection()).whole


def test_an_address_has_what_is_wanted_and_escapes_it():
    selection = Selection(text="a&b", state="clean", page=3)
    assert selection.query(page=1) == "q=a%26b&state=clean"
    assert selection.query() == "q=a%26b&state=clean&page=3"
    assert Selection().query() == ""


@pytest.mark.parametrize("column", SORTS)
def test_a_second_click_on_a_column_turns_its_order_round(column):
    once = Selection(sort=Selection().next_sort(column))
    twice = Selection(sort=once.next_sort(column))
    assert {once.direction(column), twice.direction(column)} == {"ascending", "descending"}
    assert Selection(sort="other").direction(column) == "none"

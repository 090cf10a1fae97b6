"""Which rows of many are shown, in what order, and how many there are."""

import pytest

from cleantail.watch.overview import TopicRow
from cleantail.watch.topic_list import NO_GROUP, PER_PAGE, SORTS, Wanted, listing
from cleantail.watch.topic_states import State

ROWS = [
    TopicRow("b.orders", State.DUE, "partition 0: dirty", dirty_ratio=0.7, group="small"),
    TopicRow("a.bills", State.CLEAN, "clean", dirty_ratio=0.1, group="small"),
    TopicRow("c.clicks", State.CLEAN, "clean", dirty_ratio=0.3),
]
MANY = [TopicRow(f"t{n:03d}", State.CLEAN, "clean") for n in range(2 * PER_PAGE + 1)]


def names(rows, wanted):
    return [row.name for row in listing(rows, wanted).rows]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Wanted(), ["b.orders", "c.clicks", "a.bills"]),
        (Wanted(text=" ORD "), ["b.orders"]),
        (Wanted(text="due"), ["b.orders"]),
        (Wanted(text="partition 0"), ["b.orders"]),
        (Wanted(group="small", sort="name"), ["a.bills", "b.orders"]),
        (Wanted(group=NO_GROUP), ["c.clicks"]),
        (Wanted(state="clean", sort="name"), ["a.bills", "c.clicks"]),
        (Wanted(text="bills", group=NO_GROUP), []),
        (Wanted(sort="-name"), ["c.clicks", "b.orders", "a.bills"]),
        (Wanted(sort="ratio"), ["b.orders", "c.clicks", "a.bills"]),
        (Wanted(sort="-ratio"), ["a.bills", "c.clicks", "b.orders"]),
        (Wanted(sort="nonsense"), ["b.orders", "c.clicks", "a.bills"]),
    ],
)
def test_rows_are_found_by_text_group_and_state_in_the_order_of_a_column(wanted, found):
    assert names(ROWS, wanted) == found


def test_counts_are_of_what_the_text_and_the_group_leave_whatever_the_state():
    found = listing(ROWS, Wanted(group="small", state="clean"))
    assert (found.found, found.total, dict(found.counts)) == (1, 3, {State.DUE: 1, State.CLEAN: 1})


@pytest.mark.parametrize(("page", "first", "count"), [(1, 1, 50), (2, 51, 50), (3, 101, 1), (99, 101, 1)])
def test_many_rows_are_shown_page_by_page(page, first, count):
    found = listing(MANY, Wanted(page=page))
    assert (found.first, len(found.rows), found.pages, found.whole) == (first, count, 3, False)


def test_a_browser_may_filter_by_itself_only_where_it_has_every_row():
    assert listing(ROWS, Wanted()).whole
    assert not listing(ROWS, Wanted(text="b")).whole
    assert listing([], Wanted()).whole


def test_an_address_has_what_is_wanted_and_escapes_it():
    wanted = Wanted(text="a&b", state="clean", page=3)
    assert wanted.query(page=1) == "q=a%26b&state=clean"
    assert wanted.query() == "q=a%26b&state=clean&page=3"
    assert Wanted().query() == ""


@pytest.mark.parametrize("column", SORTS)
def test_a_second_click_on_a_column_turns_its_order_round(column):
    once = Wanted(sort=Wanted().next_sort(column))
    twice = Wanted(sort=once.next_sort(column))
    assert {once.direction(column), twice.direction(column)} == {"ascending", "descending"}
    assert Wanted(sort="other").direction(column) == "none"

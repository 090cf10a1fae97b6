"""Rows are handed out in any sizes, and the first difference to what Kafka has is found."""

from dataclasses import dataclass
from typing import Any

import pytest

from cleantail.kafka.target_log import Feed, FieldDifference, Rows, first_difference


def rows(*offsets):
    return Rows(
        list(offsets),
        [b"k%d" % o for o in offsets],
        [b"v%d" % o for o in offsets],
        [o * 10 for o in offsets],
        [None if o % 2 else [("h", b"x")] for o in offsets],
    )


@dataclass
class Sent:
    """What a consumer's message says of a record."""

    fields: dict[str, Any]
    kind: int = 1

    def key(self):
        return self.fields["key"]

    def value(self):
        return self.fields["value"]

    def headers(self):
        return self.fields["headers"]

    def timestamp(self):
        return self.kind, self.fields["timestamp"]


def sent(offset, kind=1, **other):
    headers = None if offset % 2 else [("h", b"x")]
    return Sent(
        {"key": b"k%d" % offset, "value": b"v%d" % offset, "headers": headers, "timestamp": offset * 10} | other, kind
    )


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_a_feed_gives_each_row_once_in_order_whatever_is_asked_for(most):
    feed = Feed([rows(1, 2, 3), rows(), rows(4), rows(5, 6, 9, 10, 11)])
    parts = list(feed.rest(most))
    assert [o for part in parts for o in part.offsets] == [1, 2, 3, 4, 5, 6, 9, 10, 11]
    assert max(map(len, parts)) <= most
    assert [part.keys[0] for part in parts] == [b"k%d" % part.offsets[0] for part in parts]


@pytest.mark.parametrize(("asked", "passed", "then"), [(0, 0, 1), (2, 2, 3), (3, 3, 4), (4, 4, None), (9, 4, None)])
def test_a_feed_passes_rows_over_and_says_how_many(asked, passed, then):
    feed = Feed([rows(1, 2, 3), rows(4)])
    assert feed.skip(asked) == passed
    after = feed.some(1)
    assert (after.offsets[0] if after else None) == then


def test_records_that_are_the_same_differ_in_nothing():
    assert first_difference(rows(1, 2), [sent(1), sent(2)]) is None


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("key", None),
        ("key", b""),
        ("value", None),
        ("value", b""),
        ("headers", None),
        ("headers", [("h", b"x"), ("h", b"x")]),
        ("headers", [("h", None)]),
        ("headers", [("h", b"")]),
        ("timestamp", 21),
        ("timestamp", -1),
    ],
)
def test_the_first_record_that_differs_is_named_with_what_differs(field, other):
    messages = [sent(1), sent(2, **{field: other}), sent(3, value=b"as well")]
    assert first_difference(rows(1, 2, 3), messages) == FieldDifference(1, field)


def test_a_record_with_a_broker_timestamp_differs_in_its_timestamp():
    assert first_difference(rows(1), [sent(1, kind=2)]) == FieldDifference(0, "timestamp")


def test_no_headers_and_an_empty_list_of_them_are_the_same():
    assert first_difference(rows(1), [sent(1, headers=[])]) is None

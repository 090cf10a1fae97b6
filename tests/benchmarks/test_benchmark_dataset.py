"""The shape of the benchmarks' data gives what it says, and the broker's story is read right."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.harness.shape import Shape
from benchmarks.systems.kafka_cleaner import CLEANED_LINE

SHAPES = [
    pytest.param(Shape(4_000, 0.2), id="steady state, 20 % dirty"),
    pytest.param(Shape(4_000, 0.001), id="a trickle"),
    pytest.param(Shape(4_000, 0.5), id="half of it dirty"),
    pytest.param(Shape(4_000, 0.5, first_clean=True), id="a first clean"),
    pytest.param(Shape(3_999, 0.3, partitions=3), id="other numbers"),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_key_has_one_record_and_every_update_supersedes_another_of_them(shape: Shape) -> None:
    keys = [shape.key_number(offset) for offset in range(shape.per_log)]
    first, updates = keys[: shape.keys_per_log], keys[shape.keys_per_log :]
    assert sorted(first) == list(range(shape.keys_per_log))
    assert len(set(updates)) == len(updates) == shape.updates_per_log
    assert set(updates) <= set(first)
    assert len(Counter(keys)) * shape.partitions == shape.survivors


@pytest.mark.parametrize("shape", SHAPES)
def test_survivors_and_updates_are_all_records(shape: Shape) -> None:
    assert shape.survivors + shape.updates_per_log * shape.partitions == shape.total
    assert shape.total <= shape.records < shape.total + shape.partitions


def test_in_a_steady_state_the_updates_are_dirty_and_in_a_first_clean_everything() -> None:
    assert Shape(4_000, 0.2).first_dirty_offset == 800
    assert Shape(4_000, 0.2, first_clean=True).first_dirty_offset == 0


def test_keys_are_unordered_so_that_the_bounds_of_a_file_exclude_nothing() -> None:
    shape = Shape(40_000, 0.2)
    part = [shape.key_number(offset) for offset in range(800)]
    assert part != sorted(part)
    assert max(part) - min(part) > shape.keys_per_log * 0.9


def test_the_sql_of_a_key_is_the_function() -> None:
    shape = Shape(4_000, 0.2)
    for updates, offset in ((False, 799), (True, 900)):
        sql = shape.key_expression(updates).replace("L", "")
        assert eval(sql, {"id": offset}) == shape.key_number(offset)


def test_every_shape_has_a_topic_of_its_own() -> None:
    shapes = [row.values[0] for row in SHAPES] + [Shape(4_000, 0.2, tombstone_share=0.05), Shape(8_000, 0.2)]
    assert len({shape.topic for shape in shapes}) == len(shapes)


@pytest.mark.parametrize(
    ("records", "share", "message"),
    [
        pytest.param(4_000, 0.6, "at most 0.5", id="a key has two records at most"),
        pytest.param(4_000, 0.0, "above 0", id="nothing to clean"),
        pytest.param(100, 0.001, "too few", id="no update in a log"),
    ],
)
def test_a_shape_that_cannot_be_made_is_refused(records: int, share: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Shape(records, share)


def test_log_seconds_and_messages_are_parsed_from_the_brokers_log_line() -> None:
    said = (
        "INFO [kafka-log-cleaner-thread-0]: \n\tLog cleaner thread 0 cleaned log sample-3 (dirty section = [0, 25000])\n"
        "\t6.4 MB of log processed in 1,000.2 seconds (61.4 MB/sec).\n\tIndexed 6.4 MB in 0.0 seconds\n"
        "\tStart size: 6.4 MB (25,000 messages)\n\tEnd size: 3.2 MB (12,501 messages)\n\t49.9% size reduction"
    )
    assert CLEANED_LINE.findall(said) == [("sample", "3", "0", "25000", "6.4", "1,000.2", "12,501")]

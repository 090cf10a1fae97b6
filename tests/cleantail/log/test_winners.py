"""Which record of a key wins, over columns: the same as the rules said one record at a time (semantics.md 1.4, 2)."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.log.winners import (
    Versions,
    beaten,
    best_ranks,
    no_versions,
    ranks_of,
    record_ranks,
    remembered_units,
    versions_of,
    worst_ranks,
)

NOW_MS = 1_700_000_000_000
HEADER_LIST = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
BY_TIME = KafkaConfigs(compaction_strategy="timestamp", message_timestamp_after_max_ms=1000)
LAST = KafkaConfigs(compaction_strategy="header", compaction_strategy_header="v")
FIRST = LAST.model_copy(update={"cleantail_header_occurrence": "first"})
BY_ORDER = KafkaConfigs(compaction_strategy="order")
LONGS = st.one_of(st.integers(-3, 3), st.sampled_from([-(1 << 63), (1 << 63) - 1]))
RECORDS = st.lists(st.tuples(st.integers(0, 4), st.none() | LONGS), max_size=40)


def versions(of_records):
    has = np.array([version is not None for _, version in of_records], np.bool_)
    numbers = np.array([version or 0 for _, version in of_records], np.int64)
    return Versions(has, numbers, np.zeros(len(has), np.bool_))


def rank(offset, version):
    return (version is not None, version or 0, offset)


def ranked(records):
    """Key -> the ranks of its records, one by one."""
    ranks = {}
    for offset, (key, version) in enumerate(records):
        ranks.setdefault(key, []).append(rank(offset, version))
    return ranks


def as_tuples(ranks):
    rows = zip(ranks.has.tolist(), ranks.version.tolist(), ranks.offset.tolist(), strict=True)
    return {key: (has, version if has else 0, offset) for key, (has, version, offset) in enumerate(rows) if offset >= 0}


@given(RECORDS)
def test_the_best_and_the_worst_of_each_key_are_those_of_the_rules(records):
    keys, offsets = np.array([key for key, _ in records], np.int64), np.arange(len(records))
    expected = ranked(records)
    best, worst = (rule(keys, versions(records), offsets, 5) for rule in (best_ranks, worst_ranks))
    assert as_tuples(best) == {key: max(ranks) for key, ranks in expected.items()}
    assert as_tuples(worst) == {key: min(ranks) for key, ranks in expected.items()}
    assert best.known.tolist() == worst.known.tolist() == [key in expected for key in range(5)]


@given(RECORDS, RECORDS)
def test_a_rank_is_beaten_by_a_higher_one_of_a_key_that_both_know(records, others):
    best = [
        best_ranks(np.array([k for k, _ in rows], np.int64), versions(rows), np.arange(len(rows)), 5)
        for rows in (records, others)
    ]
    ours, theirs = (ranked(rows) for rows in (records, others))
    expected = [k in ours and k in theirs and max(theirs[k]) > max(ours[k]) for k in range(5)]
    assert beaten(*best).tolist() == expected


def test_by_offset_the_highest_offset_wins():
    best = best_ranks(np.array([0, 1, 0]), no_versions(3), np.array([7, 3, 9]), 3)
    assert best.offset.tolist() == [9, 3, -1]
    assert ranks_of(np.array([1, 1]), best).offset.tolist() == [3, 3]
    assert record_ranks(no_versions(1), np.array([5])).offset.tolist() == [5]


@pytest.mark.parametrize(("after_ms", "has"), [(1000, True), (1001, False)])
def test_a_timestamp_beyond_the_bound_is_no_version(after_ms, has):
    timestamps = pa.array([(NOW_MS + after_ms) * 1000], pa.timestamp("us", "UTC"))
    found = versions_of(timestamps, None, 1, BY_TIME, NOW_MS)
    assert (found.has.tolist(), found.unusable.tolist()) == ([has], [not has])
    assert found.version.tolist() == [(NOW_MS + after_ms) * 1000 if has else 0]


def test_a_timestamp_counts_in_microseconds_and_a_missing_one_is_no_version():
    early = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_900, datetime.UTC)
    found = versions_of(pa.array([early, None], pa.timestamp("us", "UTC")), None, 2, BY_TIME, NOW_MS)
    assert found.version.tolist() == [-100, 0]
    assert (found.has.tolist(), found.unusable.tolist()) == ([True, False], [False, False])


NAMES, VALUES = (
    st.sampled_from(["v", "w"]),
    st.none() | st.sampled_from([b"", b"abc"]) | LONGS.map(lambda number: number.to_bytes(8, "big", signed=True)),
)
HEADERS = st.none() | st.lists(st.fixed_dictionaries({"key": NAMES, "value": VALUES}), max_size=4)


@given(st.lists(HEADERS, max_size=12), st.sampled_from([LAST, FIRST]))
def test_a_header_of_eight_bytes_is_the_version_and_any_other_counts_as_missing(records, configs):
    found = versions_of(None, pa.array(records, HEADER_LIST), len(records), configs, NOW_MS)
    for place, headers in enumerate(records):
        values = [h["value"] for h in headers or () if h["key"] == "v"]
        chosen = values[-1 if configs is LAST else 0] if values else None
        usable = chosen is not None and len(chosen) == 8
        assert found.has[place] == usable
        assert found.unusable[place] == (bool(values) and not usable)
        assert found.version[place] == (int.from_bytes(chosen, "big", signed=True) if usable else 0)


def test_by_order_the_column_is_the_version_and_null_is_none():
    found = versions_of(None, None, 3, BY_ORDER, NOW_MS, pa.array([5, None, -7], pa.int64()))
    assert (found.has.tolist(), found.version.tolist()) == ([True, False, True], [5, 0, -7])
    assert found.unusable.tolist() == [False] * 3


COLUMNS = {
    "timestamp": pa.array([NOW_MS * 1000], pa.timestamp("us", "UTC")),
    "header": pa.array([[{"key": "v", "value": bytes(7) + b"\x03"}]], HEADER_LIST),
    "order": pa.array([5], pa.int64()),
}


@pytest.mark.parametrize(
    ("configs", "version"),
    [(KafkaConfigs(compaction_strategy_header="v"), None), (BY_TIME, NOW_MS * 1000), (LAST, 3), (BY_ORDER, 5)],
    ids=["offset", "timestamp", "header", "order"],
)
def test_each_strategy_goes_by_its_own_column_alone(configs, version):
    strategy = configs.compaction_strategy
    for columns in (COLUMNS, {strategy: COLUMNS.get(strategy)}, {k: v for k, v in COLUMNS.items() if k != strategy}):
        timestamps, headers, orders = (columns.get(name) for name in ("timestamp", "header", "order"))
        found = versions_of(timestamps, headers, 1, configs, NOW_MS, orders)
        has = strategy in columns and version is not None
        assert (found.has.tolist(), found.version.tolist()) == ([has], [version if has else 0])


def test_headers_of_a_part_of_a_column_are_read_from_where_it_begins():
    records = [[{"key": "v", "value": number.to_bytes(8, "big")}] for number in range(6)]
    part = pa.array(records, HEADER_LIST)[2:5]
    assert versions_of(None, part, 3, LAST, NOW_MS).version.tolist() == [2, 3, 4]


def test_a_header_without_a_name_is_not_the_one_that_is_asked_for():
    unnamed = [{"key": None, "value": bytes(8)}]
    found = versions_of(None, pa.array([unnamed], HEADER_LIST), 1, LAST, NOW_MS)
    assert (found.has.tolist(), found.unusable.tolist()) == ([False], [False])


def test_the_first_offset_and_the_extreme_versions_rank_like_any_other():
    lowest, highest = -(1 << 63), (1 << 63) - 1
    keys, offsets = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 3, 2, 0])
    ranks = versions([(0, lowest), (0, None), (1, highest), (1, highest), (2, None)])
    best, worst = best_ranks(keys, ranks, offsets, 4), worst_ranks(keys, ranks, offsets, 4)
    assert as_tuples(best) == {0: (True, lowest, 0), 1: (True, highest, 3), 2: (False, 0, 0)}
    assert as_tuples(worst) == {0: (False, 0, 1), 1: (True, highest, 2), 2: (False, 0, 0)}
    assert best.known.tolist() == worst.known.tolist() == [True, True, True, False]


@pytest.mark.parametrize(
    ("configs", "units"),
    [
        (KafkaConfigs(), {"offset": 1}),
        (BY_TIME, {"timestamp in microseconds": 1, "timestamp": 1000}),
        (FIRST, {"header first v": 1}),
        (BY_ORDER, {"order": 1}),
    ],
    ids=["offset", "timestamp", "header", "order"],
)
def test_a_remembered_version_compares_only_with_those_of_its_strategy(configs, units):
    """Of the same header's first and last value each is a strategy of its own; timestamps were in milliseconds once."""
    assert remembered_units(configs) == units


def test_by_offset_no_record_has_a_version():
    assert not versions_of(None, None, 3, KafkaConfigs(), NOW_MS).has.any()

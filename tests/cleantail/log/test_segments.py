"""Virtual segments: live bytes, rolling, cutting, and which one is active (semantics.md 3.1)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleantail.log.segments import (
    NO_TIMESTAMP_MS,
    Segment,
    is_active,
    once,
    registered_twice_note,
    roll_segments,
    split,
    twice_text,
)
from tests.cleantail.kernel_builders import data_file, segment

LARGE = 1 << 40


def rolled(*files, segment_bytes=LARGE, segment_ms=LARGE):
    return roll_segments(files, segment_bytes, segment_ms)


def spans(segments):
    return [(s.base_offset, s.end_offset_exclusive) for s in segments]


# ---- data files


@pytest.mark.parametrize(
    ("records", "deleted", "live_records", "live_bytes", "share"),
    [
        pytest.param(10, 0, 10, 100, 0.0, id="all live"),
        pytest.param(10, 3, 7, 70, 0.3, id="some deleted"),
        pytest.param(10, 10, 0, 0, 1.0, id="all deleted"),
        pytest.param(3, 1, 2, 66, 1 / 3, id="bytes are rounded down"),
        pytest.param(1000, 999, 1, 1, 0.999, id="but not to none"),
        pytest.param(10, 11, 0, 0, 1.1, id="more deletes than records"),
        pytest.param(0, 0, 0, 0, 0.0, id="no records"),
    ],
)
def test_bytes_count_by_the_live_fraction(records, deleted, live_records, live_bytes, share):
    file = data_file(0, 9, records=records, deleted_records=deleted, size_bytes=100)
    assert (file.live_records, file.live_bytes, file.deleted_share) == (live_records, live_bytes, share)


@pytest.mark.parametrize(
    ("start", "end", "records"),
    [
        pytest.param(10, 20, 6, id="all of the file"),
        pytest.param(0, 100, 6, id="and more"),
        pytest.param(18, 100, 2, id="from within"),
        pytest.param(0, 13, 3, id="up to within"),
        pytest.param(11, 19, 6, id="most of it, with gaps"),
        pytest.param(20, 30, 0, id="above"),
        pytest.param(30, 40, 0, id="far above"),
        pytest.param(0, 10, 0, id="below"),
    ],
)
def test_bounds_limit_how_many_records_a_file_has_between_two_offsets(start, end, records):
    file = data_file(10, 19, records=6)
    assert file.records_between(start, end) == records
    assert file.bytes_between(start, end) == file.live_bytes * records // 6


def test_a_file_with_copies_has_more_records_than_offsets():
    file = data_file(10, 12, records=6)
    assert [file.records_between(start, end) for start, end in [(10, 13), (0, 99), (11, 13), (10, 12)]] == [6, 6, 2, 2]


def test_a_file_without_records_has_no_bytes_anywhere():
    file = data_file(10, 19, records=0)
    assert (file.records_between(0, 99), file.bytes_between(0, 99)) == (0, 0)


def test_a_file_whose_records_are_all_deleted_has_no_bytes_anywhere():
    assert data_file(10, 19, records=6, deleted_records=6).bytes_between(0, 100) == 0


def test_what_is_deleted_of_a_shared_file_is_spread_over_its_logs_without_losing_any():
    assert split(7, [3, 2]) == [4, 3]
    assert split(1, [1, 1, 1]) == [0, 0, 1]
    assert sum(split(100, [33, 33, 1])) == 100
    assert split(0, []) == []
    assert split(5, [0, 0]) == [0, 0]


# ---- one segment


def test_a_segment_of_one_file_ends_one_past_its_last_offset():
    file = data_file(5, 9, size_bytes=80, deleted_records=1, min_timestamp_ms=3, max_timestamp_ms=7)
    assert Segment.of(file) == Segment(5, 10, 64, 3, 7, 1)


def test_a_joined_file_adds_bytes_and_keeps_the_first_timestamp():
    joined = segment(0, 5, first_timestamp_ms=50, largest_timestamp_ms=60).joined(
        data_file(5, 9, size_bytes=30, min_timestamp_ms=10, max_timestamp_ms=70)
    )
    assert joined == Segment(0, 10, 130, 50, 70, 2)


def test_a_joined_file_never_lowers_the_end_or_the_largest_timestamp():
    joined = segment(0, 50, first_timestamp_ms=1, largest_timestamp_ms=60).joined(data_file(5, 9, max_timestamp_ms=2))
    assert (joined.end_offset_exclusive, joined.largest_timestamp_ms) == (50, 60)


@pytest.mark.parametrize(
    ("changes", "first_ms", "largest_ms"),
    [
        pytest.param({"min_timestamp_ms": 40, "max_timestamp_ms": 41, "appended_ms": 90}, 40, 41, id="timestamps"),
        pytest.param({"min_timestamp_ms": NO_TIMESTAMP_MS, "appended_ms": 90}, 90, 90, id="none"),
        pytest.param({"min_timestamp_ms": -5, "appended_ms": 90}, 90, 90, id="before_1970"),
        pytest.param(
            {"min_timestamp_ms": NO_TIMESTAMP_MS, "appended_ms": 90, "append_kept": False},
            NO_TIMESTAMP_MS,
            90,
            id="none_and_the_append_has_expired",
        ),
    ],
)
def test_a_file_without_timestamps_has_the_time_of_its_append(changes, first_ms, largest_ms):
    made = Segment.of(data_file(0, 9, **changes))
    assert (made.first_timestamp_ms, made.largest_timestamp_ms) == (first_ms, largest_ms)


def test_the_first_timestamp_is_that_of_the_first_file():
    without = data_file(0, 4, min_timestamp_ms=NO_TIMESTAMP_MS, appended_ms=90)
    joined = Segment.of(without).joined(data_file(5, 9, min_timestamp_ms=40, max_timestamp_ms=41))
    assert (joined.first_timestamp_ms, joined.largest_timestamp_ms) == (90, 90)


def test_zero_is_a_timestamp():
    joined = segment(0, 5, first_timestamp_ms=0).joined(data_file(5, 9, min_timestamp_ms=40, max_timestamp_ms=41))
    assert joined.first_timestamp_ms == 0


# ---- rolling


def test_no_files_are_no_segments():
    assert rolled() == ()


@pytest.mark.parametrize(
    ("segment_bytes", "expected"),
    [
        pytest.param(200, [(0, 20)], id="sum == segment.bytes: no roll"),
        pytest.param(199, [(0, 10), (10, 20)], id="sum > segment.bytes: roll"),
    ],
)
def test_a_segment_rolls_when_the_sum_would_pass_segment_bytes(segment_bytes, expected):
    assert spans(rolled(data_file(0, 9), data_file(10, 19), segment_bytes=segment_bytes)) == expected


def test_the_sum_counts_live_bytes_of_both_files():
    half = {"size_bytes": 200, "deleted_records": 5}
    assert len(rolled(data_file(0, 9, **half), data_file(10, 19, **half), segment_bytes=200)) == 1
    assert len(rolled(data_file(0, 9, **half), data_file(10, 19, **half), segment_bytes=199)) == 2


def test_a_file_larger_than_segment_bytes_is_a_segment():
    assert spans(rolled(data_file(0, 9), data_file(10, 19), segment_bytes=1)) == [(0, 10), (10, 20)]


@pytest.mark.parametrize(
    ("segment_ms", "expected"),
    [
        pytest.param(60, [(0, 20)], id="span == segment.ms: no roll"),
        pytest.param(59, [(0, 10), (10, 20)], id="span > segment.ms: roll"),
    ],
)
def test_a_segment_rolls_when_its_span_passes_segment_ms(segment_ms, expected):
    first = data_file(0, 9, min_timestamp_ms=100, max_timestamp_ms=130)
    second = data_file(10, 19, min_timestamp_ms=140, max_timestamp_ms=160)
    assert spans(rolled(first, second, segment_ms=segment_ms)) == expected


def appended(offset, at_ms, kept=True):
    return data_file(offset, min_timestamp_ms=NO_TIMESTAMP_MS, appended_ms=at_ms, append_kept=kept)


def test_files_without_timestamps_roll_by_the_times_of_their_appends():
    files = [appended(n, ms) for n, ms in enumerate((100, 110, 111))]
    assert spans(rolled(*files, segment_ms=10)) == [(0, 2), (2, 3)]


def test_a_file_whose_append_has_expired_begins_no_active_segment_and_lends_its_own_to_none():
    """However often snapshots expire, only records of kept snapshots can be in the active segment."""
    files = [appended(0, 200, kept=False), appended(1, 200, kept=False), appended(2, 200), appended(3, 205)]
    segments = rolled(*files, segment_ms=10)
    assert spans(segments) == [(0, 2), (2, 4)]
    assert [is_active(s, 206, 10) for s in segments] == [False, True]
    assert not is_active(segments[1], 210, 10)
    assert not is_active(segments[0], 206, LARGE)


def test_either_reason_is_enough_to_roll():
    old, new = data_file(0, 9, min_timestamp_ms=0), data_file(10, 19, min_timestamp_ms=11)
    assert len(rolled(old, new, segment_bytes=1000, segment_ms=10)) == 2
    assert len(rolled(old, new, segment_bytes=199, segment_ms=11)) == 2


def test_files_are_taken_in_offset_order_whatever_order_they_come_in():
    files = [data_file(20, 29), data_file(0, 9), data_file(10, 19)]
    assert rolled(*files, segment_bytes=100) == rolled(*sorted(files, key=lambda f: f.path), segment_bytes=100)


def test_files_of_one_base_are_one_segment_whatever_their_size():
    """Two segments of one base could not be distinguished."""
    files = data_file(0, 9, path="a"), data_file(0, 9, path="b", min_timestamp_ms=99)
    assert rolled(*files, segment_bytes=1, segment_ms=1) == (Segment(0, 10, 200, 0, 99, 2),)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["as listed", "reversed"])
def test_of_files_with_one_first_offset_the_shorter_one_is_first(order):
    files = [data_file(0, 4, min_timestamp_ms=5), data_file(0, 9, min_timestamp_ms=7)]
    assert rolled(*(files[i] for i in order))[0].first_timestamp_ms == 5


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["as listed", "reversed"])
def test_of_files_with_the_same_offsets_the_path_decides(order):
    files = [data_file(0, 9, path="a", min_timestamp_ms=5), data_file(0, 9, path="b", min_timestamp_ms=7)]
    assert rolled(*(files[i] for i in order))[0].first_timestamp_ms == 5


# ---- cutting


def test_a_gap_of_offsets_belongs_to_no_segment():
    assert spans(rolled(data_file(0, 9), data_file(7_206_178), segment_bytes=100)) == [(0, 10), (7_206_178, 7_206_179)]


def test_a_file_that_reaches_over_the_next_base_is_cut_there():
    backfill = data_file(0, 25, min_timestamp_ms=50, max_timestamp_ms=900)
    cut = rolled(backfill, data_file(10, 19), data_file(20, 29), segment_bytes=100)
    assert spans(cut) == [(0, 10), (10, 20), (20, 30)]
    assert [s.bytes for s in cut] == [100, 100, 100]


def test_a_cut_file_lends_its_largest_timestamp_to_the_segments_it_reaches():
    backfill = data_file(0, 25, min_timestamp_ms=50, max_timestamp_ms=900)
    later = [data_file(n, n + 9, min_timestamp_ms=60, max_timestamp_ms=60) for n in (10, 20, 30)]
    cut = rolled(backfill, *later, segment_bytes=100)
    assert [s.largest_timestamp_ms for s in cut] == [900, 900, 900, 60]
    assert [s.first_timestamp_ms for s in cut] == [50, 60, 60, 60]


def test_a_file_that_ends_at_the_next_base_lends_nothing():
    first = data_file(0, 9, min_timestamp_ms=900)
    cut = rolled(first, data_file(10, 19, min_timestamp_ms=5), segment_bytes=100)
    assert [s.largest_timestamp_ms for s in cut] == [900, 5]


def test_a_file_that_reaches_one_offset_over_the_next_base_lends_its_timestamp():
    first = data_file(0, 10, min_timestamp_ms=900)
    cut = rolled(first, data_file(10, 19, min_timestamp_ms=5), segment_bytes=100)
    assert [s.largest_timestamp_ms for s in cut] == [900, 900]


def test_the_reached_segment_keeps_its_own_larger_timestamp():
    cut = rolled(data_file(0, 15, min_timestamp_ms=5), data_file(10, 19, min_timestamp_ms=900), segment_bytes=100)
    assert [s.largest_timestamp_ms for s in cut] == [5, 900]


def test_the_last_segment_takes_over_the_end_of_a_file_that_reaches_beyond_it():
    assert spans(rolled(data_file(0, 99), data_file(10, 19), segment_bytes=100)) == [(0, 10), (10, 100)]


def test_a_file_that_reaches_over_several_segments_hands_its_end_on():
    files = data_file(0, 99), data_file(10, 19), data_file(20, 29)
    assert spans(rolled(*files, segment_bytes=100)) == [(0, 10), (10, 20), (20, 100)]


files_of_a_log = st.lists(
    st.builds(
        lambda lower, length, size, first, span: data_file(
            lower, lower + length, size_bytes=size, min_timestamp_ms=first, max_timestamp_ms=first + span
        ),
        st.integers(0, 40),
        st.integers(0, 30),
        st.integers(0, 300),
        st.integers(0, 100),
        st.integers(0, 50),
    ),
    max_size=12,
)


@given(files_of_a_log, st.integers(1, 600), st.integers(1, 150))
def test_segments_are_disjoint_ordered_and_lose_nothing(files, segment_bytes, segment_ms):
    segments = roll_segments(files, segment_bytes, segment_ms)
    edges = [offset for span in spans(segments) for offset in span]
    assert edges == sorted(edges)
    assert all(base < end for base, end in spans(segments))
    assert sum(s.bytes for s in segments) == sum(f.live_bytes for f in files)
    assert sum(s.files for s in segments) == len(files)
    assert max((s.end_offset_exclusive for s in segments), default=0) == max(
        (f.upper_offset + 1 for f in files), default=0
    )


@given(files_of_a_log, st.integers(1, 600), st.integers(1, 150))
def test_every_offset_of_a_file_lies_in_a_segment_that_knows_its_largest_timestamp(files, segment_bytes, segment_ms):
    """Else min.compaction.lag.ms would not protect it."""
    segments = roll_segments(files, segment_bytes, segment_ms)
    for file in files:
        for offset in (file.lower_offset, file.upper_offset):
            own = [s for s in segments if s.base_offset <= offset < s.end_offset_exclusive]
            assert len(own) == 1
            assert own[0].largest_timestamp_ms >= file.max_timestamp_ms


# ---- the active segment


@pytest.mark.parametrize(
    ("now_ms", "active"),
    [
        pytest.param(1_099, True, id="younger than segment.ms"),
        pytest.param(1_100, False, id="age == segment.ms"),
        pytest.param(1_101, False, id="older"),
        pytest.param(0, True, id="timestamps in the future"),
    ],
)
def test_the_newest_segment_is_active_until_it_is_as_old_as_segment_ms(now_ms, active):
    newest = segment(0, 10, first_timestamp_ms=1_000, largest_timestamp_ms=5_000)
    assert is_active(newest, now_ms, 100) is active


def test_no_timestamp_is_written_as_kafka_writes_it():
    """RecordBatch.NO_TIMESTAMP: manifests and inputs carry the number itself."""
    assert NO_TIMESTAMP_MS == -1


# ---- files that are registered more than once


def test_a_file_that_is_registered_twice_is_one_file_as_its_last_registration_is():
    first, other = data_file(0, 9, deleted_records=4, data_sequence_number=5), data_file(10, 19)
    again = replace(first, deleted_records=0, data_sequence_number=7)
    for files in ([first, other, again], [again, first, other]):
        assert sorted(once(files), key=lambda f: f.lower_offset) == [replace(again, registered=2), other]


def test_files_that_are_there_once_already_stay_as_they_are():
    files = once([data_file(0, 9), data_file(0, 9), data_file(10, 19)])
    assert once(files) == files


def test_of_a_file_of_several_logs_each_log_has_its_part_once():
    parts = [data_file(0, 9, path="a", partition=p) for p in (0, 1)]
    assert once([*parts, *parts, *parts]) == tuple(replace(part, registered=3) for part in parts)


@pytest.mark.parametrize(
    ("paths", "text"),
    [
        pytest.param([], "", id="none"),
        pytest.param(["s3://b/x/a.parquet"], "1 file is registered more than once: a.parquet", id="one"),
        pytest.param(["a", "b", "c"], "3 files are registered more than once: a, b, c", id="all are named"),
        pytest.param(["a", "b", "c", "d"], "4 files are registered more than once: a, b, c, …", id="some are"),
    ],
)
def test_files_registered_twice_are_counted_and_named(paths, text):
    assert twice_text(paths) == text
    assert registered_twice_note([data_file(0), *(data_file(1, path=p, registered=2) for p in paths)]) == text

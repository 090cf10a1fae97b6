"""Sections, bounds, bytes, ratio and lags of one log (semantics.md 1.2, 3.1, 3.5, and the cases of part 4)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleantail.codec import FORMAT
from cleantail.log.log_state import KeylessRecords, kept_log_start, log_figures
from cleantail.log.partition_state import Horizon, LeftOut, PartitionState, Rewritten
from cleantail.log.segments import NO_TIMESTAMP_MS
from cleantail.log.source_position import Forgotten, Gap, SourcePosition
from cleantail.log.triggers import decide
from tests.cleantail.kernel_builders import HOUR_MS, configs, data_file, log_state, resolved, segment


def blocks(*bases, size=10, **changes):
    """A file of `size` offsets at each base, at time 0."""
    return [data_file(base, base + size - 1, **changes) for base in bases]


def bounds(log):
    return log.first_dirty_offset, log.first_uncleanable_offset


# ---- bytes and ratio


@pytest.mark.parametrize(
    ("clean", "cleanable", "ratio"),
    [
        pytest.param(0, 0, 0.0, id="empty log: 0, never NaN"),
        pytest.param(100, 0, 0.0, id="all clean"),
        pytest.param(0, 100, 1.0, id="all cleanable"),
        pytest.param(300, 100, 0.25, id="a quarter"),
    ],
)
def test_the_dirty_ratio_is_cleanable_over_clean_and_cleanable(clean, cleanable, ratio):
    assert log_state(clean_bytes=clean, cleanable_bytes=cleanable).dirty_ratio == ratio


def test_case_8_active_and_uncleanable_segments_are_in_neither_sum():
    """2 clean, 2 cleanable, 2 uncleanable segments and the active one."""
    files = [*blocks(0, 10, 20, 30), *blocks(40, 50, min_timestamp_ms=9_000), *blocks(60, min_timestamp_ms=9_500)]
    log = resolved(
        [replace(f, size_bytes=size) for f, size in zip(files, (1, 2, 30, 70, 400, 500, 6_000), strict=True)],
        state=PartitionState(checkpoint=20),
        now_ms=10_000,
        segment_bytes=14,
        segment_ms=5_000,
        min_compaction_lag_ms=2_000,
    )
    assert bounds(log) == (20, 40)
    assert (log.clean_bytes, log.cleanable_bytes, log.uncleanable_bytes) == (3, 100, 6_900)
    assert log.dirty_ratio == 100 / 103
    assert (log.total_bytes, log.active_base_offset) == (7_003, 60)


def test_a_segment_across_the_clean_point_counts_as_clean_and_as_cleanable():
    """As in Kafka: logSegments(from, to) takes in the segment that holds `from`."""
    log = resolved(blocks(0, 10, 20), state=PartitionState(checkpoint=15), now_ms=10, segment_bytes=14, segment_ms=10)
    assert (log.clean_bytes, log.cleanable_bytes) == (200, 200)


def test_a_segment_that_ends_at_the_clean_point_is_only_clean():
    log = resolved(blocks(0, 10), state=PartitionState(checkpoint=10), now_ms=10, segment_bytes=14, segment_ms=10)
    assert (log.clean_bytes, log.cleanable_bytes) == (100, 100)


def test_bytes_are_live_bytes_and_records_live_records():
    log = resolved(blocks(0, deleted_records=4), now_ms=10, segment_ms=10)
    assert (log.cleanable_bytes, log.total_bytes, log.records) == (60, 60, 6)


# ---- case 7 and the bounds


def test_case_7_nothing_at_or_above_the_lower_bound_is_cleanable():
    """Whole segments only: the one with the young record keeps all its records."""
    files = [*blocks(0, 10), *blocks(20, min_timestamp_ms=950), *blocks(30, min_timestamp_ms=0)]
    log = resolved(files, now_ms=1_000, segment_bytes=14, segment_ms=1, min_compaction_lag_ms=100)
    assert bounds(log) == (0, 20)
    assert log.cleanable_bytes == 200


@pytest.mark.parametrize(
    ("largest_ms", "bound"),
    [
        pytest.param(899, 20, id="older than the lag"),
        pytest.param(900, 20, id="timestamp == now - min lag: cleanable"),
        pytest.param(901, 10, id="younger than the lag"),
    ],
)
def test_the_lag_is_measured_by_the_largest_timestamp_of_a_segment(largest_ms, bound):
    files = [*blocks(0), *blocks(10, min_timestamp_ms=0, max_timestamp_ms=largest_ms)]
    log = resolved(files, now_ms=1_000, segment_bytes=14, segment_ms=1, min_compaction_lag_ms=100)
    assert log.first_uncleanable_offset == bound


@pytest.mark.parametrize(
    ("lag_ms", "bound"), [pytest.param(0, 20, id="no lag"), pytest.param(1, 10, id="a lag of 1 ms")]
)
def test_without_a_lag_future_timestamps_hold_nothing_back(lag_ms, bound):
    files = [*blocks(0), *blocks(10, min_timestamp_ms=0, max_timestamp_ms=5_000)]
    log = resolved(files, now_ms=1_000, segment_bytes=14, segment_ms=1, min_compaction_lag_ms=lag_ms)
    assert log.first_uncleanable_offset == bound


def test_the_first_young_segment_is_the_bound_also_when_older_ones_follow():
    files = [*blocks(0), *blocks(10, min_timestamp_ms=990), *blocks(20), *blocks(30, min_timestamp_ms=995)]
    log = resolved(files, now_ms=1_000, segment_bytes=14, segment_ms=1, min_compaction_lag_ms=100)
    assert log.first_uncleanable_offset == 10


def test_a_young_segment_below_the_clean_point_holds_nothing_back():
    files = [*blocks(0, min_timestamp_ms=990), *blocks(10)]
    log = resolved(
        files,
        state=PartitionState(checkpoint=10),
        now_ms=1_000,
        segment_bytes=14,
        segment_ms=1,
        min_compaction_lag_ms=100,
    )
    assert bounds(log) == (10, 20)


def test_the_bound_is_never_below_the_clean_point():
    """A young segment across the first dirty offset: what is clean stays clean."""
    files = [*blocks(0, min_timestamp_ms=990)]
    log = resolved(files, state=PartitionState(checkpoint=5), now_ms=1_000, segment_ms=1, min_compaction_lag_ms=100)
    assert bounds(log) == (5, 5)
    assert (log.cleanable_bytes, log.dirty_ratio) == (0, 0.0)


@pytest.mark.parametrize(
    ("now_ms", "active", "bound"),
    [
        pytest.param(109, 10, 10, id="younger than segment.ms: active"),
        pytest.param(110, None, 20, id="as old as segment.ms: not active"),
    ],
)
def test_the_active_segment_is_never_cleaned(now_ms, active, bound):
    files = [*blocks(0), *blocks(10, min_timestamp_ms=100)]
    log = resolved(files, now_ms=now_ms, segment_bytes=14, segment_ms=10)
    assert (log.active_base_offset, log.first_uncleanable_offset) == (active, bound)


def test_the_longest_lag_shortens_segment_ms():
    log = resolved(blocks(0, min_timestamp_ms=100), now_ms=110, segment_ms=1_000, max_compaction_lag_ms=10)
    assert (log.active_base_offset, log.first_uncleanable_offset) == (None, 10)


def test_segments_roll_by_the_effective_segment_ms():
    files = [data_file(0, 9), data_file(10, 19, min_timestamp_ms=11)]
    log = resolved(files, now_ms=1_000, segment_ms=1_000, max_compaction_lag_ms=10)
    assert [s.base_offset for s in log.segments] == [0, 10]


def test_only_the_newest_segment_is_active():
    log = resolved(blocks(0, 10, 20, min_timestamp_ms=100), now_ms=100, segment_bytes=14)
    assert (log.active_base_offset, log.uncleanable_bytes, log.cleanable_bytes) == (20, 100, 200)


@pytest.mark.parametrize(
    "files",
    [
        pytest.param([data_file(0), data_file(7_206_178)], id="7 206 178"),
        pytest.param([data_file(0), data_file(50)], id="50"),
    ],
)
def test_case_9_over_a_gap_of_offsets_the_bound_is_the_active_base(files):
    log = resolved(files, segment_bytes=100)
    assert bounds(log) == (0, files[-1].lower_offset)
    assert log.cleanable_bytes == 100


# ---- checkpoints


@pytest.mark.parametrize(
    ("checkpoint", "first_dirty", "repaired", "warning"),
    [
        pytest.param(None, 10, False, None, id="none: log start"),
        pytest.param(
            0,
            10,
            True,
            "first dirty offset 0 is below the log start 10: reset to the log start",
            id="case 13: below the log start",
        ),
        pytest.param(
            9, 10, True, "first dirty offset 9 is below the log start 10: reset to the log start", id="just below"
        ),
        pytest.param(10, 10, False, None, id="at the log start"),
        pytest.param(15, 15, False, None, id="inside"),
        pytest.param(30, 30, False, None, id="at the log end"),
        pytest.param(
            31, 10, True, "first dirty offset 31 is above the log end 30: reset to the log start 10", id="just above"
        ),
        pytest.param(
            200,
            10,
            True,
            "first dirty offset 200 is above the log end 30: reset to the log start 10",
            id="case 13: above the log end",
        ),
    ],
)
def test_case_13_a_checkpoint_outside_the_log_is_reset_to_the_log_start(checkpoint, first_dirty, repaired, warning):
    log = resolved(blocks(10, 20), state=PartitionState(checkpoint=checkpoint), now_ms=10)
    assert (log.first_dirty_offset, log.repaired) == (first_dirty, repaired)
    assert log.warnings == ((warning,) if warning else ())
    assert log.checkpoint == checkpoint


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(PartitionState(log_start_offset=25), id="log start above the active base"),
        pytest.param(PartitionState(checkpoint=25), id="checkpoint above the active base"),
        pytest.param(PartitionState(checkpoint=30), id="checkpoint at the log end"),
        pytest.param(PartitionState(checkpoint=20), id="checkpoint at the active base"),
    ],
)
def test_case_14_above_the_active_base_nothing_is_cleanable_and_nothing_is_wrong(state):
    log = resolved(blocks(0, 10, 20), state=state, segment_bytes=14, cleanup_policy="compact,delete")
    assert log.first_uncleanable_offset == log.first_dirty_offset >= log.active_base_offset == 20
    assert (log.cleanable_bytes, log.dirty_ratio, log.warnings) == (0, 0.0, ())
    assert not decide(log, configs(), 0, force=True).compact


# ---- log start and log end


@pytest.mark.parametrize(
    ("known", "policy", "expected"),
    [
        pytest.param(None, "compact", 10, id="first sight: the lowest offset"),
        pytest.param(5, "compact", 5, id="the first records were compacted away"),
        pytest.param(15, "compact", 10, id="a backfill lowers it"),
        pytest.param(15, "compact,delete", 15, id="retention moved it for good"),
        pytest.param(5, "delete", 5, id="with delete as known"),
    ],
)
def test_the_log_start(known, policy, expected):
    log = resolved(blocks(10, 20), state=PartitionState(log_start_offset=known), cleanup_policy=policy)
    assert log.log_start_offset == expected


@pytest.mark.parametrize(
    ("retained_from", "log_start", "policy", "kept"),
    [
        (None, None, "compact,delete", 0),
        (None, 5, "compact", 0),
        (None, 5, "delete", 5),
        (3, 5, "compact", 3),
        (7, 5, "compact,delete", 7),
    ],
)
def test_the_log_start_that_retention_has_set_is_kept(retained_from, log_start, policy, kept):
    state = PartitionState(log_start_offset=log_start, retained_from=retained_from)
    assert kept_log_start(state, configs(cleanup_policy=policy)) == kept


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_the_log_start_that_retention_left_is_lowered_by_no_late_record_whatever_the_policy_is_now(policy):
    state = PartitionState(log_start_offset=10, retained_from=10)
    assert resolved([data_file(3), *blocks(10)], state=state, cleanup_policy=policy).log_start_offset == 10


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_file_without_live_records_does_not_move_the_log_start_back(policy):
    dead = data_file(0, 9, deleted_records=10)
    log = resolved([dead, *blocks(10)], state=PartitionState(log_start_offset=10), cleanup_policy=policy)
    assert (log.log_start_offset, [s.base_offset for s in log.segments]) == (10, [10])


def test_a_file_without_live_records_still_tells_the_log_end():
    log = resolved([*blocks(0), data_file(10, 19, deleted_records=10)], now_ms=10, segment_ms=10)
    assert (log.log_end_offset, log.first_uncleanable_offset, len(log.segments)) == (20, 20, 1)


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_a_log_without_files_keeps_its_log_start(policy):
    assert resolved([], state=PartitionState(log_start_offset=15), cleanup_policy=policy).log_start_offset == 15


@pytest.mark.parametrize(("known", "expected"), [(None, 20), (19, 20), (20, 20), (35, 35)])
def test_the_log_end_outlives_its_last_record(known, expected):
    assert resolved(blocks(0, 10), state=PartitionState(log_end_offset=known)).log_end_offset == expected


# ---- late records


@pytest.mark.parametrize(
    ("arrived", "late", "first_dirty", "warning"),
    [
        pytest.param([], None, 20, None, id="nothing arrived"),
        pytest.param([30], None, 20, None, id="only at the head"),
        pytest.param([20], None, 20, None, id="at the first dirty offset"),
        pytest.param(
            [19], 19, 19, "records arrived below the first dirty offset 20: it moves back to 19", id="just below"
        ),
        pytest.param(
            [30, 7, 12],
            7,
            7,
            "records arrived below the first dirty offset 20: it moves back to 7",
            id="the lowest counts",
        ),
    ],
)
def test_late_records_move_the_clean_point_back_to_the_lowest_of_them(arrived, late, first_dirty, warning):
    files = [*blocks(0, 10, 20), *(data_file(offset) for offset in arrived)]
    log = resolved(files, state=PartitionState(checkpoint=20), arrived=files[3:], now_ms=10)
    assert (log.late_offset, log.first_dirty_offset) == (late, first_dirty)
    assert log.warnings == ((warning,) if warning else ())
    assert not log.repaired


@pytest.mark.parametrize(
    ("last", "later", "first_dirty"),
    [
        pytest.param([], [], 50, id="the-file-is-gone"),
        pytest.param([data_file(46, 49, records=4, deleted_records=4)], [], 50, id="an-erasure-has-hidden-all-records"),
        pytest.param([data_file(46, 49, records=4, deleted_records=3)], [], 46, id="one-record-is-left"),
        pytest.param([], [data_file(50)], 46, id="a-new-record"),
    ],
)
def test_a_log_without_a_dirty_record_is_clean_up_to_its_end(last, later, first_dirty):
    state = PartitionState(checkpoint=46, log_end_offset=50)
    log = resolved([*blocks(0, 10, 20), *last, *later], state=state, arrived=later, now_ms=10)
    assert (log.first_dirty_offset, log.log_end_offset) == (first_dirty, 51 if later else 50)


def test_before_the_first_round_no_record_is_late():
    files = blocks(0)
    log = resolved(files, arrived=files)
    assert (log.late_offset, log.first_dirty_offset) == (None, 0)


def test_records_below_a_log_start_that_retention_moved_bring_the_clean_point_no_lower_than_it():
    files = blocks(0, 10, 20)
    state = PartitionState(checkpoint=20, log_start_offset=15)
    log = resolved(files, state=state, arrived=files[:1], cleanup_policy="compact,delete")
    assert (log.late_offset, log.first_dirty_offset, log.log_start_offset) == (0, 15, 15)


# ---- lags


@pytest.mark.parametrize(
    ("stamps", "checkpoint", "earliest"),
    [
        pytest.param((70, 50, 60), None, 50, id="the smallest"),
        pytest.param((50, 70, 60), 10, 60, id="only of the dirty part"),
        pytest.param((50, 70, 60), 9, 50, id="a segment across the first dirty offset is dirty"),
        pytest.param((0, 70, 60), None, 60, id="zero is no timestamp here"),
        pytest.param((1, 70, 60), None, 1, id="one is"),
        pytest.param((NO_TIMESTAMP_MS,) * 3, None, None, id="none has one"),
        pytest.param((50, 70, 60), 30, None, id="nothing is dirty"),
    ],
)
def test_the_earliest_dirty_timestamp_is_the_smallest_positive_first_timestamp(stamps, checkpoint, earliest):
    files = [data_file(10 * n, 10 * n + 9, min_timestamp_ms=ms) for n, ms in enumerate(stamps)]
    files.append(data_file(30, 39, min_timestamp_ms=2))
    log = resolved(files, state=PartitionState(checkpoint=checkpoint), now_ms=100, segment_bytes=14, segment_ms=99)
    assert log.active_base_offset == 30
    assert log.earliest_dirty_timestamp_ms == earliest


START_MS = 1_000_000_000


class TestCase15:
    """Ratio 1.0, min lag 1 h, max lag 6 h; two segments at 0 h, and a second block at 6 h + 1 ms."""

    LAGS = {
        "min_cleanable_dirty_ratio": 1.0,
        "min_compaction_lag_ms": HOUR_MS,
        "max_compaction_lag_ms": 6 * HOUR_MS,
        "segment_bytes": 150,
    }
    FIRST = [data_file(0, 9, min_timestamp_ms=START_MS), data_file(10, 19, min_timestamp_ms=START_MS)]
    SECOND = [data_file(20, 29, min_timestamp_ms=START_MS + 6 * HOUR_MS + 1)]

    def decided(self, files, after_ms, checkpoint=None):
        now_ms = START_MS + after_ms
        log = resolved(files, state=PartitionState(checkpoint=checkpoint), now_ms=now_ms, **self.LAGS)
        return decide(log, configs(**self.LAGS), now_ms)

    @pytest.mark.parametrize("after_ms", [3 * HOUR_MS, 6 * HOUR_MS], ids=["3 h", "6 h exactly"])
    def test_nothing_until_the_longest_lag_has_passed(self, after_ms):
        assert not self.decided(self.FIRST, after_ms).compact

    def test_the_first_block_after_six_hours(self):
        decision = self.decided(self.FIRST + self.SECOND, 6 * HOUR_MS + 1)
        assert (decision.compact, decision.first_dirty_offset, decision.end_offset) == (True, 0, 20)
        assert decision.overdue_ms == 1

    @pytest.mark.parametrize(
        ("after_ms", "compact"),
        [
            pytest.param(6 * HOUR_MS + 2, False, id="at once"),
            pytest.param(12 * HOUR_MS + 1, False, id="6 h later exactly"),
            pytest.param(12 * HOUR_MS + 2, True, id="after a further 6 h"),
        ],
    )
    def test_the_second_block_only_a_further_six_hours_later(self, after_ms, compact):
        decision = self.decided(self.FIRST + self.SECOND, after_ms, checkpoint=20)
        assert decision.compact is compact


# ---- tombstones


@pytest.mark.parametrize(
    ("horizons", "expected"),
    [
        pytest.param((), None, id="no ledger"),
        pytest.param((Horizon(5, 100, 0),), None, id="no live tombstone"),
        pytest.param(
            (Horizon(5, 300, 1), Horizon(6, 200, 1), Horizon(7, 100, 0)), 200, id="the soonest with a live one"
        ),
    ],
)
def test_the_next_horizon_is_the_soonest_that_has_a_live_tombstone(horizons, expected):
    assert log_state(horizons=horizons).next_horizon_ms == expected


def test_pending_tombstones_are_those_with_and_without_a_horizon():
    files = blocks(0, null_values=5) + blocks(10, null_values=7)
    state = PartitionState(checkpoint=10, horizons=(Horizon(5, 1, 2), Horizon(10, 2, 3)), head_tombstones=11)
    log = resolved(files, state=state, arrived=files[1:])
    assert log.tombstones_without_horizon == 11 + 7
    assert log.pending_tombstones == 18 + 5


def test_total_bytes_are_those_of_all_segments():
    assert log_state(segments=(segment(0, 1, bytes=3), segment(1, 2, bytes=4))).total_bytes == 7


def test_bytes_that_no_round_may_touch_are_those_of_the_active_segment_and_of_young_ones():
    log = log_state(
        segments=(segment(0, 10, bytes=1), segment(10, 20, bytes=2), segment(20, 30, bytes=4)),
        first_uncleanable_offset=10,
    )
    assert (log.active_bytes, log.young_bytes) == (4, 2)
    assert [(rolled := replace(log, active_base_offset=None)).active_bytes, rolled.young_bytes] == [0, 6]
    assert replace(log, segments=()).active_bytes == 0


# ---- case 23


def test_case_23_an_empty_log_has_no_numbers_and_no_error():
    log = resolved([], now_ms=1_000)
    assert (log.log_start_offset, log.log_end_offset, *bounds(log)) == (0, 0, 0, 0)
    assert (log.clean_bytes, log.cleanable_bytes, log.uncleanable_bytes, log.records) == (0, 0, 0, 0)
    assert (log.dirty_ratio, log.total_bytes, log.pending_tombstones, log.warnings) == (0.0, 0, 0, ())
    assert (log.active_base_offset, log.earliest_dirty_timestamp_ms, log.next_horizon_ms) == (None, None, None)


def test_case_23_a_log_that_was_emptied_keeps_its_place():
    log = resolved([], state=PartitionState(checkpoint=30, log_start_offset=30, log_end_offset=30))
    assert (log.log_start_offset, log.log_end_offset, *bounds(log), log.repaired) == (30, 30, 30, 30, False)


def test_case_23_one_record_is_active_first_and_cleanable_when_it_is_old_enough():
    files = [data_file(0, min_timestamp_ms=100)]
    assert bounds(resolved(files, now_ms=109, segment_ms=10)) == (0, 0)
    assert bounds(resolved(files, now_ms=110, segment_ms=10)) == (0, 1)


def test_case_23_a_log_of_tombstones_is_cleaned_like_any_other():
    files = blocks(0, null_values=10)
    log = resolved(files, arrived=files, now_ms=10, segment_ms=10)
    assert (log.dirty_ratio, log.pending_tombstones) == (1.0, 10)


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 5), st.integers(0, 90)), max_size=8),
    st.none() | st.integers(0, 120),
    st.integers(0, 120),
    st.integers(0, 50),
)
def test_the_sections_follow_each_other(shapes, checkpoint, now_ms, lag_ms):
    files, base = [], 3
    for length, gap, stamp in shapes:
        files.append(data_file(base, base + length - 1, min_timestamp_ms=stamp))
        base += length + gap
    log = resolved(
        files,
        state=PartitionState(checkpoint=checkpoint),
        now_ms=now_ms,
        segment_bytes=250,
        segment_ms=40,
        min_compaction_lag_ms=lag_ms,
    )
    assert log.log_start_offset <= log.first_dirty_offset <= log.first_uncleanable_offset <= log.log_end_offset
    assert 0.0 <= log.dirty_ratio <= 1.0
    assert log.repaired == bool(log.warnings)


def test_records_without_a_key_are_counted_up_to_the_bound_and_from_it_on():
    files = [data_file(n, n + 9, null_keys=keyless) for n, keyless in [(0, 4), (10, 3), (20, 2), (30, 1)]]
    log = resolved(files, state=PartitionState(checkpoint=10), now_ms=5, segment_bytes=100, segment_ms=10)
    assert bounds(log) == (10, 30)
    assert (log.cleanable_keyless, log.uncleanable_keyless) == (KeylessRecords(5, 5), KeylessRecords(1, 1))


@pytest.mark.parametrize(("checkpoint", "kept"), [(9, [0, 20]), (10, [20])])
def test_figures_keep_the_files_whose_records_without_a_key_are_in_the_dirty_part(checkpoint, kept):
    files = [data_file(0, 9, null_keys=1), data_file(10, 19), data_file(20, 29, null_keys=1)]
    figures = log_figures(0, files, PartitionState(checkpoint=checkpoint), (), configs())
    assert [file.lower_offset for file in figures.keyless] == kept


def test_a_file_that_is_registered_twice_is_a_warning():
    log = resolved([data_file(0, 9, path="s3://b/a.parquet", registered=2), data_file(10, 19)])
    assert log.registered_twice == "1 file is registered more than once: a.parquet"
    assert log.warnings == (
        f"{log.registered_twice}: readers see each record that often, and the next round keeps each once",
    )
    assert resolved([data_file(0, 9)]).warnings == ()


def test_a_rewritten_history_is_the_first_warning_for_a_day():
    state, files = PartitionState(rewritten=Rewritten(7, at_ms=5)), [data_file(0, path="a", registered=2)]
    first, second = resolved(files, state=state, now_ms=5).warnings
    assert (first, "registered more than once" in second) == (state.rewritten.text, True)
    assert len(resolved(files, state=state, now_ms=5 + 24 * HOUR_MS).warnings) == 1


# ---- a source in Kafka


def read_to(offset, **changes):
    return SourcePosition("c", "orders", "id", {0: offset}, "read_uncommitted", "r", 0, **changes, version=FORMAT)


def test_a_round_ends_at_the_last_stable_offset_also_where_records_beyond_it_were_read():
    """semantics.md 3.10: as in Kafka, whatever the archive's isolation is."""
    log = resolved(blocks(0, 10, 20), now_ms=10, segment_bytes=14, segment_ms=10, source=read_to(30, open_from={0: 15}))
    assert (bounds(log), log.log_end_offset) == ((0, 15), 30)
    other = resolved(
        blocks(0, 10, 20), now_ms=10, segment_bytes=14, segment_ms=10, source=read_to(30, open_from={1: 5})
    )
    assert bounds(other) == (0, 30)


def test_what_the_brokers_may_have_forgotten_is_a_warning():
    entry = Forgotten(0, 10, 20, 1, HOUR_MS, 9)
    log = resolved(blocks(20), source=read_to(30, forgotten=(entry,)))
    assert (log.forgotten, log.warnings) == (entry, (entry.text,))
    assert resolved(blocks(20), source=read_to(30)).forgotten is None


def test_the_newest_gaps_of_the_log_are_warnings():
    gaps = (Gap(1, 0, 9, 1), *(Gap(0, n, n + 1, n) for n in range(0, 10, 2)))
    log = resolved(blocks(20), source=read_to(30, gaps=gaps))
    assert [gap.from_offset for gap in log.gaps] == [0, 2, 4, 6, 8]
    assert [text.split(" were")[0] for text in log.warnings] == [f"partition 0: offsets {n} to {n}" for n in (4, 6, 8)]


# ---- records that were left out


def test_records_that_the_table_cannot_hold_are_warnings_and_erased_ones_are_none():
    lost = LeftOut(0, 5, 5, 1, "timestamp", "drop", 9)
    log = resolved([data_file(0, 9)], state=PartitionState(left_out=(lost, replace(lost, reason="erased"))))
    assert (log.gaps, log.warnings) == ((lost,), (lost.text,))

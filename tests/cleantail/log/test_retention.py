"""The `delete` half of a policy: whole segments, the oldest first, never the active one (semantics.md 1.1, 1.2)."""

from dataclasses import replace

import pytest

from cleantail.config.config_model import LONG_MAX
from cleantail.human import setting
from cleantail.log.due_work import Retention, resolve_retention
from cleantail.log.partition_state import PartitionState
from cleantail.log.segments import NO_TIMESTAMP_MS
from tests.cleantail.kernel_builders import configs, data_file, log_state, resolved, segment

NOTHING = "no segment is past "


def segments(*stamps, size=100):
    """Segments of ten offsets with these largest timestamps."""
    return tuple(
        segment(10 * n, 10 * n + 10, bytes=size, first_timestamp_ms=ms, largest_timestamp_ms=ms)
        for n, ms in enumerate(stamps)
    )


def retained(log, now_ms=0, **changes):
    changes = {"cleanup_policy": "delete", "retention_ms": -1} | changes
    return resolve_retention(log, configs(**changes), now_ms)


THREE = log_state(segments=segments(100, 200, 300))
INACTIVE = replace(THREE, active_base_offset=None)


def test_without_delete_in_the_policy_nothing_goes():
    assert retained(THREE, 1 << 60, cleanup_policy="compact", retention_ms=0) == Retention(
        0, False, "cleanup.policy has no delete"
    )


# ---- age


@pytest.mark.parametrize(
    ("now_ms", "start"),
    [
        pytest.param(149, 0, id="younger"),
        pytest.param(150, 0, id="age == retention.ms: stays"),
        pytest.param(151, 10, id="age > retention.ms: goes"),
        pytest.param(251, 20, id="two go"),
        pytest.param(10_000, 20, id="the active one stays"),
    ],
)
def test_a_segment_goes_when_its_youngest_record_is_older_than_retention_ms(now_ms, start):
    assert retained(THREE, now_ms, retention_ms=50).log_start_offset == start


def test_the_reason_names_how_many_and_which_limit():
    assert retained(THREE, 251, retention_ms=50) == Retention(
        20, True, "2 segments below offset 20 are past retention.ms"
    )


@pytest.mark.parametrize(
    ("retention_ms", "text"),
    [
        pytest.param(-1, "retention.ms -1 or retention.bytes -1", id="no limit of age"),
        pytest.param(LONG_MAX, f"{setting('retention.ms', LONG_MAX)} or retention.bytes -1", id="nor in words"),
        pytest.param(
            1_000,
            "retention.ms 1s or retention.bytes -1; none will be by age until 1970-01-01 00:00:11 UTC",
            id="the oldest one's age",
        ),
    ],
)
def test_what_is_not_due_says_both_limits_and_when_the_oldest_segment_will_be(retention_ms, text):
    log = log_state(segments=segments(10_000, 20_000, 30_000))
    assert retained(log, 0, retention_ms=retention_ms).reason == f"{NOTHING}{text}"


def test_when_nothing_is_due_the_log_start_stays():
    reason = "no segment is past retention.ms 1min or retention.bytes 1.0 KiB; none will be by age until "
    expected = Retention(0, False, f"{reason}1970-01-01 00:01:00 UTC")
    assert retained(THREE, 150, retention_ms=60_000, retention_bytes=1024) == expected


@pytest.mark.parametrize(
    ("retention_ms", "due"), [pytest.param(-1, False, id="-1 keeps all"), pytest.param(0, True, id="0 keeps none")]
)
def test_minus_one_is_no_limit_of_age(retention_ms, due):
    assert retained(THREE, 1 << 60, retention_ms=retention_ms).due is due


def test_a_young_segment_protects_the_older_ones_behind_it():
    log = log_state(segments=segments(100, 900, 100, 100), active_base_offset=30)
    assert retained(log, 1_000, retention_ms=200).log_start_offset == 10


def test_a_segment_without_a_timestamp_has_no_age():
    log = log_state(segments=segments(NO_TIMESTAMP_MS, 100, 100))
    assert retained(log, 1 << 60, retention_ms=50) == Retention(
        0, False, f"{NOTHING}retention.ms 50ms or retention.bytes -1"
    )


def test_zero_is_a_timestamp():
    assert retained(log_state(segments=segments(0, 0, 0)), 51, retention_ms=50).log_start_offset == 20


# ---- size


@pytest.mark.parametrize(
    ("limit", "start"),
    [
        pytest.param(-1, 0, id="-1 is no limit"),
        pytest.param(400, 0, id="limit above the log"),
        pytest.param(300, 0, id="limit == log"),
        pytest.param(201, 0, id="the log would fall below the limit"),
        pytest.param(200, 10, id="exactly the limit remains"),
        pytest.param(101, 10, id="one and a bit remain"),
        pytest.param(100, 20, id="two go"),
        pytest.param(0, 20, id="the active one stays"),
    ],
)
def test_the_oldest_segments_go_while_the_log_stays_at_or_above_retention_bytes(limit, start):
    found = retained(THREE, retention_bytes=limit)
    assert (found.log_start_offset, found.due) == (start, start > 0)


def test_the_reason_names_the_limit_of_size():
    assert retained(THREE, retention_bytes=200).reason == "1 segment below offset 10 is past retention.bytes"


def test_the_active_segment_counts_in_the_size_of_the_log():
    log = log_state(segments=(segment(0, 10, bytes=10), segment(10, 20, bytes=1_000)), active_base_offset=10)
    assert retained(log, retention_bytes=1_000).log_start_offset == 10


def test_a_file_without_live_records_protects_nothing_behind_it():
    """It is young, but it has no record whose age could count."""
    dead = data_file(0, 9, deleted_records=10, min_timestamp_ms=990)
    files = [dead, data_file(10, 19, min_timestamp_ms=100), data_file(20, 29, min_timestamp_ms=995)]
    settings = {"cleanup_policy": "delete", "segment_bytes": 100, "segment_ms": 500, "retention_ms": 500}
    log = resolved(files, state=PartitionState(), now_ms=1_000, **settings)
    assert resolve_retention(log, configs(**settings), 1_000).log_start_offset == 20


# ---- both, and the edges


@pytest.mark.parametrize(
    ("now_ms", "limit", "start", "which"),
    [
        pytest.param(151, 100, 20, "retention.bytes", id="size takes more"),
        pytest.param(251, 200, 20, "retention.ms", id="age takes more"),
        pytest.param(151, 200, 10, "retention.bytes", id="alike: size"),
    ],
)
def test_of_age_and_size_the_one_that_takes_more_decides(now_ms, limit, start, which):
    found = retained(THREE, now_ms, retention_ms=50, retention_bytes=limit)
    assert (found.log_start_offset, found.reason.rsplit(" ", 1)[1]) == (start, which)


def test_what_size_uncovers_goes_by_age_in_the_same_pass():
    """Kafka asks for the size first, then for the age of what is left (UnifiedLog.deleteOldSegments)."""
    log = log_state(segments=segments(900, 100, 900, 900), active_base_offset=30)
    found = retained(log, 951, retention_ms=100, retention_bytes=300)
    assert found == Retention(20, True, "2 segments below offset 20 are past retention.bytes and retention.ms")


def test_without_an_active_segment_a_whole_log_may_go():
    found = retained(INACTIVE, 351, retention_ms=50)
    assert found == Retention(30, True, "3 segments below offset 30 are past retention.ms")


def test_without_an_active_segment_part_of_a_log_may_go():
    assert retained(INACTIVE, 251, retention_ms=50).log_start_offset == 20


@pytest.mark.parametrize(
    ("log_start", "due"),
    [pytest.param(9, True, id="below"), pytest.param(10, False, id="at"), pytest.param(15, False, id="above")],
)
def test_the_log_start_only_moves_forward(log_start, due):
    found = retained(replace(THREE, log_start_offset=log_start), 151, retention_ms=50)
    assert (found.log_start_offset, found.due) == (10 if due else log_start, due)


def test_the_log_start_moves_to_the_base_of_what_stays_over_a_gap():
    log = log_state(segments=(segment(0, 5), segment(500, 510, largest_timestamp_ms=900)), active_base_offset=500)
    assert retained(log, 100, retention_ms=50).log_start_offset == 500


def test_case_23_an_empty_log_has_nothing_to_delete():
    log = log_state(segments=(), active_base_offset=None)
    reason = f"{NOTHING}retention.ms 0ms or retention.bytes 0 B"
    assert retained(log, 1 << 60, retention_ms=0, retention_bytes=0) == Retention(0, False, reason)


def test_case_16_old_segments_go_whole_and_the_rest_is_compacted():
    files = [data_file(10 * n, 10 * n + 9, min_timestamp_ms=ms) for n, ms in enumerate((100, 200, 300, 990))]
    settings = {"cleanup_policy": "compact,delete", "segment_bytes": 100, "segment_ms": 500, "retention_ms": 750}
    log = resolved(files, state=PartitionState(), now_ms=1_000, **settings)
    assert (log.active_base_offset, log.first_uncleanable_offset) == (30, 30)
    assert resolve_retention(log, configs(**settings), 1_000).log_start_offset == 20

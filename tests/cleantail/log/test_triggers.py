"""When a log is compacted, which one is first, and which tombstones are due (semantics.md 1.3, 1.5, 3.4, 3.6)."""

import re
from dataclasses import replace

import pytest

from cleantail.config.config_model import LONG_MAX
from cleantail.log.horizons import due_tombstones
from cleantail.log.partition_state import Horizon, PartitionState, Quarantine
from cleantail.log.quarantine import quarantine_pause
from cleantail.log.triggers import (
    Decision,
    decide,
    in_order_of_work,
    overdue_ms,
)
from tests.cleantail.kernel_builders import configs, data_file, log_state, resolved, segment

DIRTY = log_state(clean_bytes=300, cleanable_bytes=700)
HELD = replace(
    DIRTY, state=PartitionState(quarantine=Quarantine(1, "compact", "check failed: x", 1, retry_at_ms=1_000))
)
HALF = configs(min_cleanable_dirty_ratio=0.5)


def verdict(log, settings=HALF, now_ms=0, **how):
    decision = decide(log, settings, now_ms, **how)
    return decision.compact, decision.reason


# ---- the ratio


@pytest.mark.parametrize(
    ("cleanable", "compact"),
    [
        pytest.param(499, False, id="below"),
        pytest.param(500, False, id="ratio == min ratio: no"),
        pytest.param(501, True, id="above"),
    ],
)
def test_the_ratio_must_be_above_the_limit(cleanable, compact):
    log = log_state(clean_bytes=1_000 - cleanable, cleanable_bytes=cleanable)
    assert decide(log, HALF, 0).compact is compact


def test_a_limit_of_1_switches_the_ratio_off():
    log = log_state(clean_bytes=0, cleanable_bytes=100)
    assert verdict(log, configs(min_cleanable_dirty_ratio=1.0)) == (
        False,
        "dirty ratio 1.0000 is not above min.cleanable.dirty.ratio 1.0, and no record is overdue",
    )


def test_a_limit_of_0_takes_any_cleanable_byte():
    log = log_state(clean_bytes=1_000_000, cleanable_bytes=1)
    assert decide(log, configs(min_cleanable_dirty_ratio=0.0), 0).compact


def test_the_reason_names_ratio_and_limit():
    assert verdict(DIRTY) == (True, "dirty ratio 0.70 is above min.cleanable.dirty.ratio 0.5")


# ---- overdue


@pytest.mark.parametrize(
    ("now_ms", "expected"),
    [
        pytest.param(
            150,
            (
                False,
                "dirty ratio 0.10 is not above min.cleanable.dirty.ratio 0.5, and no record is overdue before "
                "1970-01-01 00:00:00 UTC (max.compaction.lag.ms 50ms)",
            ),
            id="delay 0: not overdue",
        ),
        pytest.param(151, (True, "overdue by 1 ms: max.compaction.lag.ms is 50ms"), id="delay 1: overdue"),
    ],
)
def test_an_overdue_log_is_compacted_whatever_its_ratio(now_ms, expected):
    log = log_state(clean_bytes=900, cleanable_bytes=100, earliest_dirty_timestamp_ms=100)
    assert verdict(log, configs(max_compaction_lag_ms=50), now_ms) == expected


@pytest.mark.parametrize(
    ("earliest_ms", "max_lag_ms", "now_ms", "expected"),
    [
        pytest.param(None, 10, 1_000, 0, id="no dirty record has a timestamp"),
        pytest.param(100, 50, 149, 0, id="before the deadline"),
        pytest.param(100, 50, 150, 0, id="at the deadline: delay 0"),
        pytest.param(100, 50, 151, 1, id="1 ms late"),
        pytest.param(100, 50, 1_150, 1_000, id="1 s late"),
        pytest.param(100, (1 << 63) - 1, 1 << 62, 0, id="no longest lag"),
    ],
)
def test_overdue_is_what_passed_since_the_longest_lag(earliest_ms, max_lag_ms, now_ms, expected):
    assert overdue_ms(earliest_ms, max_lag_ms, now_ms) == expected


@pytest.mark.parametrize(("cleanable", "compact"), [(0, False), (1, True)])
def test_an_overdue_log_needs_cleanable_bytes(cleanable, compact):
    log = log_state(clean_bytes=900, cleanable_bytes=cleanable, earliest_dirty_timestamp_ms=100)
    assert decide(log, configs(max_compaction_lag_ms=50), 1_000).compact is compact


# ---- force, policy, quarantine


def test_force_passes_over_the_ratio():
    log = log_state(clean_bytes=900, cleanable_bytes=100)
    assert verdict(log, force=True) == (True, "forced; dirty ratio 0.10 is not above min.cleanable.dirty.ratio 0.5")


def test_force_does_not_pass_over_the_bounds():
    assert not decide(log_state(cleanable_bytes=0), HALF, 0, force=True).compact


def test_force_does_not_pass_over_the_policy():
    expected = (False, "cleanup.policy has no compact")
    assert verdict(DIRTY, configs(cleanup_policy="delete"), force=True) == expected
    assert verdict(HELD, configs(cleanup_policy="delete")) == expected


def test_compact_may_be_one_policy_of_two():
    assert decide(DIRTY, configs(cleanup_policy="delete,compact"), 0).compact


@pytest.mark.parametrize(
    ("now_ms", "how", "compact"),
    [
        pytest.param(999, {}, False, id="before the next try"),
        pytest.param(1_000, {}, True, id="now == next try"),
        pytest.param(1_001, {}, True, id="after"),
        pytest.param(999, {"force": True}, True, id="forced"),
        pytest.param(999, {"retry_quarantined": True}, True, id="a person asks"),
    ],
)
def test_a_quarantined_log_waits_for_its_next_try(now_ms, how, compact):
    assert decide(HELD, HALF, now_ms, **how).compact is compact


def test_the_reason_of_a_quarantine_is_that_of_its_check():
    assert verdict(HELD) == (
        False,
        "blocked until 1970-01-01 00:00:01 UTC (log.cleaner.backoff.ms, doubled with every try): check failed: x",
    )


@pytest.mark.parametrize(("now_ms", "paused"), [(999, True), (1_000, False), (1_001, False)])
def test_a_pause_ends_when_its_time_has_come(now_ms, paused):
    assert bool(quarantine_pause(HELD, now_ms)) is paused


def test_a_log_in_good_order_has_no_pause():
    assert quarantine_pause(DIRTY, 0) is None


def test_retrying_a_quarantined_log_does_not_pass_over_the_ratio():
    log = replace(HELD, clean_bytes=900, cleanable_bytes=100)
    assert not decide(log, HALF, 0, retry_quarantined=True).compact


# ---- why nothing is cleanable


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"segments": ()}, "the log is empty", id="empty"),
        pytest.param({"first_dirty_offset": 30}, "the log is clean up to its end, offset 30", id="clean"),
        pytest.param({"first_dirty_offset": 31}, "the log is clean up to its end, offset 30", id="checkpoint above"),
        pytest.param(
            {"first_dirty_offset": 29},
            "the dirty records are in the active segment, from offset 20, until 1970-01-08 00:00:00 UTC "
            "(segment.ms 7d)",
            id="active",
        ),
        pytest.param(
            {"first_uncleanable_offset": 10, "active_base_offset": None},
            "nothing is cleanable below offset 10",
            id="no limit known",
        ),
    ],
)
def test_the_reason_says_why_nothing_is_cleanable(changes, reason):
    assert verdict(log_state(cleanable_bytes=0, **changes)) == (False, reason)


YOUNG = {"segments": (segment(0, 10), segment(10, 20, largest_timestamp_ms=5_000), segment(20, 30))}


@pytest.mark.parametrize(
    ("changes", "settings", "reason"),
    [
        pytest.param(
            YOUNG | {"first_uncleanable_offset": 10},
            {"min_compaction_lag_ms": 3_600_000},
            "the records from offset 10 on are too young until 1970-01-01 01:00:05 UTC (min.compaction.lag.ms 1h)",
            id="lag",
        ),
        pytest.param(
            {"first_uncleanable_offset": 30, "active_base_offset": None},
            {"min_compaction_lag_ms": 1},
            "nothing is cleanable below offset 30",
            id="no segment is within the lag",
        ),
        pytest.param(
            {"segments": (segment(0, 20), segment(20, 30, first_timestamp_ms=60_000))},
            {"segment_ms": 5_400_000},
            "the dirty records are in the active segment, from offset 20, until 1970-01-01 01:31:00 UTC "
            "(segment.ms 1.5h)",
            id="age of the active segment",
        ),
        pytest.param(
            {},
            {"max_compaction_lag_ms": 60_000},
            "the dirty records are in the active segment, from offset 20, until 1970-01-01 00:01:00 UTC "
            "(max.compaction.lag.ms 1min)",
            id="longest lag shortens that age",
        ),
        pytest.param(
            {},
            {"segment_ms": LONG_MAX},
            "the dirty records are in the active segment, from offset 20, for ever (segment.ms unlimited)",
            id="never by age",
        ),
    ],
)
def test_what_waits_names_the_setting_and_the_time(changes, settings, reason):
    assert verdict(log_state(cleanable_bytes=0, **changes), configs(**settings)) == (False, reason)


def test_the_time_that_is_named_is_that_at_which_the_log_can_be_cleaned():
    """One millisecond before it the records wait, at it they do not: by age of the segment, and by the shortest lag."""
    for settings in ({"segment_ms": 5_000}, {"segment_ms": 1, "min_compaction_lag_ms": 5_000}):
        file = data_file(0, 9, min_timestamp_ms=1_000)
        before, then = (resolved([file], now_ms=ms, **settings) for ms in (5_999, 6_000))
        assert "until 1970-01-01 00:00:06 UTC" in decide(before, configs(**settings), 5_999).reason
        assert decide(then, configs(**settings), 6_000).compact


# ---- the decision


def test_a_decision_carries_its_numbers():
    log = log_state(partition=3, clean_bytes=300, cleanable_bytes=100, earliest_dirty_timestamp_ms=100)
    assert decide(log, configs(max_compaction_lag_ms=50), 170) == Decision(
        partition=3,
        compact=True,
        reason="overdue by 20 ms: max.compaction.lag.ms is 50ms",
        dirty_ratio=0.25,
        min_dirty_ratio=0.5,
        cleanable_bytes=100,
        overdue_ms=20,
        deadline_ms=150,
        first_dirty_offset=10,
        end_offset=20,
    )


def test_without_a_dirty_timestamp_there_is_no_deadline():
    assert decide(DIRTY, HALF, 0).deadline_ms is None


@pytest.mark.parametrize(("earliest_ms", "expected"), [(0, LONG_MAX - 1), (1, LONG_MAX), (2, None)])
def test_a_deadline_beyond_the_range_of_a_long_does_not_exist(earliest_ms, expected):
    log = log_state(earliest_dirty_timestamp_ms=earliest_ms)
    assert decide(log, configs(max_compaction_lag_ms=LONG_MAX - 1), 0).deadline_ms == expected


# ---- order of work


def decision(partition, ratio=0.5, overdue=0, deadline=None, compact=True):
    return Decision(partition, compact, "", ratio, 0.5, 100, overdue, deadline, 0, 10)


def order(*decisions):
    return [d.partition for d in in_order_of_work(decisions)]


@pytest.mark.parametrize(
    ("decisions", "expected"),
    [
        pytest.param([decision(0, 0.6), decision(1, 0.9), decision(2, 0.7)], [1, 2, 0], id="the dirtiest first"),
        pytest.param([decision(0, 0.9), decision(1, 0.1, 5, 100)], [1, 0], id="overdue before dirty"),
        pytest.param([decision(0, 0.9, 5, 200), decision(1, 0.1, 9, 100)], [1, 0], id="the earliest deadline first"),
        pytest.param([decision(0, 0.1, 5, 100), decision(1, 0.9, 5, 100)], [1, 0], id="same deadline: the dirtiest"),
        pytest.param([decision(2), decision(0), decision(1)], [0, 1, 2], id="alike: by number"),
        pytest.param(
            [decision(0, 0.6, 0, 1), decision(1, 0.9, 0, 999)], [1, 0], id="a deadline to come does not count"
        ),
        pytest.param([decision(0, 0.6, 7, None), decision(1, 0.9, 0, 999)], [1, 0], id="no deadline, not overdue"),
        pytest.param([decision(0, 0.9, 5, 9, compact=False), decision(1)], [1], id="only those to compact"),
        pytest.param([decision(1, 0.5, 1, 0), decision(0, 0.9, 1, 5)], [1, 0], id="a deadline at 0 is one"),
        pytest.param([decision(1, 0.5, 1, 0), decision(0, 0.9, 1, 1)], [1, 0], id="and is before one at 1"),
        pytest.param([], [], id="none"),
    ],
)
def test_overdue_logs_come_first_by_deadline_then_the_dirtiest(decisions, expected):
    assert order(*decisions) == expected


class TestCase12:
    """Logs of 20, 25 and 30 batches, each with its checkpoint at 20."""

    SETTINGS = {"min_cleanable_dirty_ratio": 0.0, "segment_bytes": 14, "segment_ms": 1}

    def decided(self, sizes):
        found = []
        for partition, size in sizes.items():
            files = [data_file(offset, size_bytes=14) for offset in range(size)]
            log = resolved(files, state=PartitionState(checkpoint=20), now_ms=1, **self.SETTINGS)
            found.append(replace(decide(log, configs(**self.SETTINGS), 1), partition=partition))
        return order(*found)

    @pytest.mark.parametrize(
        ("sizes", "expected"),
        [
            pytest.param({0: 20, 1: 25, 2: 30}, [2, 1], id="the third is first"),
            pytest.param({0: 20, 1: 25}, [1], id="without it the second"),
            pytest.param({0: 20}, [], id="none left"),
        ],
    )
    def test_case_12_the_dirtiest_log_is_first(self, sizes, expected):
        assert self.decided(sizes) == expected


# ---- boundaries and reasons


def test_case_22_every_boundary_of_a_decision():
    """ratio == min ratio: no; now == horizon: dropped; timestamp == now - min lag: cleanable; delay 0: not overdue."""
    even = log_state(
        clean_bytes=500, cleanable_bytes=500, earliest_dirty_timestamp_ms=100, horizons=(Horizon(10, 150, 1),)
    )
    at = decide(even, configs(min_cleanable_dirty_ratio=0.5, max_compaction_lag_ms=50), 150)
    assert (at.compact, at.overdue_ms, at.deadline_ms) == (False, 0, 150)
    assert due_tombstones(even, 150) == 1
    files = [data_file(0, 9, min_timestamp_ms=100)]
    lagged = resolved(files, now_ms=150, segment_ms=1, min_compaction_lag_ms=50)
    assert lagged.first_uncleanable_offset == 10


def test_every_reason_is_one_line():
    logs = [DIRTY, HELD, log_state(cleanable_bytes=0), log_state(segments=(segment(0, 1),), cleanable_bytes=0)]
    assert all(re.fullmatch(r"[^\n]+", decide(log, HALF, 0).reason) for log in logs)


# ---- files that are registered twice


@pytest.mark.parametrize(("cleanable", "active"), [(0, None), (1, 20)])
def test_a_log_with_a_file_that_is_registered_twice_is_compacted_whatever_its_ratio(cleanable, active):
    log = log_state(cleanable_bytes=cleanable, active_base_offset=active, registered_twice="1 file is …")
    assert verdict(log) == (True, "1 file is …")


def test_a_file_that_is_registered_twice_waits_for_the_policy_and_for_the_pause():
    log = log_state(registered_twice="1 file is …")
    assert verdict(log, configs(cleanup_policy="delete")) == (False, "cleanup.policy has no compact")
    assert (
        "registered"
        not in verdict(
            replace(
                log, state=PartitionState(quarantine=Quarantine(1, "compact", "check failed: x", 1, retry_at_ms=1_000))
            )
        )[1]
    )

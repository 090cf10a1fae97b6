"""Another policy on a real history: every tick decides as a real run would have, and says how its numbers are known."""

import pytest

from cleantail.log.partition_state import Horizon
from cleantail.whatif.replay import (
    Arrival,
    Basis,
    DropCurve,
    ObservedRound,
    ReplayHistory,
    changed_values,
    drop_curves,
    next_expiry,
    simulate,
)
from tests.cleantail.kernel_builders import HOUR_MS, configs, data_file, log_state

DAY = 24 * HOUR_MS


def hourly(hours, **changes):
    """Ten records of 100 bytes an hour from hour 0 on, in files of one hour; the segment of an hour is soon closed."""
    return tuple(
        Arrival(h * HOUR_MS, data_file(10 * h, 10 * h + 9, min_timestamp_ms=h * HOUR_MS or 1, **changes))
        for h in range(hours)
    )


def round_of(first, end, dropped, at_ms=10 * DAY, partition=0):
    return ObservedRound(partition, at_ms, first, end, dropped)


def replayed(arrivals, ticks, rounds=(), start_ms=0, end_ms=DAY, **changes):
    settings = {"segment_ms": 1, "min_cleanable_dirty_ratio": 0.5} | changes
    return simulate(ReplayHistory(start_ms, end_ms, tuple(arrivals), tuple(rounds)), configs(**settings), ticks)


EVERY_HOUR = [h * HOUR_MS + 2 for h in range(24)]


def test_a_lower_ratio_makes_more_rounds_of_the_same_history():
    few = replayed(hourly(24), EVERY_HOUR, [round_of(0, 240, 0)])
    many = replayed(hourly(24), EVERY_HOUR, [round_of(0, 240, 0)], min_cleanable_dirty_ratio=0.1)
    # above a half at hours 0, 2, 6 and 14; above a tenth at hours 0 to 8, then every second, then at 21
    assert few.rounds == 4
    assert many.rounds == 15
    assert many.read_bytes > few.read_bytes


def test_a_maximum_lag_makes_rounds_that_the_ratio_would_not():
    lagged = replayed(hourly(24), EVERY_HOUR, [round_of(0, 240, 0)], max_compaction_lag_ms=3 * HOUR_MS)
    assert lagged.rounds == 7  # hours 0 and 2 by the ratio, then every fourth


def test_a_minimum_lag_keeps_the_young_records_out():
    young = replayed(hourly(3), [2 * HOUR_MS + 2], min_compaction_lag_ms=3 * HOUR_MS)
    assert (young.rounds, young.runs) == (0, 0)


def test_a_policy_without_compact_makes_no_round():
    assert replayed(hourly(24), EVERY_HOUR, cleanup_policy="delete", retention_ms=-1).rounds == 0


def test_what_one_round_dropped_between_two_clean_points_many_would_have_dropped_together():
    rounds = [round_of(0, 240, 120)]
    once = replayed(hourly(24), [DAY], rounds)
    often = replayed(hourly(24), [*EVERY_HOUR, DAY], rounds, min_cleanable_dirty_ratio=0.0)
    assert (once.superseded, once.basis) == (120, Basis.MEASURED)
    assert (often.superseded, often.basis) == (120, Basis.ESTIMATED)
    assert once.bytes_freed == 120 * 100 // 10


def test_beyond_the_observed_rounds_their_share_is_taken():
    result = replayed(hourly(24), [DAY], [round_of(0, 120, 30)])
    assert (result.superseded, result.basis) == (60, Basis.ESTIMATED)


def test_without_any_observed_round_what_would_be_dropped_is_unknown():
    result = replayed(hourly(24), [DAY])
    assert (result.rounds, result.superseded, result.bytes_freed, result.dropped) == (1, None, None, None)
    assert result.basis is Basis.UNKNOWN


def test_a_history_without_a_round_in_it_needs_no_estimate():
    result = replayed(hourly(24), [])
    assert (result.rounds, result.superseded, result.basis) == (0, 0, Basis.MEASURED)


def test_what_real_rounds_had_cleaned_before_the_history_is_clean_in_it():
    arrivals = [Arrival(DAY, a.file) for a in hourly(24)]
    rounds = [round_of(0, 240, 24, at_ms=HOUR_MS)]
    result = replayed(arrivals, [DAY + 1], rounds, start_ms=DAY, end_ms=2 * DAY)
    assert result.rounds == 0


def test_records_below_the_clean_point_are_cleaned_by_a_round_of_their_own():
    late = Arrival(20 * HOUR_MS, data_file(0, 4, path="late", min_timestamp_ms=20 * HOUR_MS))
    ticks = [10 * HOUR_MS, 21 * HOUR_MS]
    without = replayed(hourly(10), ticks, [round_of(0, 100, 50)])
    result = replayed([*hourly(10), late], ticks, [round_of(0, 100, 50)])
    assert (without.rounds, result.rounds) == (1, 2)
    assert (result.superseded, result.basis) == (52, Basis.ESTIMATED)  # half of the five late ones, 2.5


def test_tombstones_expire_at_a_later_tick_than_the_round_that_kept_them():
    arrivals = hourly(2, null_values=4)
    kept = replayed(arrivals, [DAY], [round_of(0, 20, 0)], delete_retention_ms=HOUR_MS)
    gone = replayed(arrivals, [DAY, DAY + HOUR_MS], [round_of(0, 20, 0)], delete_retention_ms=HOUR_MS)
    assert (kept.expired, kept.runs) == (0, 1)
    assert (gone.expired, gone.runs, gone.rounds) == (8, 2, 1)


def test_retention_drops_whole_segments_exactly():
    result = replayed(
        hourly(24), [DAY], cleanup_policy="delete", retention_ms=12 * HOUR_MS, segment_bytes=100, segment_ms=1
    )
    assert (result.past_retention, result.bytes_freed, result.runs) == (120, 1200, 1)


def test_logs_are_replayed_one_by_one_and_share_their_runs():
    arrivals = [Arrival(a.at_ms, a.file) for a in hourly(24)]
    arrivals += [Arrival(a.at_ms, data_file(a.file.lower_offset, a.file.upper_offset, partition=1)) for a in arrivals]
    result = replayed(arrivals, [DAY], [round_of(0, 240, 120)])
    assert (result.rounds, result.runs) == (2, 1)
    assert (result.superseded, result.basis) == (240, Basis.ESTIMATED)  # the second log takes the first one's share


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        pytest.param(0, 100, (50.0, Basis.MEASURED), id="a round"),
        pytest.param(0, 200, (60.0, Basis.MEASURED), id="two rounds"),
        pytest.param(0, 50, (25.0, Basis.ESTIMATED), id="half a round"),
        pytest.param(200, 300, (30.0, Basis.ESTIMATED), id="none"),
        pytest.param(100, 300, (40.0, Basis.ESTIMATED), id="one and none"),
        pytest.param(100, 100, (0.0, Basis.MEASURED), id="nothing"),
    ],
)
def test_the_curve_of_drops_is_exact_where_whole_rounds_were_observed(start, end, expected):
    [curve] = drop_curves(ReplayHistory(0, 1, hourly(1), (round_of(0, 100, 50), round_of(100, 200, 10)))).values()
    assert curve.dropped(start, end) == expected


def test_a_share_is_never_above_one():
    assert drop_curves(ReplayHistory(0, 1, hourly(1), (round_of(0, 10, 500),)))[0].share == 1.0
    assert DropCurve((), None).dropped(0, 10) == (0.0, Basis.UNKNOWN)


def test_a_horizon_that_is_set_is_the_next_expiry_whatever_the_policy():
    logs = [log_state(horizons=(Horizon(10, 777, tombstones=1),)), log_state(horizons=(Horizon(10, 555, 0),))]
    assert next_expiry(logs, configs(delete_retention_ms=1), now_ms=0) == (777, Basis.MEASURED)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, (1_000, Basis.ESTIMATED), id="cleaned now"),
        pytest.param({"min_cleanable_dirty_ratio": 1.0}, None, id="not due"),
        pytest.param({"cleanup_policy": "delete"}, None, id="no compact"),
    ],
)
def test_tombstones_without_a_horizon_expire_as_after_a_round_now(changes, expected):
    logs = [log_state(tombstones_without_horizon=2)]
    settings = {"min_cleanable_dirty_ratio": 0.1, "delete_retention_ms": 900} | changes
    assert next_expiry(logs, configs(**settings), now_ms=100) == expected
    assert next_expiry([log_state()], configs(**settings), now_ms=100) is None


def test_changed_values_are_listed_by_key_in_the_order_of_the_first_mapping():
    assert changed_values({"a": 1, "b": 2, "c": 3}, {"c": 4, "a": 1, "d": 5}) == {
        "b": (2, None),
        "c": (3, 4),
        "d": (None, 5),
    }

"""The moments at which a schedule would have started runs."""

import pytest

from cleantail.config import run_schedule as run_times_module
from cleantail.config.config_model import LONG_MAX
from cleantail.config.run_schedule import MOST_TICKS, run_before, run_times

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.mark.parametrize(
    ("schedule", "count", "first"),
    [
        pytest.param("*/15 * * * *", 96, HOUR_MS // 4, id="cron"),
        pytest.param("@hourly", 24, HOUR_MS, id="preset"),
        pytest.param("@daily", 1, DAY_MS, id="the end counts"),
    ],
)
def test_a_schedule_starts_runs_after_the_start_up_to_the_end(schedule, count, first):
    found = run_times(schedule, 0, DAY_MS, [])
    assert (len(found), found[0]) == (count, first)


@pytest.mark.parametrize("schedule", [None, "@once", "@quarterly"])
def test_where_no_run_is_scheduled_one_after_each_append_stands_for_a_persons(schedule):
    assert run_times(schedule, 0, DAY_MS, [5, 3, 5]) == [3, 5, DAY_MS]


def test_a_quarter_has_three_months():
    assert len(run_times("@quarterly", 0, 366 * DAY_MS, [])) == 4


@pytest.mark.parametrize("end_ms", [2 * DAY_MS, LONG_MAX], ids=["two days", "the end of time"])
def test_a_long_list_is_thinned_evenly(end_ms, monkeypatch):
    assert run_times_module._MOST_STARTS > 31 * 1440  # a month of minutes
    monkeypatch.setattr(run_times_module, "_MOST_STARTS", 3_000)  # more than two days have
    found = run_times("* * * * *", 0, end_ms, [])
    steps = {b - a for a, b in zip(found, found[1:], strict=False)}
    assert MOST_TICKS * 0.9 <= len(found) <= MOST_TICKS
    assert len(steps) == 1


@pytest.mark.parametrize(
    ("schedule", "now_ms", "before_ms"),
    [
        pytest.param("@hourly", 10 * HOUR_MS, 9 * HOUR_MS, id="at the moment of a run"),
        pytest.param("@hourly", 10 * HOUR_MS + 1, 9 * HOUR_MS, id="a run that waited to start"),
        pytest.param("@hourly", 10 * HOUR_MS - 1, 8 * HOUR_MS, id="before the next"),
        pytest.param("0 6 * * *", 2 * DAY_MS, 6 * HOUR_MS, id="cron"),
        pytest.param("@quarterly", 200 * DAY_MS, 90 * DAY_MS, id="a preset of Airflow's alone"),
        pytest.param(None, DAY_MS, None, id="by hand"),
        pytest.param("@once", DAY_MS, None, id="once"),
        pytest.param("@daily", LONG_MAX, None, id="beyond the calendar"),
    ],
)
def test_the_run_before_is_the_last_but_one_moment_of_the_schedule(schedule, now_ms, before_ms):
    assert run_before(schedule, now_ms) == before_ms

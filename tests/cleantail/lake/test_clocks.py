"""A clock that is given decides; what cannot be undone goes by the real one, unless the platform allows more."""

import time

import pytest

from cleantail.config.platform import Platform
from cleantail.errors import CleantailError, HeldError
from cleantail.lake.evaluate import (
    SKEW_MS,
    evaluate_topic,
    expiry_clock_ms,
    require_clock_not_ahead,
    require_clock_of_run,
    require_real_clock,
)

HOUR = 3_600_000
DAY = 24 * HOUR


def platform(tmp_path, allowed):
    return Platform(home=tmp_path, config_dir=tmp_path, allow_clock=allowed)


@pytest.mark.parametrize(
    ("now_ms", "allowed", "expected"),
    [
        pytest.param(90, False, 90, id="back"),
        pytest.param(110, False, 100, id="ahead: the real one"),
        pytest.param(110, True, 110, id="ahead, and allowed"),
    ],
)
def test_expiry_goes_by_the_earlier_clock(tmp_path, now_ms, allowed, expected):
    assert expiry_clock_ms(platform(tmp_path, allowed), now_ms, 100) == expected


def test_a_run_is_not_ahead_of_the_clock(tmp_path):
    require_clock_not_ahead(platform(tmp_path, False), 100, 100)
    require_clock_not_ahead(platform(tmp_path, False), 110, 100, skew_ms=10)
    require_clock_not_ahead(platform(tmp_path, True), 110, 100)
    with pytest.raises(CleantailError, match=r"now_ms 101 is 1 ms ahead of the clock.*allow_clock: true"):
        require_clock_not_ahead(platform(tmp_path, False), 101, 100)


def test_a_run_that_is_triggered_is_not_behind_the_clock_either(tmp_path):
    clock_ms = 10 * SKEW_MS
    require_real_clock(platform(tmp_path, False), clock_ms - SKEW_MS, clock_ms)
    require_real_clock(platform(tmp_path, True), 0, clock_ms)
    with pytest.raises(CleantailError, match=r"now_ms 7 is 599993 ms behind the clock.*allow_clock: true"):
        require_real_clock(platform(tmp_path, False), 7, clock_ms)
    with pytest.raises(CleantailError, match="ahead of the clock"):
        require_real_clock(platform(tmp_path, False), clock_ms + 1, clock_ms)


CLOCK = 100 * DAY
BEGAN = CLOCK - DAY


@pytest.mark.parametrize(
    ("now_ms", "began_ms"),
    [
        pytest.param(BEGAN, BEGAN, id="as the run began, a day ago: it waited for a person"),
        pytest.param(BEGAN - SKEW_MS, BEGAN, id="by a machine whose clock is behind"),
        pytest.param(CLOCK + SKEW_MS, BEGAN, id="by a machine whose clock is ahead"),
        pytest.param(CLOCK - HOUR, None, id="by hand, an hour after it was planned"),
    ],
)
def test_a_job_goes_by_the_clock_of_a_plan_of_its_run(tmp_path, now_ms, began_ms):
    require_clock_of_run(platform(tmp_path, False), now_ms, began_ms, CLOCK)


@pytest.mark.parametrize(
    ("now_ms", "began_ms", "match"),
    [
        pytest.param(0, BEGAN, "before the run began.*Clear evaluate", id="1970"),
        pytest.param(-(10**18), BEGAN, "before the run began", id="before all time"),
        pytest.param(BEGAN - SKEW_MS - 1, BEGAN, "1 ms before the run began", id="just before the run"),
        pytest.param(CLOCK - HOUR - 1, None, "1 ms before the run began", id="by hand, too old"),
        pytest.param(CLOCK + SKEW_MS + 1, BEGAN, "ahead of the clock", id="ahead"),
        pytest.param(CLOCK + DAY, CLOCK + 2 * DAY, "ahead of the clock", id="ahead, of a run that says so too"),
    ],
)
def test_a_job_refuses_a_clock_that_is_not_of_its_run(tmp_path, now_ms, began_ms, match):
    with pytest.raises(CleantailError, match=match):
        require_clock_of_run(platform(tmp_path, False), now_ms, began_ms, CLOCK)
    require_clock_of_run(platform(tmp_path, True), now_ms, began_ms, CLOCK)


def test_a_clock_of_before_the_run_is_not_tried_again(tmp_path):
    with pytest.raises(HeldError, match="nothing was changed"):
        require_clock_of_run(platform(tmp_path, False), 0, BEGAN, CLOCK)


def test_no_clock_ahead_makes_snapshots_expire(orders_table):
    for offset in range(3):
        orders_table.append((0, offset, 1, b"a", b"x"))
    ahead = int(time.time() * 1000) + 100 * DAY
    plan = evaluate_topic(orders_table.topic, now_ms=ahead)
    assert (plan.now_ms, plan.reclaim.expired_snapshots) == (ahead, 0)
    trial = orders_table.platform.model_copy(update={"allow_clock": True})
    assert evaluate_topic(orders_table.topic.on(trial), now_ms=ahead).reclaim.expired_snapshots == 2


def test_gc_enabled_false_keeps_all_snapshots(orders_table):
    for offset in range(3):
        orders_table.append((0, offset, 1, b"a", b"x"))
    orders_table.set_properties(**{"gc.enabled": "false"})
    trial = orders_table.platform.model_copy(update={"allow_clock": True})
    ahead = int(time.time() * 1000) + 100 * DAY
    assert evaluate_topic(orders_table.topic.on(trial), now_ms=ahead).reclaim.expired_snapshots == 0

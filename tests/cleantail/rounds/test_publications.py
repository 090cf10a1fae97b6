"""What evidence and table say became of a compaction."""

from __future__ import annotations

from dataclasses import replace

from cleantail.log.partition_state import PartitionState, Quarantine
from cleantail.log.round_state import COMPACT
from cleantail.rounds.checked_round import Verdict
from cleantail.rounds.publications import (
    LAST_COMPACTION_JSON,
    PROPERTY_COMPACTION,
    LastCompaction,
    identity_of,
    publication_of,
    quarantine_of,
)
from cleantail.rounds.recorded_checks import last_compaction
from tests.cleantail.rounds.test_recorded_checks import TOPIC, rows_of
from tests.round_builders import check_result, checked_round, partition_work, staged_unit

RED = (Verdict(0, False, failures=(check_result(),)),)


def measured(**changes):
    """A round whose log has all the measures that a compaction has."""
    [measure] = checked_round().measures
    return checked_round(measures=(replace(measure, map_keys=1, map_records=2),), holds=(), **changes)


def written(checked, at_ms):
    """The rows of a check, as the evidence has them."""
    return [{**row, "round": checked.round, "checked_at_ms": at_ms} for row in rows_of(checked)]


def retention(**changes):
    """A round that moves the log start of log 0 and compacts nothing."""
    only = partition_work(first_dirty_offset=2)
    return measured(units=(staged_unit(only, branch="ct_r1_u0_10", head_snapshot_id=43),), **changes)


def test_the_last_compaction_is_the_one_that_was_checked_last():
    first, second = measured(verdicts=RED), measured(units=(staged_unit(branch="ct_r1_u0_11", head_snapshot_id=42),))
    found = last_compaction(TOPIC, [*written(second, 8), *written(first, 7)])
    assert (found.checked.heads, found.checked.green, found.retaining) == ([42], [0], None)
    assert [row["checked_at_ms"] for row in found.rows] == [8]


def test_the_last_compaction_of_a_run_is_its_latest_round_whatever_its_name():
    anew = measured(round="r3", units=(staged_unit(round="r3"),))
    assert last_compaction(TOPIC, [*written(measured(), 7), *written(anew, 9)]).checked.round == "r3"


def test_retention_of_what_was_held_back_is_no_compaction_of_its_own():
    held, after = measured(verdicts=RED), retention()
    found = last_compaction(TOPIC, [*written(held, 7), *written(after, 8)])
    assert (found.checked.heads, found.checked.red, found.retaining.heads) == ([41], [0], [43])
    # for a log that was not blocked it is a round like any other
    found = last_compaction(TOPIC, [*written(measured(), 7), *written(after, 8)])
    assert (found.checked.heads, found.retaining) == ([43], None)


def test_rows_that_no_check_or_an_earlier_version_wrote_are_no_compaction():
    told = [{**row, "outcome": "published"} for row in written(measured(), 7)]
    earlier = [{**row, "checked_round": None} for row in written(measured(), 7)]
    assert last_compaction(TOPIC, [*told, *earlier]) is None


def test_a_published_round_is_told_with_the_clean_point_of_every_log():
    states = {0: PartitionState(checkpoint=2), 1: PartitionState(), 2: PartitionState(checkpoint=9)}
    result = publication_of(measured(), 50, states)
    assert (result.ok, result.published, result.held_back, result.snapshot_id) == (True, (0,), (), 50)
    assert (result.checkpoints, result.ends) == ({0: 2, 2: 9}, {0: 2})
    assert identity_of(measured())["cleantail.heads"] == "41"


def test_a_round_of_which_nothing_passed_is_done_once_the_table_names_its_measures():
    red = measured(verdicts=RED)
    last = LastCompaction.of_round(red.units, red.measures)
    properties = {PROPERTY_COMPACTION: LAST_COMPACTION_JSON.text(last)}
    assert quarantine_of(red, properties).held_back == (0,)
    assert quarantine_of(red, {}) is None
    assert quarantine_of(red, {PROPERTY_COMPACTION: LAST_COMPACTION_JSON.text(replace(last, clean_ms=99))}) is None
    assert quarantine_of(measured(), properties) is None  # something passed, which only a commit says


def test_retention_of_a_log_in_quarantine_is_reported_as_retained():
    resting = {
        0: PartitionState(quarantine=Quarantine(since_ms=1, kind=COMPACT, reason="red", attempts=1, retry_at_ms=9))
    }
    assert publication_of(retention(), 7, resting).retained == (0,)
    assert publication_of(retention(), 7, {0: PartitionState()}).retained == ()
    assert publication_of(measured(), 7, {0: PartitionState()}).retained == ()

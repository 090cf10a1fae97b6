"""Checked rounds and their parts with only the numbers that a test is about."""

from __future__ import annotations

from dataclasses import replace

from cleantail.log.rules import LogMeasure
from cleantail.log.work_units import PartitionWork
from cleantail.rounds.check_results import CheckResult
from cleantail.rounds.checked_round import CheckedRound, Hold, StagedUnit, UnitCounts, Verdict
from cleantail.rounds.recorded_checks import RoundReference


def partition_work(partition=0, **changes):
    """The dirty part [0, 2) of a log of two records."""
    return replace(PartitionWork(partition, 0, 2, 0, 2), **changes)


def staged_unit(*works, **changes):
    """A unit of the round r1 that removed one record of each log."""
    works = works or (partition_work(),)
    unit = StagedUnit(
        round="r1",
        unit=0,
        now_ms=5,
        base_snapshot_id=40,
        branch="ct_r1_u0_9",
        partitions=works,
        counts=UnitCounts({"superseded": {w.partition: 1 for w in works}}, {}, {w.partition: 9 for w in works}),
        began_ms=3,
        clean_ms=1,
        map_slots=10,
        head_snapshot_id=41,
    )
    return replace(unit, **changes)


def check_result(expectation="duplicate_keys", partition=0, **changes):
    """A critical expectation that was not met."""
    result = CheckResult(partition, expectation, "a rule", "critical", False, "observed")
    return replace(result, **changes)


def checked_round(**changes):
    """A round of the topic orders in which the one log passed, and that waits for approval."""
    checked = CheckedRound(
        topic="orders",
        round="r1",
        kind="compact",
        units=(staged_unit(),),
        measures=(LogMeasure(0, records_in=2, records_out=1, deleted={"superseded": 1}),),
        verdicts=(Verdict(0, True),),
        checks_passed=9,
        checks_total=10,
        holds=(Hold(0, "publish: approve"),),
    )
    return replace(checked, **changes)


def reference_of(checked):
    """What a task hands on of a round that it has checked."""
    return RoundReference(checked.round, tuple(checked.heads), tuple(checked.green))

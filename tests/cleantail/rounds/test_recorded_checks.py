"""What the evidence keeps of a checked round, also read without the fields that were added later."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cleantail.config.topic import Topic
from cleantail.errors import HeldError, TableError
from cleantail.log.partition_state import Horizon
from cleantail.log.rules import RULES, WARNINGS, LogMeasure
from cleantail.rounds.check_results import CheckResult, RemovedRecord, sample_column
from cleantail.rounds.checked_round import Hold, KeylessLog, Verdict, keyless_logs, staged_unit
from cleantail.rounds.evidence_row import CHECKED_ROUND
from cleantail.rounds.recorded_checks import (
    RoundReference,
    parts_of,
    recorded,
    require_matching_reference,
)
from tests.round_builders import check_result, checked_round, reference_of

TOPIC = Topic.model_validate({"topic": "orders", "table": "cleantail.orders"})
SHORTER_PART = (
    '{"measure":{"duplicate_keys":0,"missing_winners":0,"foreign_records":0,"data_files_changed":0,"head_'
    'changed":0,"early_tombstones":0,"overdue_tombstones":0,"invalid_left":0,"resurrected":0,"contradicti'
    'ng_offsets":0,"imbalance":0,"malformed_versions":0,"future_timestamps":0,"records_in":2,"records_out'
    '":1,"records_read":2,"records_kept":1,"map_records":2,"map_keys":1,"partition":0,"deleted":{"superse'
    'ded":1},"tombstones_in":1,"tombstones_out":1,"guards":0,"horizons":[{"end_offset":2,"horizon_ms":86400005,"tombstones":1,"swept_to":0}],"head_tombston'
    'es":0,"proven_ms":5},"verdict":{"partition":0,"passed":false,"waits_for":[1],"failures":[{"partition'
    '":0,"expectation":"x","rule":"r","severity":"critical","passed":false,"observed":"o","error":true,"o'
    'ffsets":[]}],"warnings":[]},"hold":"publish: approve","unit":{"round":"r1","unit":0,"now_ms":5,"base'
    '_snapshot_id":40,"branch":"ct_r1_u0_9","partitions":[{"partition":0,"first_dirty_offset":0,"end_offs'
    'et":2,"log_start_offset":0,"log_end_offset":2,"bytes":0,"dirty_records":0,"hold_offset":null,"hold_c'
    'ap_ms":0,"fresh_from":null,"dirty_bytes":0,"read_bytes":0}],"counts":{"deleted":{"superseded":{"0":1'
    '}},"hidden_bytes":{"0":9},"saved_bytes":{"0":9},"plan":"by '
    'columns","keyless":{"3":[2,17]}},"began_ms":3,"clean_ms":1,"map_slots":10,"head_snapshot_id":41}}'
)
"""A row's part of a round without the fields that were added later."""
SHORTER_UNIT = (
    "eNplUctuwyAQ/JVqzxxM0qqKf6WKEDbrGBWDtYtTWZb/vYudRx83ZpgZdocFKE3RQQ2kQcEUfYa6UhDTlxkY6jcFjWU0HO3IfcrG"
    "i/ZVBA3Z2Pbia7MhbabKnMQ/Wso++xTF+rE84ZbZeeJsnKc8m9R1jPtTGN0DHhSEdDGcxfhTU8g/umbOyNvlnkjYJnI706fw1MYp"
    "hBvV2nHbqgxDyL3pKA13xR7zjCW07gHXs4JWmsoCFnAYMKMrR55GJEa3owpqva7ymncO49298Seh2V7R/WPHYKUgWeilTWEapDsF"
    "nzgH5E11lCoPSr+fS3CDFxu3HY4yUMAb0AoG2Y1DKgPqUkGZ/vev6fUbpP+mRg=="
)
"""The unit in the summary of a branch's head without the fields that were added later."""


def rows_of(checked, outcome="checked"):
    """The rows that a check of the round writes, as far as publish reads them."""
    return [
        {
            "partition": partition,
            "outcome": outcome,
            "checked_at_ms": 9,
            "head_snapshot_id": checked.heads[0],
            "checks": "[]",
            "sample": sample_column(checked.sample, partition),
            CHECKED_ROUND: text,
        }
        for partition, text in parts_of(checked).items()
    ]


def test_a_checked_round_comes_back_from_its_rows():
    checked = checked_round(
        measures=(replace(checked_round().measures[0], horizons=(Horizon(2, 90, 1, 0),), proven_ms=5),),
        sample=(RemovedRecord(0, 0, 1), RemovedRecord(0, 3, None)),
        checks_passed=0,
        checks_total=0,
    )
    assert recorded(TOPIC, "r1", "compact", rows_of(checked)) == checked


def test_what_a_check_has_seen_in_records_is_not_kept_and_what_our_own_words_are_is():
    seen, failed = check_result(observed="a-secret"), check_result("b", observed="no such column", error=True)
    warned = check_result("c", observed="a-secret", severity="warning")
    checked = checked_round(verdicts=(Verdict(0, False, (seen, failed), (warned,)),))
    [row] = rows_of(checked)
    assert "secret" not in row[CHECKED_ROUND]
    [verdict] = recorded(TOPIC, "r1", "compact", [row]).verdicts
    assert verdict == Verdict(0, False, (replace(seen, observed=""), failed), ())


def test_a_part_without_fields_that_were_added_later_is_read():
    row = rows_of(checked_round())[0] | {CHECKED_ROUND: SHORTER_PART}
    checked = recorded(TOPIC, "r1", "compact", [row])
    assert checked.measures == (
        LogMeasure(
            0, records_in=2, records_out=1, tombstones_in=1, tombstones_out=1, deleted={"superseded": 1},
            records_read=2, records_kept=1, map_records=2, map_keys=1, horizons=(Horizon(2, 86_400_005, 1, 0),),
            proven_ms=5,
        ),
    )  # fmt: skip
    failure = CheckResult(0, "x", "r", "critical", False, "o", error=True)
    assert checked.verdicts == (Verdict(0, False, (failure,), (), (1,)),)
    assert checked.holds == (Hold(0, "publish: approve"),)
    [unit] = checked.units
    assert (unit.counts.deleted, unit.counts.saved_bytes) == ({"superseded": {0: 1}}, {0: 9})
    assert (keyless_logs([unit]), unit.head_snapshot_id, unit.map_slots) == ({3: KeylessLog(2, 17)}, 41, 10)


def test_a_unit_without_fields_that_were_added_later_is_checked():
    unit = staged_unit(SHORTER_UNIT, "ct_r1_u0_9")
    assert (unit.base_snapshot_id, unit.partitions[0].end_offset, unit.counts.plan) == (40, 2, "by columns")


@pytest.mark.parametrize("changes", [{"measure": {"partition": "0"}}, {"verdict": {}}, {"unit": {"round": "r1"}}])
def test_a_part_that_cannot_be_read_is_an_error_that_names_it(changes):
    [row] = rows_of(checked_round())
    damaged = row | {CHECKED_ROUND: json.dumps(json.loads(row[CHECKED_ROUND]) | changes)}
    with pytest.raises(
        TableError, match=r"orders: column checked_round of the evidence of round r1 \(compact\) cannot"
    ):
        recorded(TOPIC, "r1", "compact", [damaged])


@pytest.mark.parametrize("text", ["{", "[]", '{"measure": 1}'], ids=["half of one", "a list", "no measures"])
def test_an_unreadable_part_of_a_checked_round_is_an_error_that_names_the_column(text):
    [row] = rows_of(checked_round())
    with pytest.raises(TableError, match="orders: column checked_round of the evidence"):
        recorded(TOPIC, "r1", "compact", [row | {CHECKED_ROUND: text}])


def test_every_rule_has_its_measure():
    assert LogMeasure(0).violations((*RULES, *WARNINGS)) == dict.fromkeys((*RULES, *WARNINGS), 0)


def test_too_few_records_break_a_rule_as_often_as_too_many():
    broken = [LogMeasure(0, imbalance=imbalance).violations(["imbalance"]) for imbalance in (-3, 3)]
    assert broken == [{"imbalance": 3}, {"imbalance": 3}]


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        (RoundReference("r1", (41,), ()), r"partitions \[\] as passed, but the evidence has \[0\]"),
        (RoundReference("r1", (), (0, 1)), r"partitions \[0, 1\] as passed, but the evidence has \[0\]"),
        (RoundReference("r1", (4711,), (0,)), "names snapshots that no check of it has read"),
    ],
)
def test_a_reference_that_contradicts_the_evidence_publishes_nothing(reference, why):
    checked = checked_round()
    require_matching_reference(reference_of(checked), checked, rows_of(checked))
    with pytest.raises(HeldError, match=f"nothing was published of round r1 .*{why}.*The XCom was changed"):
        require_matching_reference(reference, checked, rows_of(checked))

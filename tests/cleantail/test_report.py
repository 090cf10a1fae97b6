"""What the command line prints, for people and for machines."""

import json
import re
from dataclasses import replace

import pytest
from kernel_builders import log_state

from cleantail import report
from cleantail.config import Topic
from cleantail.evaluate import plan_run
from cleantail.partition_state import Horizon, PartitionState, Quarantine
from cleantail.retention import Retention
from cleantail.triggers import decide

TOPIC = Topic(topic="orders", table="n.orders")


# ---- status


def test_status_for_machines_has_every_number(capsys):
    log = log_state(horizons=(Horizon(5, 100, 2),), tombstones_without_horizon=3)
    report.status([(TOPIC, [log])], 7, for_machines=True)
    document = json.loads(capsys.readouterr().out)
    row = document["topics"]["orders"][0]
    assert document["now_ms"] == 7
    assert (row["dirty_ratio"], row["total_bytes"], row["pending_tombstones"], row["next_horizon_ms"]) == (
        0.5,
        300,
        5,
        100,
    )
    assert (row["first_dirty_offset"], row["segments"][0]["bytes"], row["state"]["checkpoint"]) == (10, 100, 10)


def test_status_for_people_has_a_row_for_each_log(capsys):
    held = PartitionState(quarantine=Quarantine(1, "compact", "check [x]", 1, 2))
    logs = [
        log_state(horizons=(Horizon(5, 0, 2),)),
        log_state(partition=1, checkpoint=None, state=held),
        log_state(partition=2, warnings=("checkpoint 9 is odd",), state=held),
    ]
    report.status([(TOPIC, logs)], 0, for_machines=False)
    out = capsys.readouterr().out
    assert "0.500" in out
    assert report.LIVE_BYTES_NOTE in out
    words = re.sub(r"[│\s]+", " ", out)
    assert "check [x]" in words
    assert "odd" in words


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        pytest.param({}, "", id="in order"),
        pytest.param({"warnings": ("w", "v")}, "w; v", id="warnings"),
        pytest.param(
            {"state": PartitionState(quarantine=Quarantine(1, "compact", "check failed: r", 1, 2))},
            "quarantined: check failed: r",
            id="quarantined",
        ),
        pytest.param(
            {"state": PartitionState(quarantine=Quarantine(1, "compact", "check failed: r", 1, 2, "failed_r_u0_1"))},
            "quarantined: check failed: r; branch failed_r_u0_1",
            id="quarantined, with a branch",
        ),
    ],
)
def test_the_note_of_a_log(changes, note):
    row = report._status_row(log_state(**changes))
    assert row == ["0", "0", "10", "10", "20", "30", "30", "100 B", "100 B", "0.500", "0", "-", note]


def test_what_is_not_known_is_a_dash_and_an_instant_is_written_out():
    row = report._status_row(log_state(checkpoint=None, horizons=(Horizon(5, 0, 2),)))
    assert (row[2], row[11]) == ("-", "1970-01-01 00:00:00")


def test_a_topic_without_records_says_so(capsys):
    report.status([(TOPIC, [])], 0, for_machines=False)
    assert capsys.readouterr().out == "orders: no records yet\n"


# ---- plan and results

EMPTY = plan_run(TOPIC, None, now_ms=0)


def test_a_plan_for_machines_is_its_json(capsys):
    report.plan(EMPTY, ["a join"], for_machines=True)
    assert json.loads(capsys.readouterr().out) == EMPTY.as_json() | {"joins": ["a join"]}


def test_a_plan_for_people_has_its_reasons(capsys):
    report.plan(replace(EMPTY, reason="[odd] reason"), ["[a] join"], for_machines=False)
    out = capsys.readouterr().out
    assert "[odd] reason" in out
    assert "unit 0: [a] join\n" in out
    assert "sweep: no tombstone waits for a horizon\nreclaim: there is no table yet\n" in out


def test_ingested_files_are_listed(capsys):
    result = {"records": 3, "files": [{"file": "a", "skipped": False}, {"file": "b", "skipped": True}]}
    report.ingested(TOPIC, result, for_machines=False)
    assert (
        capsys.readouterr().out == "a: appended\nb: already in the table, nothing added\norders: 3 records appended\n"
    )
    report.ingested(TOPIC, result, for_machines=True)
    assert json.loads(capsys.readouterr().out) == {"topic": "orders", **result}


def test_a_run_with_nothing_due_says_why(capsys):
    report.compacted(EMPTY, {"ok": True}, for_machines=False)
    assert capsys.readouterr().out == "orders: the table has no records yet\nsweep: no tombstone waits for a horizon\n"
    report.compacted(EMPTY, {"ok": True}, for_machines=True)
    assert json.loads(capsys.readouterr().out) == {"plan": EMPTY.as_json(), "ok": True}


def stage(passed=True, data_docs=None):
    failure = {"expectation": "expect_x", "rule": "1.4", "observed": "2", "severity": "critical"}
    verdict = {"partition": 0, "passed": passed, "failures": [] if passed else [failure], "warnings": []}
    deleted = {"superseded": 4, "expired": 2, "keyless": 1, "retained": 2}
    measure = {"partition": 0, "records_in": 20, "records_out": 11, "deleted": deleted, "tombstones_out": 5}
    return {
        "verdicts": [verdict],
        "measures": [measure],
        "checks_passed": 7,
        "checks_total": 8,
        "data_docs": data_docs,
        "left_behind": [],
    }


@pytest.mark.parametrize(("passed", "word"), [(True, "passed"), (False, "failed")])
def test_a_row_of_a_run_counts_what_went_and_why(passed, word):
    row = report._run_row(stage()["measures"][0], passed)
    assert [*row[:-1], re.sub(r"\[.*?\]", "", row[-1])] == ["0", "20", "11", "4", "2", "3", "5", word]


def test_failed_checks_go_to_stderr_and_the_sum_to_stdout(capsys):
    nothing = {
        "verdicts": [],
        "measures": [],
        "checks_passed": 0,
        "checks_total": 0,
        "data_docs": None,
        "left_behind": [],
    }
    report.compacted(
        replace(EMPTY, sweep=(0,)), {"compacted": stage(False, "/docs"), "expired": nothing}, for_machines=False
    )
    out, err = capsys.readouterr()
    assert "7 of 8 checks passed\ndata docs: /docs\n" in out
    assert err == "critical: partition 0: expect_x (1.4): 2\n"


def test_what_was_reclaimed_is_listed(capsys):
    result = {"reasons": ["a", "b"], **{name: n for n, name in enumerate(report.RECLAIMED, 1)}}
    report.reclaimed(TOPIC, result, for_machines=False)
    assert (
        capsys.readouterr().out
        == "orders: a; b\n  rewritten files: 1\n  new files: 2\n  expired snapshots: 3\n  orphans removed: 4\n"
        "  failed branches dropped: 5\n  evidence files merged: 6\n"
    )
    report.reclaimed(TOPIC, result, for_machines=True)
    assert json.loads(capsys.readouterr().out) == {"topic": "orders", **result}


# ---- progress


def test_progress_is_silent_for_machines(capsys):
    with report.progress(True) as step:
        step("working")
    assert capsys.readouterr() == ("", "")


def test_progress_goes_to_stderr_a_line_a_step(capsys):
    with report.progress(False) as step:
        step("one [step]")
        step("two")
    out, err = capsys.readouterr()
    assert (out, re.sub(r"[\d.]+s", "0s", err).split()) == ("", ["0s", "one", "[step]", "0s", "two"])


@pytest.mark.parametrize(
    "printed",
    [
        pytest.param(lambda plan: report.plan(plan, [], for_machines=False), id="plan"),
        pytest.param(lambda plan: report.compacted(plan, {"ok": True}, for_machines=False), id="compact"),
    ],
)
def test_a_repaired_checkpoint_is_warned_of_by_plan_and_by_compact(capsys, printed):
    log = log_state(partition=3, warnings=("checkpoint 200 is above the log end 30: reset to the log start 0",))
    decided = {"decisions": (decide(log, TOPIC.config, 0),), "retentions": (Retention(0, False, "none"),)}
    printed(replace(EMPTY, logs=(log,), **decided))
    expected = "warning: partition 3: checkpoint 200 is above the log end 30: reset to the log start 0\n"
    assert capsys.readouterr().err == expected

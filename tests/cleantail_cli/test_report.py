"""What the command line prints, for people and for machines."""

import json
import re
import sys
from dataclasses import replace

import pytest

from cleantail.config.topic import Topic
from cleantail.lake.evaluate import plan_run
from cleantail.log.due_work import Retention
from cleantail.log.partition_state import Horizon, PartitionState, Quarantine
from cleantail.log.rules import LogMeasure
from cleantail.log.triggers import decide
from cleantail.rounds.checked_round import RoundResult, Verdict
from cleantail.rounds.run_plan import PlannedLog
from cleantail.rounds.station_results import RECLAIMED, FileIngestResult, IngestedFile, ReclaimResult
from cleantail.rounds.stations import TopicOutcome
from cleantail.watch.topic_states import TopicStatus
from cleantail_cli import output, plan_command, round_commands, status_command
from cleantail_cli.ingest_command import answer_of
from cleantail_cli.output import ConsoleOutput, JsonOutput
from cleantail_cli.plan_command import ShownPlan
from cleantail_cli.round_commands import Compacted
from cleantail_cli.status_command import Status
from cleantail_cli.upkeep_commands import Reclaimed
from tests.cleantail.kernel_builders import log_state, segment
from tests.round_builders import check_result

TOPIC = Topic(topic="orders", table="n.orders")
PEOPLE, MACHINES = ConsoleOutput(), JsonOutput()


# ---- status


def test_status_for_machines_has_every_number(capsys):
    log = log_state(horizons=(Horizon(5, 100, 2),), tombstones_without_horizon=3)
    MACHINES.show(Status([TopicStatus(TOPIC, [log])], 7))
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


def test_status_for_people_has_a_block_for_each_log(capsys):
    held = PartitionState(quarantine=Quarantine(1, "compact", "check [x]", 1, 2))
    logs = [
        log_state(horizons=(Horizon(5, 0, 2),)),
        log_state(partition=1, checkpoint=None, state=held),
        log_state(partition=2, warnings=("checkpoint 9 is odd",), state=held),
    ]
    PEOPLE.show(Status([TopicStatus(TOPIC, logs)], 0))
    out = capsys.readouterr().out
    assert "0.500" in out
    words = re.sub(r"[│\s]+", " ", out)
    assert "check [x]" in words
    assert "odd" in words


HELD = PartitionState(quarantine=Quarantine(1, "compact", "check failed: r", 1, 2, "failed_" + "x" * 120))


@pytest.mark.parametrize("columns", ["", "60", "80", "100"])
def test_where_a_line_is_too_short_a_partition_is_a_block_and_a_name_stays_whole(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    logs = [log_state(state=HELD, warnings=("w " * 60,)), log_state(partition=1, horizons=(Horizon(5, 0, 1),))]
    PEOPLE.show(Status([TopicStatus(TOPIC, logs)], 0))
    lines = capsys.readouterr().out.splitlines()
    branch = [line for line in lines if "branch" in line]
    assert [line.split() for line in branch] == [["branch", HELD.quarantine.branch]]
    width = int(columns or output.PIPE_COLUMNS)
    assert max(len(line) for line in lines if line not in branch) <= width
    assert [line.split() for line in lines if line.startswith("  partition")] == [
        ["partition", "0"],
        ["partition", "1"],
    ]


def test_a_block_has_every_section_of_the_log(capsys):
    log = log_state(
        segments=(segment(0, 10), segment(10, 20), segment(20, 25), segment(25, 30, bytes=8_500)),
        active_base_offset=25,
        horizons=(Horizon(5, 100, 1),),
    )
    PEOPLE.show(Status([TopicStatus(TOPIC, [log])], 0))
    words = " ".join(capsys.readouterr().out.split())
    assert "clean 100 B, cleanable 100 B, uncleanable 100 B, active 8.3 KiB" in words
    assert "log start 0, first dirty 10, first uncleanable 20, log end 30" in words
    assert "30, 1 tombstone pending, the next horizon is 1970-01-01 00:00:00 UTC" in words
    assert "dirty ratio 0.500, min.cleanable.dirty.ratio 0.5" in words


def test_a_terminal_that_is_wide_enough_gets_a_table_and_what_each_log_waits_for(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    PEOPLE.show(Status([TopicStatus(TOPIC, [log_state(), log_state(partition=1, state=HELD)])], 0))
    head, columns, first, second, *notes = capsys.readouterr().out.splitlines()
    assert head == "orders  (table n.orders)"
    assert {len(columns), len(first), len(second)} == {len(columns)}
    assert second.split()[:6] == ["1", "0", "10", "20", "30", "30"]
    assert any(line.split() == ["branch", HELD.quarantine.branch] for line in notes)
    monkeypatch.setenv("COLUMNS", "90")
    PEOPLE.show(Status([TopicStatus(TOPIC, [log_state()])], 0))
    assert "  partition 0\n" in capsys.readouterr().out


def test_what_is_not_known_is_a_dash_and_an_instant_is_written_out():
    row = dict(zip(status_command.COLUMNS, status_command.row_of(log_state()), strict=True))
    assert row["next horizon (UTC)"] == "-"
    row = status_command.row_of(log_state(horizons=(Horizon(5, 0, 2),)))
    assert row[-1] == "1970-01-01 00:00:00"


def test_a_topic_without_records_says_so(capsys):
    PEOPLE.show(Status([TopicStatus(TOPIC, [])], 0))
    assert capsys.readouterr().out == "orders: no records yet\n"


# ---- plan and results

EMPTY = plan_run(TOPIC, None, now_ms=0)


def with_log(log, **changes):
    """A plan of one log."""
    planned = PlannedLog(log, decide(log, TOPIC.config, 0), Retention(0, False, "none"))
    return replace(EMPTY, by_log=(planned,), **changes)


def test_a_plan_for_machines_is_its_json(capsys):
    MACHINES.show(ShownPlan(EMPTY, ["a join"]))
    assert json.loads(capsys.readouterr().out) == EMPTY.as_json() | {"joins": ["a join"]}


def test_a_plan_for_people_has_its_reasons(capsys):
    PEOPLE.show(ShownPlan(replace(EMPTY, reason="[odd] reason"), ["[a] join"]))
    out = capsys.readouterr().out
    assert "[odd] reason" in out
    assert "\n[a] join\n" in out
    assert "tombstones: there is no tombstone to expire\nreclaim: there is no table yet\n" in out


def test_ingested_files_are_listed(capsys):
    result = FileIngestResult((IngestedFile("a", "1f", False), IngestedFile("b", "2e", True)), 3, ("w",))
    PEOPLE.show(answer_of(TOPIC, result))
    out, err = capsys.readouterr()
    assert out == "a: appended\nb: already in the table, nothing added\norders: 3 records appended\n"
    assert err == "warning: w\n"
    MACHINES.show(answer_of(TOPIC, result))
    files = [{"file": "a", "sha256": "1f", "skipped": False}, {"file": "b", "sha256": "2e", "skipped": True}]
    assert json.loads(capsys.readouterr().out) == {
        "topic": "orders",
        "ok": True,
        "files": files,
        "records": 3,
        "warnings": ["w"],
    }


def test_a_run_with_nothing_due_says_why(capsys):
    PEOPLE.show(Compacted(EMPTY, TopicOutcome("orders")))
    assert (
        capsys.readouterr().out == "orders: the table has no records yet\ntombstones: there is no tombstone to expire\n"
    )
    MACHINES.show(Compacted(EMPTY, TopicOutcome("orders")))
    assert json.loads(capsys.readouterr().out) == {"plan": EMPTY.as_json(), "ok": True}


def stage(passed=True, data_docs=None):
    verdict = Verdict(0, passed, () if passed else (check_result("expect_x", rule="1.4", observed="2"),))
    deleted = {"superseded": 4, "expired": 2, "keyless": 1, "retained": 2}
    measure = LogMeasure(0, records_in=20, records_out=11, deleted=deleted, tombstones_out=5)
    return RoundResult(verdicts=(verdict,), measures=(measure,), checks_passed=7, checks_total=8, data_docs=data_docs)


@pytest.mark.parametrize(("passed", "word"), [(True, "passed"), (False, "failed")])
def test_a_row_of_a_run_counts_what_went_and_why(passed, word):
    row = round_commands._run_row(stage().measures[0], passed)
    assert row == (0, 20, 11, 4, 2, 3, 5, word)


def test_failed_checks_go_to_stderr_and_the_sum_to_stdout(capsys):
    result = TopicOutcome("orders", False, compacted=stage(False, "/docs"))
    PEOPLE.show(Compacted(replace(EMPTY, sweep=(0,)), result))
    out, err = capsys.readouterr()
    assert "7 of 8 checks passed\ndata docs: /docs\n" in out
    assert err == "critical: partition 0: expect_x (1.4): 2\n"


def test_a_check_of_severity_warning_that_blocks_a_log_is_printed_as_blocking(capsys):
    unevaluated = check_result(
        "expect_x", rule="1.4", severity="warning", observed="could not be evaluated: x", error=True
    )
    other = check_result("expect_y", rule="2", severity="warning", observed="3")
    held = replace(stage(False), verdicts=(Verdict(0, False, (unevaluated,), (other,)),))
    PEOPLE.show(Compacted(replace(EMPTY, sweep=(0,)), TopicOutcome("orders", False, compacted=held)))
    assert capsys.readouterr().err == (
        "warning, but blocked: partition 0: expect_x (1.4): could not be evaluated: x\n"
        "warning: partition 0: expect_y (2): 3\n"
    )


def test_a_plan_says_what_a_scheduled_run_leaves_alone(capsys):
    def planned(now_ms):
        held = Quarantine(0, "compact", "check failed: expect_x", 1, 60_000)
        return with_log(log_state(state=PartitionState(quarantine=held)), now_ms=now_ms)

    plan_command.print_held_back(planned(59_999), PEOPLE)
    assert capsys.readouterr().err == (
        "warning: partition 0: blocked: check failed: expect_x; a scheduled run skips it until "
        "1970-01-01 00:01:00 UTC, `cleantail compact` does not\n"
    )
    plan_command.print_held_back(planned(60_000), PEOPLE)
    assert capsys.readouterr().err == ""


def test_what_was_reclaimed_is_listed(capsys):
    counts = {name: n for n, name in enumerate(RECLAIMED, 1)}
    result = ReclaimResult(("a", "b"), reclaimed_bytes=9, **counts)
    PEOPLE.show(Reclaimed(TOPIC, result))
    assert (
        capsys.readouterr().out
        == "orders: a; b\n  rewritten files: 1\n  new files: 2\n  expired snapshots: 3\n  orphans removed: 4\n"
        "  failed branches dropped: 5\n  evidence files merged: 6\n  evidence rows summarized: 7\n"
        "  results removed: 8\n  side snapshots expired: 9\n  side orphans removed: 10\n"
    )
    MACHINES.show(Reclaimed(TOPIC, result))
    head = {"topic": "orders", "ok": True, "reasons": ["a", "b"], "reclaimed_bytes": 9}
    assert json.loads(capsys.readouterr().out) == head | counts


@pytest.mark.parametrize(
    "printed",
    [
        pytest.param(lambda plan: PEOPLE.show(ShownPlan(plan, [])), id="plan"),
        pytest.param(lambda plan: PEOPLE.show(Compacted(plan, {"ok": True})), id="compact"),
    ],
)
def test_a_repaired_checkpoint_is_warned_of_by_plan_and_by_compact(capsys, printed):
    log = log_state(partition=3, warnings=("first dirty offset 200 is above the log end 30: reset to the log start 0",))
    printed(with_log(log))
    expected = "warning: partition 3: first dirty offset 200 is above the log end 30: reset to the log start 0\n"
    assert capsys.readouterr().err == expected

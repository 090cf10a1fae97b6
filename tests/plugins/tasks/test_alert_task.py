"""What the last task of a run makes of the other tasks' states and notes."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowSkipException

from cleantail.config.alert_channels import Event
from cleantail.log.log_state import LogState
from cleantail.log.partition_state import PartitionState, Quarantine
from cleantail.watch.incidents import Book, Condition, cause_of
from cleantail_airflow.alerts import channels
from cleantail_airflow.alerts.alerting import red_alarms
from cleantail_airflow.alerts.channels import PREFIX, load_book, variable_name
from cleantail_airflow.alerts.ended_run import EndedTask, FailedInstance, RunCoverage, run_alarms
from cleantail_airflow.outcomes.failures import (
    LOST,
    NOTE,
    UNREADABLE,
    Failure,
    FailureNote,
    RedCheck,
    failures_of,
    noted,
    parsed_note,
)
from tests.airflow_site import NOW_MS, failure, parsed, verdict

RED = failures_of("orders", parsed(verdict(4, failure(), failure(expectation="expect_b")), verdict(5, failure())))


class Notes:
    """A task instance that keeps its XComs."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.kept[key] = value


def log(partition: int, quarantine: Quarantine | None = None) -> LogState:
    numbers = dict.fromkeys(LogState.__dataclass_fields__, 0)
    return LogState(**{**numbers, "partition": partition, "state": PartitionState(quarantine=quarantine)})  # type: ignore[arg-type]


def state(task_id: str, value: str) -> EndedTask:
    return EndedTask(task_id, value)


def noted_by(error: Exception) -> Any:
    ti = Notes()
    with pytest.raises(type(error), match="."), noted({"ti": ti}):  # type: ignore[typeddict-item]
        raise error
    return ti.kept.get(NOTE)


# ---- notes


def test_a_failed_task_notes_its_reason() -> None:
    note = noted_by(AirflowException("no disk"))
    assert (parsed_note(note).reason, parsed_note(note).red) == ("no disk", ())
    assert json.loads(json.dumps(note)) == note, "an XCom is JSON"


def test_a_red_check_notes_what_failed() -> None:
    assert parsed_note(noted_by(RedCheck("orders", RED))).red == tuple(RED)


def test_a_skipped_task_notes_nothing() -> None:
    assert noted_by(AirflowSkipException("nothing due")) is None


def test_a_task_that_noted_nothing_was_killed_or_lost() -> None:
    assert parsed_note(None) == FailureNote(LOST)


def test_the_note_of_the_version_before_is_read() -> None:
    row = {"topic": "o", "partition": 4, "expectation": "e", "severity": "critical", "observed": "2", "detail": ""}
    note = parsed_note({"reason": "red", "red": [row | {"offsets": [7]}]})
    assert note == FailureNote("red", (Failure("o", 4, "e", "critical", "2", "", (7,)),), 0)


@pytest.mark.parametrize("xcom", ["x", 3, {}, {"reason": 3}, {"reason": "r", "red": [{"topic": "o"}]}], ids=str)
def test_a_note_that_a_user_has_changed_counts_as_unreadable(xcom: Any) -> None:
    assert parsed_note(xcom) == FailureNote(UNREADABLE)


# ---- what is wrong


def test_a_failed_check_does_not_count_as_a_failed_run() -> None:
    failed = [
        FailedInstance("compact", "no disk", "l0", at_ms=7),
        FailedInstance("check_quality", "red", "l", tuple(RED)),
    ]
    failed.append(FailedInstance("compact", "the same", "l1"))
    found = Condition(
        Event.RUN_FAILED, "task compact", "compact failed: no disk", "l0", seen_ms=7, cause=cause_of("no disk")
    )
    assert run_alarms(failed) == [found]


def test_a_failed_check_is_the_incident_of_its_quarantine() -> None:
    """Held already: since then. Not held yet: publish will write the time of the verdict, here unknown."""
    held = Quarantine(7, "compact", "check failed: r", 3, 9)
    first, second = red_alarms(RED, [log(4, held), log(5)], "link", NOW_MS, 15_000)
    assert (first.subject, first.occurrence, first.link, first.partition) == ("partition 4", "since 7", "link", 4)
    assert first.text == (
        "partition 4: check failed: expect_b, expect_column_values_to_not_be_null; blocked since "
        "1970-01-01 00:00:00 UTC, tried again by the first run after 2023-11-14 22:15:20 UTC"
    )
    assert (second.subject, second.occurrence) == ("partition 5", f"since {NOW_MS}")


def test_a_failed_check_after_a_rejection_is_a_new_occurrence() -> None:
    rejected = Quarantine(7, "compact", "rejected by anna", 1, 9)
    first, _ = red_alarms(RED, [log(4, rejected)], "link", NOW_MS, 0)
    assert first.occurrence == f"since {NOW_MS}"


# ---- what is over

LOGS = [log(0), log(4)]


@pytest.mark.parametrize(
    ("states", "over"),
    [
        pytest.param([state("compact", "success"), state("publish", "failed")], True, id="the task succeeded"),
        pytest.param([state("compact", "skipped"), state("evaluate", "success")], True, id="nothing due, all green"),
        pytest.param([state("compact", "skipped"), state("ingest", "failed")], False, id="not tried"),
        pytest.param([state("compact", "upstream_failed")], False, id="not reached"),
        pytest.param([state("compact", "success"), state("compact", "failed")], False, id="one unit of two"),
    ],
)
def test_a_task_is_well_again_when_it_succeeded_or_the_run_was_green(states: list[EndedTask], over: bool) -> None:
    assert RunCoverage.of(states, LOGS, None).includes(Condition(Event.RUN_FAILED, "task compact", "")) is over


def test_a_rollback_and_a_run_that_goes_on_make_no_task_well() -> None:
    coverage = RunCoverage.of([state("compact", "skipped")], LOGS, None, all_tried=False)
    assert coverage.includes(Condition(Event.RUN_FAILED, "task compact", "")) is False


@pytest.mark.parametrize(
    ("event", "partition", "only_partition", "over"),
    [
        pytest.param(Event.QUARANTINED, 4, None, True, id="seen"),
        pytest.param(Event.QUARANTINED, 4, 0, True, id="a state is seen whatever the run was for"),
        pytest.param(Event.QUARANTINED, 7, None, False, id="no such log"),
        pytest.param(Event.DEADLINE_MISSED, 4, 4, True, id="the run was for it"),
        pytest.param(Event.DEADLINE_MISSED, 4, 0, False, id="the run was for another partition"),
        pytest.param(Event.ERASURE, 4, 0, False, id="erasure too"),
        pytest.param(Event.ERASURE, None, 0, True, id="requests to erase keys are read by every run"),
    ],
)
def test_a_run_for_one_partition_can_end_only_incidents_that_it_covers(
    event: Event, partition: int | None, only_partition: int | None, over: bool
) -> None:
    assert RunCoverage.of([], LOGS, only_partition).includes(Condition(event, "s", "", partition=partition)) is over


def test_no_incident_of_an_unreadable_table_can_end() -> None:
    assert RunCoverage.of([], None, None).includes(Condition(Event.QUARANTINED, "s", "", partition=4)) is False


# ---- the book


@pytest.mark.parametrize("topic", ["orders", "o" * 249])
def test_the_name_of_the_variable_is_never_too_long(topic: str) -> None:
    assert len(variable_name(topic)) <= 250
    assert variable_name(topic).startswith(PREFIX)
    assert variable_name(topic) != variable_name(topic + "x")


def test_an_unreadable_book_of_incidents_is_replaced_by_an_empty_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_CLEANTAIL.INCIDENTS.ORDERS", "{}")
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(channels.logger, "propagate", True)
    assert load_book("orders") == Book()
    assert "open incidents are sent again" in caplog.text

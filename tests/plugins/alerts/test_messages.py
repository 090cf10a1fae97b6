"""What an alert says: one message for all partitions, with links, and nothing of the data as markup."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from cleantail.config.alert_channels import Event
from cleantail.watch.incidents import Condition, Incident, Notification
from cleantail_airflow.alerts.messages import LINES_SHOWN, MessageOrigin, mail_body, message_of, slack_text
from cleantail_airflow.outcomes.failures import failures_of
from tests.airflow_site import failure, parsed, verdict

PLACE = MessageOrigin("http://ui", "orders", "orders", "manual__1", "2026-01-01T00:00:00+00:00")
LINK = "http://ui/dags/orders/runs/manual__1/tasks/check_quality?try_number=1"
HOSTILE = "{{ 7 * 7 }}<script>alert(1)</script><!channel> &"


def check(partition: int, over_ms: int | None = None) -> Incident:
    text = f"partition {partition}: check failed: x"
    return Incident(Condition(Event.CHECK_FAILED, f"partition {partition}", text, LINK, partition), 1_000, over_ms)


def of(
    event: Event, *subjects: str, partition: int | None = None, run_id: str = "", occurrence: str = ""
) -> tuple[Incident, ...]:
    conditions = (
        Condition(event, s, f"{s}: text", "", partition, occurrence=occurrence, run_id=run_id) for s in subjects
    )
    return tuple(Incident(condition, 1_000, None) for condition in conditions)


def over(*incidents: Incident) -> tuple[Incident, ...]:
    return tuple(replace(i, over_ms=61_000) for i in incidents)


def said(begun: Iterable[Incident] = (), ended: Iterable[Incident] = (), still: Iterable[Incident] = (), red=()):  # type: ignore[no-untyped-def]
    notification = Notification([*begun, *ended, *still][0].condition.event, tuple(begun), tuple(ended), tuple(still))
    return message_of(notification, red, PLACE)


def red(*partitions: int, **more: object):  # type: ignore[no-untyped-def]
    return failures_of("orders", parsed(*(verdict(p, failure(**more)) for p in partitions)))


def test_all_partitions_of_a_red_check_are_one_message() -> None:
    message = said([check(4), check(2)], red=red(2, 4, 7))
    assert message.subject == "[cleantail] orders: check failed, partitions 2, 4 blocked"
    assert [f.partition for f in message.failures] == [2, 4]
    assert (message.task, message.link, message.event, message.state) == ("check_quality", LINK, "check_failed", "open")
    assert message.page == "http://ui/cleantail/topics/orders#log-4"
    assert message.text.splitlines()[-2:] == [message.link, message.page]


def test_a_pager_finds_one_incident_an_event_and_what_is_open_of_it() -> None:
    first, second = said([check(4), check(2)]), said([], [*over(check(4))], [check(2)])
    assert first.incident == second.incident == "cleantail/orders/check_failed"
    assert (first.state, first.open, first.over) == ("open", ("partition 2", "partition 4"), ())
    assert (second.state, second.open, second.over) == ("open", ("partition 2",), ("partition 4",))
    for message in (first, second):
        assert "\nincident cleantail/orders/check_failed: open\n" in message.text
        assert "<p>incident cleantail/orders/check_failed: open</p>" in mail_body(message)
    assert {"incident", "open", "over", "state"} <= set(first.as_json())


ONE, TWO = of(Event.RUN_FAILED, "task ingest"), of(Event.RUN_FAILED, "task ingest", "task publish")
READERS = of(Event.HOLD_CAP, "reader a of partition 3", "reader b of partition 3", partition=3)
LATE = of(Event.DEADLINE_MISSED, "partition 3", partition=3)
ROUND = of(Event.APPROVAL, "task approve of run r")
APPROVED = (replace(ROUND[0], over_ms=61_000, outcome="approved by Anna"),)


@pytest.mark.parametrize(
    ("begun", "ended", "still", "headline"),
    [
        pytest.param([check(4)], [], [], "check failed, partition 4 blocked", id="one"),
        pytest.param([check(4)], [], [check(1)], "check failed, partitions 1, 4 blocked", id="one more"),
        pytest.param([], over(check(4)), [], "resolved: check failed, partition 4 no longer blocked", id="all over"),
        pytest.param(
            [],
            over(check(0)),
            [check(1)],
            "resolved for partition 0, still open: check failed, partition 1 blocked",
            id="one of two over",
        ),
        pytest.param(
            [check(2)],
            over(check(0), check(1)),
            [],
            "check failed, partition 2 blocked; resolved for partitions 0, 1",
            id="another one, two over",
        ),
        pytest.param(of(Event.QUARANTINED, "partition 3", partition=3), [], [], "partition 3 blocked", id="quarantine"),
        pytest.param(TWO, [], [], "ingest, publish failed", id="tasks"),
        pytest.param([], over(*ONE), [], "resolved: ingest failed", id="task over"),
        pytest.param(
            ONE,
            [],
            of(Event.RUN_FAILED, "task check", "task publish", run_id="manual__0"),
            "ingest failed; still open from an earlier run: check, publish",
            id="a task of this run, and tasks of an earlier one",
        ),
        pytest.param(
            ONE,
            [],
            of(Event.RUN_FAILED, "task check", run_id="manual__1"),
            "ingest, check failed",
            id="tasks of one run that were seen one after the other",
        ),
        pytest.param(
            of(Event.RUN_FAILED, "task check", run_id="manual__0"),
            [],
            [],
            "still open from an earlier run: check",
            id="a task of an earlier run alone",
        ),
        pytest.param(
            of(Event.QUARANTINED, "partition 3", partition=3, run_id="manual__0"),
            [],
            [],
            "partition 3 blocked",
            id="a partition is blocked whichever run saw it",
        ),
        pytest.param([], over(*ONE), TWO[1:], "resolved for ingest, still open: publish failed", id="one task over"),
        pytest.param(
            READERS[:1], [], [], "tombstones were deleted before 1 reader (partition 3) had read them", id="reader"
        ),
        pytest.param(
            READERS, [], [], "tombstones were deleted before 2 readers (partition 3) had read them", id="readers"
        ),
        pytest.param(LATE, [], [], "deadline missed, partition 3", id="late"),
        pytest.param(of(Event.ERASURE, "partition 3", partition=3), [], [], "erasure overdue, partition 3", id="erase"),
        pytest.param(
            of(Event.ERASURE, "request r1", occurrence="soon"), [], [], "erasure due soon, 1 request", id="request"
        ),
        pytest.param(
            [*of(Event.ERASURE, "partition 3", partition=3), *of(Event.ERASURE, "request r1", occurrence="soon")],
            [],
            [],
            "erasure overdue, partition 3, 1 request",
            id="tombstones and a request",
        ),
        pytest.param(
            of(Event.GAP, "partition 3", partition=3),
            [],
            [],
            "records of the source are missing, partition 3",
            id="gap",
        ),
        pytest.param(
            of(Event.GAP, "source table"),
            [],
            [],
            "the source table was changed, or its snapshots were deleted before they were read",
            id="source table",
        ),
        pytest.param(
            of(Event.RECONCILE, "partition 3", partition=3),
            [],
            [],
            "deletions may be missing, a reconciliation is needed, partition 3",
            id="forgotten",
        ),
        pytest.param(
            ROUND, [], [], "a round waits for approval (Airflow: Browse, Required Actions)", id="a round that waits"
        ),
        pytest.param(
            [],
            over(*ROUND),
            [],
            "resolved: a round waited for approval (Airflow: Browse, Required Actions)",
            id="ended",
        ),
        pytest.param([], APPROVED, [], "resolved: the round was approved by Anna", id="answered"),
        pytest.param(
            [],
            APPROVED * 2,
            [],
            "resolved: a round waited for approval (Airflow: Browse, Required Actions)",
            id="two answers: the lines have them",
        ),
        pytest.param(
            [check(n) for n in range(23)],
            [],
            [],
            f"check failed, partitions {', '.join(map(str, range(20)))} and 3 more blocked",
            id="many",
        ),
    ],
)
def test_the_headline_has_the_state_of_the_event(begun, ended, still, headline) -> None:  # type: ignore[no-untyped-def]
    assert said(begun, ended, still).headline == headline


@pytest.mark.parametrize(
    ("incident", "line"),
    [
        (check(1), "partition 1 is no longer blocked"),
        (ONE[0], "task ingest succeeds again"),
        (LATE[0], "partition 3 is no longer overdue"),
        (READERS[0], "reader a of partition 3 is no longer behind, or no longer registered"),
        (of(Event.ERASURE, "partition 3", partition=3)[0], "partition 3 no longer has overdue tombstones"),
        (of(Event.ERASURE, "request r1")[0], "request r1 to erase keys has ended, or is no longer near its deadline"),
        (of(Event.QUARANTINED, "partition 3", partition=3)[0], "partition 3 is no longer blocked"),
        (of(Event.GAP, "partition 3", partition=3)[0], "partition 3 had no gap for a day"),
        (of(Event.GAP, "source table")[0], "source table had no gap for a day"),
        (of(Event.RECONCILE, "partition 3", partition=3)[0], "partition 3 no longer needs a reconciliation"),
        (ROUND[0], "the round no longer waits"),
        (APPROVED[0], "the round was approved by Anna"),
    ],
    ids=lambda value: value.condition.event.value if isinstance(value, Incident) else None,
)
def test_the_message_about_an_end_has_its_subject_and_when_the_incident_began_and_ended(
    incident: Incident, line: str
) -> None:
    message = said([], over(incident), red=red(1))
    assert message.reason == f"{line} (from 1970-01-01 00:00:01 to 1970-01-01 00:01:01 UTC)"
    assert message.failures == ()


def test_a_message_about_an_end_repeats_the_incidents_that_are_still_open() -> None:
    assert said([], over(check(0)), [check(1)]).reason.splitlines()[1:] == ["partition 1: check failed: x"]
    assert said([check(0)], [], [check(1)]).reason == "partition 0: check failed: x"


def test_a_message_about_very_many_partitions_stays_short() -> None:
    message = said([check(n) for n in range(LINES_SHOWN + 7)])
    assert len(message.open) == LINES_SHOWN + 7
    assert message.reason.splitlines()[-1] == "and 7 more"


def test_a_message_without_a_task_leads_to_the_page_once() -> None:
    message = said([Incident(Condition(Event.DEADLINE_MISSED, "partition 3", "late", PLACE.page(3), 3), 1)])
    assert (message.task, message.link) == ("", "http://ui/cleantail/topics/orders#log-3")
    assert message.text.count("http") == 1
    assert mail_body(message).count("<a href=") == 1


def test_examples_of_records_are_neither_markup_nor_a_mention() -> None:
    message = said([check(4)], red=[replace(f, examples=(HOSTILE, "second")) for f in red(4)])
    assert message.text.count(HOSTILE) == 1
    body = mail_body(message)
    assert "<td>examples</td>" in body and "&lt;!channel&gt; &amp;" in body and "; second</td>" in body
    assert "<script>" not in body and "<" not in slack_text(message)
    assert "examples" not in mail_body(said([check(4)], red=red(4)))


def test_observed_data_is_neither_markup_nor_a_mention() -> None:
    message = said([check(4)], red=red(4, observed=HOSTILE))
    assert HOSTILE in message.text
    body = mail_body(message)
    assert "{{ 7 * 7 }}&lt;script&gt;" in body
    assert "<script>" not in body
    text = slack_text(message)
    assert "<" not in text
    assert "&lt;!channel&gt; &amp;" in text

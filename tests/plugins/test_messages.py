"""What an alert says: one message for all partitions, with links, and nothing of the data as markup."""

from __future__ import annotations

from cleantail.events import Event
from cleantail.incidents import Condition, Incident
from cleantail_airflow.messages import LINES_SHOWN, Place, mail_body, messages_of, slack_text
from cleantail_airflow.red_check import failures_of
from tests.airflow_site import failure, verdict

PLACE = Place("http://ui", "orders", "manual__1", "2026-01-01T00:00:00+00:00")
LINK = "http://ui/dags/orders/runs/manual__1/tasks/check_quality?try_number=1"
HOSTILE = "{{ 7 * 7 }}<script>alert(1)</script><!channel> &"


def check(partition: int, over_ms: int | None = None) -> Incident:
    subject = f"partition {partition} since 1"
    text = f"partition {partition}: check failed: x"
    return Incident(Condition(Event.CHECK_FAILED, subject, text, LINK, partition), 1_000, over_ms)


def failed(task: str) -> Incident:
    link = f"http://ui/dags/orders/runs/manual__1/tasks/{task}"
    return Incident(Condition(Event.RUN_FAILED, f"task {task}", f"{task} failed: no disk", link), 1_000)


def red(*partitions: int, **more: object):  # type: ignore[no-untyped-def]
    return failures_of("orders", {"verdicts": [verdict(p, failure(**more)) for p in partitions]})


def test_all_partitions_of_a_red_check_are_one_message() -> None:
    [(message, told)] = messages_of([check(4), check(2)], red(2, 4, 7), PLACE)
    assert message.subject == "[cleantail] orders: check failed, partitions held back: 2, 4"
    assert [f.partition for f in message.failures] == [2, 4]
    assert [i.condition.partition for i in told] == [4, 2]
    assert (message.task, message.link, message.event, message.state) == ("check_quality", LINK, "check_failed", "open")
    assert message.page == "http://ui/cleantail/topics/orders#log-4"
    assert message.text.splitlines()[-2:] == [message.link, message.page]


def test_each_event_and_each_end_is_a_message_of_its_own() -> None:
    found = messages_of([check(1, over_ms=9_000), failed("ingest"), check(2), failed("compact")], [], PLACE)
    assert [message.subject for message, _ in found] == [
        "[cleantail] orders: over: check failed, partitions held back: 1",
        "[cleantail] orders: check failed, partitions held back: 2",
        "[cleantail] orders: ingest, compact failed",
    ]
    assert [message.state for message, _ in found] == ["over", "open", "open"]


def test_the_end_says_from_when_to_when() -> None:
    [(message, _)] = messages_of([check(1, over_ms=61_000)], red(1), PLACE)
    assert message.reason.endswith("(told 1970-01-01 00:00:01, over 1970-01-01 00:01:01 UTC)")
    assert message.failures == ()


def test_a_message_about_very_many_partitions_stays_short() -> None:
    [(message, told)] = messages_of([check(n) for n in range(LINES_SHOWN + 7)], [], PLACE)
    assert len(told) == LINES_SHOWN + 7
    assert message.reason.splitlines()[-1] == "and 7 more"


def test_a_message_without_a_task_leads_to_the_page_once() -> None:
    late = Incident(Condition(Event.DEADLINE_MISSED, "partition 3", "late", PLACE.page(3), 3), 1)
    [(message, _)] = messages_of([late], [], PLACE)
    assert (message.task, message.link) == ("", "http://ui/cleantail/topics/orders#log-3")
    assert message.text.count("http") == 1
    assert mail_body(message).count("<a href=") == 1


def test_observed_data_is_neither_markup_nor_a_mention() -> None:
    [(message, _)] = messages_of([check(4)], red(4, observed=HOSTILE), PLACE)
    assert HOSTILE in message.text
    body = mail_body(message)
    assert "{{ 7 * 7 }}&lt;script&gt;" in body
    assert "<script>" not in body
    said = slack_text(message)
    assert "<" not in said
    assert "&lt;!channel&gt; &amp;" in said

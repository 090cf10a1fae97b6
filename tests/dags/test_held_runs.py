"""Runs that wait for a person, on a real Airflow database: asked through Airflow's own request, answered as its API does."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cleantail.config.loading import find_topic, load_platform
from cleantail.errors import HeldError
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.own_namespace import read_answer
from cleantail.rounds.approval import Rejection, decided
from cleantail.rounds.checked_round import CHECKED_ROUND_JSON
from tests.airflow_site import FixedPlan, Site, StubbedJobs, forget_incidents, plan, staged, unit, verdict

pytestmark = pytest.mark.airflow
HELD = {
    "ok": True, "topic": "orders", "round": "r1", "kind": "compact",
    "units": [staged(unit())],
    "verdicts": [verdict(0)],
    "measures": [
        {"partition": 0, "records_in": 9, "records_out": 1, "deleted": {"superseded": 8}, "tombstones_in": 1,
         "tombstones_out": 1}
    ],
    "holds": [{"partition": 0, "reason": "8 of 9 records would be removed, above cleantail.max.drop.ratio 0.5"}],
    "sample": [{"partition": 0, "offset": 3, "kept_offset": 8}],
}  # fmt: skip
PUBLISHED = {"ok": True, "round": "r1", "published": [0], "held_back": [], "ends": {"0": 9}, "snapshot_id": 5}
DROPPED = {"ok": True, "round": "r1", "published": [], "held_back": [0]}
Run = Callable[..., Any]


@pytest.fixture
def run(site: Site, jobs: StubbedJobs, airflow_db: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the DAG `orders`, whose rounds can be held, where evaluate finds the given plan; gives the states."""
    forget_incidents("orders")

    def run_with(
        found: dict[str, Any], conf: dict[str, Any] | None = None, silent: bool = False, **evidence: Any
    ) -> dict[str, str]:
        monkeypatch.setattr("cleantail_airflow.tasks.evaluate_task.evaluate_topic", lambda *_, **__: FixedPlan(found))
        site.without_pauses()
        alerts = [] if silent else [{"type": "file", "path": "alerts/all.jsonl"}]
        (site.home / "landing").mkdir(exist_ok=True)
        (site.home / "landing" / "a.jsonl").write_text("{}\n")
        config = {"segment.ms": 1, "cleantail.max.drop.ratio": 0.5}
        source = {"source": {"path": "landing/*.jsonl"}} if conf else {}
        site.topic("orders", config=config, approvers=["anna"], alerts=alerts, **source)
        wrote_evidence(site, HELD | evidence)
        finished = site.dag("orders").test(run_conf=conf)
        return {i.task_id: str(i.state) for i in finished.get_task_instances()}

    return run_with


def wrote_evidence(site: Site, checked: dict[str, Any]) -> None:
    """As the check does whose task is a stub here."""
    from types import SimpleNamespace

    from spark_jobs.round.evidence import append_rows, checked_rows, evidence_table

    platform = load_platform(site.config)
    table: Any = SimpleNamespace(topic=SimpleNamespace(topic="orders", platform=platform))
    append_rows(evidence_table(platform), table, checked_rows(CHECKED_ROUND_JSON.of_plain(checked, "XCom"), []))


def decision(site: Site, kind: str = "compact", checked: dict[str, Any] = HELD) -> Any:
    """The answer to a round, which publish reads from next to the table."""
    topic, platform = find_topic("orders", site.config), load_platform(site.config)
    answer = read_answer(open_catalog(platform), topic, kind)
    return decided(topic, CHECKED_ROUND_JSON.of_plain(checked | {"kind": kind}, "XCom"), answer)


@contextmanager
def answers(option: str | None, after: threading.Event | None = None) -> Iterator[list[Any]]:
    """Answers every request of a task as anna, once `after` has happened; None is the scheduler's answer when the time is
    over."""
    asked: list[Any] = []
    over = threading.Event()
    thread = threading.Thread(target=_answer_all, args=(option, asked, over, after))
    thread.start()
    try:
        yield asked
    finally:
        over.set()
        thread.join()


def _answer_all(option: str | None, asked: list[Any], over: threading.Event, after: threading.Event | None) -> None:
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.trigger import handle_event_submit
    from airflow.triggers.base import TriggerEvent
    from airflow.utils.session import create_session
    from airflow.utils.state import TaskInstanceState

    while not over.wait(0.2):
        if after is not None and not after.is_set():
            continue
        with create_session() as session:
            waiting = session.query(TaskInstance).filter_by(state=TaskInstanceState.AWAITING_INPUT).all()
            for instance in waiting:
                detail = session.get(HITLDetail, instance.id)
                if detail.responded_at is None:  # else dag.test wrote, late, over what an answer had made of the task
                    asked.append((instance.task_id, instance.pool, detail.subject, detail.body, detail.assigned_users))
                detail.responded_by = {"id": "anna", "name": "Anna"} if option else None
                detail.responded_at = datetime(2026, 1, 1, tzinfo=UTC)
                detail.chosen_options = [option] if option else list(detail.defaults)
                payload = detail.as_resume_event_payload(timedout=option is None)
                handle_event_submit(TriggerEvent(payload), task_instance=instance, session=session)


@pytest.mark.parametrize(
    ("option", "said", "result", "told"),
    [
        ("Approve", "Anna", PUBLISHED, "the round was approved by Anna"),
        pytest.param(
            *("Reject", Rejection("Anna", 1767225600000), DROPPED, "the round was rejected by Anna"),
            marks=pytest.mark.deep,
        ),
        # test_incidents_are_notified_before_the_run_waits_for_approval below also has a round without an answer
        pytest.param(
            *(None, Rejection(None, 1767225600000), DROPPED, "the round was not approved in time"),
            marks=pytest.mark.deep,
        ),
    ],
    ids=["approved", "rejected", "not answered in time"],
)
def test_a_held_round_is_published_or_dropped_as_the_answer_says(
    run: Run, jobs: StubbedJobs, site: Site, option: str | None, said: Any, result: dict[str, Any], told: str
) -> None:
    jobs.answer("check_quality", HELD)
    jobs.answer("publish", result)
    with answers(option) as asked:
        states = run(plan(units=1))
    ended = "success" if result["published"] else "skipped"
    assert (states["approve"], states["publish"], states["publish_expiry"]) == ("success", ended, "skipped")
    assert jobs.names == ["compact", "check_quality", "publish"]
    assert "--publish" not in jobs.calls[1]["arguments"]
    assert decision(site) == said
    assert json.loads(jobs.argument("publish", "--round")) == {"round": "r1", "heads": [41], "passed": [0]}
    [(task, pool, subject, body, users)] = asked
    assert (task, pool, subject) == ("approve", "default_pool", "orders: 8 records would be removed from 1 partition")
    assert [user["id"] for user in users] == ["anna"]
    assert "partition 0, offset 3 dropped" in body and "script" not in body
    assert "/cleantail/topics/orders/records?round=r1&kind=compact)" in body
    assert "**Answer until 20" in body and "Without an answer by then the round counts as rejected" in body
    assert "/cleantail/topics/orders)" in body and "/cleantail/topics/orders/docs/index.html)" in body
    alert, end = [json.loads(line) for line in (site.home / "alerts" / "all.jsonl").read_text().splitlines()]
    assert "waits for approval" in alert["text"] and "8 of 9 records" in alert["text"]
    assert [(a["event"], a["state"]) for a in (alert, end)] == [("approval_waits", "open"), ("approval_waits", "over")]
    assert end["headline"] == f"resolved: {told}"
    assert end["reason"].startswith(f"{told} (from ")
    assert "script" not in alert["text"]


def test_a_round_within_the_limit_is_published_without_a_question(run: Run, jobs: StubbedJobs) -> None:
    within = {"holds": [], "measures": [HELD["measures"][0] | {"deleted": {"superseded": 1}}]}
    jobs.answer("check_quality", HELD | within)
    jobs.answer("publish", PUBLISHED)
    states = run(plan(units=1), **within)
    assert (states["approve"], states["publish"], states["approve_expiry"]) == ("skipped", "success", "skipped")


def test_an_expiry_waits_too_and_is_published_by_a_task_of_its_own(run: Run, jobs: StubbedJobs, site: Site) -> None:
    """What waits has left no reader behind yet: the list is in the result of the task that publishes it."""
    behind = [{"topic": "orders", "name": "cache", "partition": 0, "offset": 3, "at_ms": 1, "gone_to": 7}]
    waits = {"ok": True, "published": [], "left_behind": [], "checked": HELD | {"kind": "expire"}}
    jobs.answer("expire_tombstones", waits)
    jobs.answer("publish", PUBLISHED | {"left_behind": behind})
    with answers("Approve") as asked:
        states = run(plan(sweep=True), kind="expire")
    assert [task for task, *_ in asked] == ["approve_expiry"]
    assert (states["publish_expiry"], states["reclaim"]) == ("success", "skipped")
    assert jobs.names == ["expire_tombstones", "publish"]
    assert jobs.argument("publish", "--kind") == "expire"
    assert decision(site, "expire") == "Anna"
    told = [json.loads(line) for line in (site.home / "alerts" / "all.jsonl").read_text().splitlines()]
    assert [alert["event"] for alert in told] == ["approval_waits", "approval_waits", "hold_cap_reached"]
    assert "reader cache is at offset 3 of partition 0, and tombstones up to 7 were deleted" in told[2]["text"]


def test_a_run_that_is_triggered_as_a_rollback_does_nothing_else(run: Run, jobs: StubbedJobs) -> None:
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    jobs.answer("rollback", {"ok": True, "snapshot_id": 7, "round": None, "published": [0], "checkpoints": {"0": 3}})
    states = run(plan(units=1, sweep=True, reclaim=True), {"rollback_to": "last"})
    assert jobs.names == ["rollback"]
    assert jobs.argument("rollback", "--to") == "last"
    assert states.pop("evaluate") == states.pop("rollback") == states.pop("alert") == "success"
    assert set(states.values()) == {"skipped"}
    with create_session() as session:
        event = session.query(AssetEvent).filter_by(source_dag_id="orders", source_task_id="rollback").one()
    assert (event.extra["operation"], event.extra["checkpoints"], event.extra["snapshot_id"]) == (
        "rollback",
        {"0": 3},
        "7",
    )


def test_incidents_are_notified_before_the_run_waits_for_approval(
    run: Run, jobs: StubbedJobs, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cleantail.config.alert_channels import Event
    from cleantail.watch.incidents import Condition
    from cleantail_airflow.alerts import ended_run

    late = Condition(Event.DEADLINE_MISSED, "partition 1", "partition 1 is late", partition=1)
    monkeypatch.setattr(ended_run, "_seen_in_table", lambda *_: [late])
    jobs.answer("check_quality", HELD)
    jobs.answer("publish", DROPPED)
    with answers(None):
        states = run(plan(units=1))
    assert (states["publish"], decision(site)) == ("skipped", Rejection(None, 1767225600000))
    texts = [json.loads(line)["text"] for line in (site.home / "alerts" / "all.jsonl").read_text().splitlines()]
    assert ["late" in text for text in texts] == [True, False, False]  # once, then that the round waits, and its end


def test_an_unreachable_channel_is_retried_while_the_round_waits_for_approval(
    run: Run, jobs: StubbedJobs, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's last task is far away then."""
    from cleantail_airflow.alerts import alerting

    (site.home / "alerts" / "all.jsonl").mkdir(parents=True)
    monkeypatch.setattr(alerting, "PAUSES_S", (0.1, 0.2, 0.3))
    unreached, notify_now = [], alerting.notify_now

    def mended_at_the_third_try(*arguments: Any) -> list[str]:
        if len(unreached) == 2:
            (site.home / "alerts" / "all.jsonl").rmdir()
        unreached.append(notify_now(*arguments))
        return unreached[-1]

    monkeypatch.setattr(alerting, "notify_now", mended_at_the_third_try)
    jobs.answer("check_quality", HELD)
    jobs.answer("publish", PUBLISHED)
    with answers("Approve"):
        run(plan(units=1))
    asked, answered = [["file alerts/all.jsonl"], ["file alerts/all.jsonl"], []], []
    assert unreached == [*asked, answered]
    lines = [json.loads(line) for line in (site.home / "alerts" / "all.jsonl").read_text().splitlines()]
    assert [line["state"] for line in lines] == ["open", "over"]


@pytest.mark.parametrize(
    ("heads", "state", "means"),
    [
        pytest.param(41, "success", "Anna", id="the same round is asked for again"),
        pytest.param(42, "failed", None, id="another one cannot be, since Airflow goes on showing the first"),
    ],
)
def test_a_cleared_question_is_asked_again_and_never_for_what_nobody_is_shown(
    run: Run, jobs: StubbedJobs, site: Site, heads: int, state: str, means: str | None
) -> None:
    """Of a topic without alerts, which is asked for all the same."""
    jobs.answer("check_quality", HELD)
    jobs.answer("publish", PUBLISHED)
    anew = HELD | {"units": [HELD["units"][0] | {"head_snapshot_id": heads}]}
    with cleared_once(lambda: wrote_evidence(site, anew)) as cleared, answers("Approve", after=cleared):
        states = run(plan(units=1), silent=True)
    assert (states["alert_early"], states["approve"]) == ("success", state)
    if means:
        assert decision(site) == means
    else:
        with pytest.raises(HeldError, match=r"round r1 \(\w+\) has no valid approval"):
            decision(site, checked=anew)


@contextmanager
def cleared_once(before: Callable[[], None]) -> Iterator[threading.Event]:
    """Clears the task that waits as the UI does, once; `before` is done first. Gives whether it is done."""
    done = threading.Event()
    thread = threading.Thread(target=_clear_once, args=(before, done))
    thread.start()
    yield done
    thread.join()


def _clear_once(before: Callable[[], None], done: threading.Event) -> None:
    from airflow.models.taskinstance import TaskInstance, clear_task_instances
    from airflow.utils.session import create_session
    from airflow.utils.state import TaskInstanceState

    for _ in range(600):
        time.sleep(0.2)
        with create_session() as session:
            waiting = session.query(TaskInstance).filter_by(state=TaskInstanceState.AWAITING_INPUT).all()
            if waiting:
                before()
                clear_task_instances(waiting, session)
                break
    done.set()

"""A failed topic in a run of a group: the failed task, and the messages to the topic's channels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cleantail_airflow.alerts.channels import load_book
from cleantail_airflow.groups import group_dag
from cleantail_airflow.groups.alert_group import book_of_broken
from tests.airflow_site import Site, StubbedJobs, failure, forget_incidents
from tests.dags.test_group_dag import ALERTS, due, group, note_of, outcome, states  # noqa: F401

pytestmark = pytest.mark.airflow


def red(station_result: str, partition: int = 3) -> dict[str, Any]:
    """The part of an outcome that reports a log blocked by its check."""
    verdict = {"partition": partition, "passed": False, "failures": [{"partition": partition, **failure()}]}
    held = {"round": "r1", "kind": "expire", "ok": False, "held_back": [partition], "verdicts": [verdict]}
    return {"ok": False, station_result: held}


def alerts_of(site: Site) -> list[dict[str, Any]]:
    file = site.home / "alerts" / "all.jsonl"
    return [json.loads(each) for each in file.read_text().splitlines()] if file.exists() else []


def told(site: Site) -> list[tuple[str, str, str, str]]:
    """Topic, event, state and subject of each message, in the order of sending."""
    alerts = alerts_of(site)
    return [(each["topic"], each["event"], each["state"], each["reason"].partition(" failed")[0]) for each in alerts]


@pytest.mark.parametrize(
    ("failed", "named"),
    [
        pytest.param(
            {"ok": False, "station": "ingest", "error": "line 3 is no record"},
            "ingest failed: left: line 3 is no record",
            marks=pytest.mark.deep,
        ),
        (red("reconciled"), "reconcile failed: left partition 3: expect_column_values_to_not_be_null"),
    ],
    ids=["an error", "a red check"],
)
def test_a_failure_at_a_station_without_planned_work_fails_the_run(
    group: Site,  # noqa: F811
    jobs: StubbedJobs,
    airflow_db: Path,
    monkeypatch: pytest.MonkeyPatch,
    failed: dict[str, Any],
    named: str,
) -> None:
    """A file that arrives later, or forgotten deletions that only the read has found."""
    due(group, monkeypatch, "left", "right")
    topics = [{"topic": "left", **failed}, outcome("right")]
    jobs.answer("run_pack", {"ok": False, "reason": "x", "topics": topics}, code=1)
    finished = group.dag("pairs").test()
    found = states(finished)
    assert (str(finished.state), found["run_pack"], found["publish"]) == ("failed", ["failed"], ["success"])
    assert found["ingest"] == found["reconcile"] == ["skipped"]
    assert named in note_of(finished, "run_pack") and len(jobs.calls) == 1
    assert [topic for topic, *_ in told(group)] == ["left"]


def test_each_failure_is_shown_at_its_station_and_notified_to_its_topic_and_hides_no_other(
    group: Site,  # noqa: F811
    jobs: StubbedJobs,
    airflow_db: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bad input is not tried again. The YAML of the topic `left`, whose check failed, breaks before the notification."""
    names = ("left", "right", "sweeping", "swept", "merging", "well")
    for name in names[2:]:
        forget_incidents(name)
        group.topic(name, group="pairs", alerts=ALERTS)
    due(group, monkeypatch, *names)
    gone = {"ok": False, "error": "files are gone"}
    topics = [
        {"topic": "left", **red("compacted")},
        {"topic": "right", **red("compacted")},
        {"topic": "sweeping", **red("expired")},
        {"topic": "swept", "station": "expire_tombstones", **gone},
        {"topic": "merging", "station": "reclaim", **gone},
        outcome("well"),
    ]
    jobs.answer("run_pack", {"ok": False, "reason": "x", "topics": topics}, code=1)
    ended = group_dag.RunPackOperator.execute

    def broken_after(self: Any, context: Any) -> Any:
        try:
            return ended(self, context)
        finally:
            (group.config / "topics" / "left.yaml").write_text("topic: [\n")

    monkeypatch.setattr(group_dag.RunPackOperator, "execute", broken_after)
    finished = group.dag("pairs").test()
    found = states(finished)
    assert (found["run_pack"], found["publish"], len(jobs.calls)) == (["success"], ["success"], 1)
    assert found["check_quality"] == found["expire_tombstones"] == found["reclaim"] == ["failed"]
    assert all(name in note_of(finished, "check_quality") for name in ("left", "right"))
    note = note_of(finished, "expire_tombstones")
    assert "sweeping partition 3: expect_column_values_to_not_be_null" in note and "swept: files are gone" in note
    alerts = {each["topic"]: each for each in alerts_of(group)}
    assert len(alerts) == len(alerts_of(group))
    events = {topic: alert["event"] for topic, alert in alerts.items() if topic in names and topic != "left"}
    assert events == {
        "right": "check_failed",
        "sweeping": "check_failed",
        "swept": "run_failed",
        "merging": "run_failed",
    }
    assert "files are gone" in alerts["merging"]["reason"]
    assert "/cleantail/topics/right" in alerts["right"]["page"] and "/dags/pairs/" in alerts["right"]["link"]


def test_a_failure_is_notified_once_and_is_over_only_when_its_station_succeeds(
    group: Site,  # noqa: F811
    jobs: StubbedJobs,
    airflow_db: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broken YAML is notified to the channels of the defaults. The incident is over when the YAML is valid."""
    forget_incidents(book_of_broken("pairs"))
    defaults = json.loads((group.config / "defaults.yaml").read_text()) | {"topic": {"alerts": ALERTS}}
    (group.config / "defaults.yaml").write_text(json.dumps(defaults))
    due(group, monkeypatch, "left")
    dag = group.dag("pairs")
    group.topic("typo", group="pairs", config={"segment.sm": 1})
    for station in ("reclaim", "compact"):  # in the second run reclaim is not reached
        failed = {"topic": "left", "ok": False, "station": station, "error": "files are gone"}
        jobs.answer("run_pack", {"ok": False, "reason": "x", "topics": [failed]}, code=1)
        assert str(dag.test().state) == "failed"
    of_left, of_group = ([each for each in told(group) if each[0] == topic] for topic in ("left", "group pairs"))
    assert of_left == [("left", "run_failed", "open", "reclaim"), ("left", "run_failed", "open", "compact")]
    [begun] = of_group
    assert begun[:3] == ("group pairs", "run_failed", "open") and "typo" in begun[3]
    assert load_book("typo").incidents == {}
    group.topic("typo", group="pairs", alerts=[])
    jobs.answer("run_pack", {"ok": True, "topics": [outcome("left")]})
    dag.test(run_conf={"topic": "left"})  # which says nothing of others
    assert [each[:3] for each in told(group)[3:]] == [("left", "run_failed", "over")]
    group.dag("pairs").test()  # parsed again: the one above has the parameters of its last run
    assert [each[:3] for each in told(group)[4:]] == [("group pairs", "run_failed", "over")]

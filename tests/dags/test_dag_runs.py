"""Runs of a topic's DAG on a real Airflow database, with jobs that end as each test wants."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cleantail.log.work_units import WORK_UNIT_JSON
from tests.airflow_environment import BASE_URL
from tests.airflow_site import NOW_MS, FixedPlan, Site, StubbedJobs, failure, forget_incidents, plan, unit, verdict

pytestmark = pytest.mark.airflow
ALERTS = [{"type": "file", "path": "alerts/orders.jsonl"}]
DOWNSTREAM = ["alert", "check_quality", "compact", "expire_tombstones", "outcome", "publish", "reclaim", "rollback"]
Run = Callable[..., Any]


@pytest.fixture
def run(site: Site, jobs: StubbedJobs, airflow_db: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the DAG `orders` where evaluate finds the given plan; gives the finished run."""
    forget_incidents("orders")

    def run_with(found: dict[str, Any], conf: dict[str, Any] | None = None, **yaml: Any) -> Any:
        monkeypatch.setattr("cleantail_airflow.tasks.evaluate_task.evaluate_topic", lambda *_, **__: FixedPlan(found))
        site.without_pauses()
        site.topic("orders", **{"alerts": ALERTS, **yaml})
        return site.dag("orders").test(run_conf=conf)

    return run_with


def states(finished: Any) -> dict[str, str]:
    return {instance.task_id: str(instance.state) for instance in finished.get_task_instances()}


def instance(finished: Any, task_id: str) -> Any:
    return next(found for found in finished.get_task_instances() if found.task_id == task_id)


def rendered(finished: Any, task_id: str) -> dict[str, Any]:
    """What the UI shows under Rendered Templates."""
    from airflow.models.renderedtifields import RenderedTaskInstanceFields

    fields: dict[str, Any] = RenderedTaskInstanceFields.get_templated_fields(instance(finished, task_id))
    return fields


def xcom(finished: Any, task_id: str, key: str) -> Any:
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    where = {"run_id": finished.run_id, "dag_id": "orders", "task_id": task_id, "key": key}
    with create_session() as session:
        row = session.query(XComModel).filter_by(**where).one_or_none()
        return None if row is None else XComModel.deserialize_value(row)


def asset_events(finished: Any) -> list[tuple[str, dict[str, Any]]]:
    """(task, extra) of the events of the topic's asset in this run."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.query(AssetEvent).filter_by(source_run_id=finished.run_id, source_dag_id="orders")
        rows = [(event.asset.uri, event.source_task_id, event.extra) for event in found.order_by(AssetEvent.id)]
    assert {uri for uri, _, _ in rows} <= {"x-cleantail://orders"}
    return [(task, extra) for _, task, extra in rows]


def alerts(site: Site) -> list[dict[str, Any]]:
    file = site.home / "alerts" / "orders.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_nothing_due_is_a_green_run_whose_skipped_tasks_keep_the_reason(
    run: Run, jobs: StubbedJobs, site: Site
) -> None:
    finished = run(plan())
    assert str(finished.state) == "success"
    assert states(finished) == {"evaluate": "success", **dict.fromkeys(DOWNSTREAM, "skipped")}
    reason = "no compaction is due: the log is clean; there is no tombstone to expire; nothing to merge"
    assert {xcom(finished, task, "skipped") for task in DOWNSTREAM} == {reason}
    assert rendered(finished, "evaluate")["reason"] == reason
    assert jobs.calls == []
    assert alerts(site) == []
    assert xcom(finished, "evaluate", "plan") == plan()  # the whole of it, for the UI
    assert note_of(finished) == (
        "Nothing was due, all is well: the log is clean; there is no tombstone to expire; nothing to merge. "
        "Skipped tasks had no work. Next evaluation: */15 * * * *."
    )


def note_of(finished: Any) -> str | None:
    """What the run says of itself in the grid."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    with create_session() as session:
        note: str | None = session.query(DagRun).filter_by(dag_id="orders", run_id=finished.run_id).one().note
        return note


def test_what_is_not_due_is_skipped_without_a_process_of_its_own(run: Run, jobs: StubbedJobs) -> None:
    """Tombstones expire on a topic without new data."""
    finished = run(plan(sweep=True))
    assert (str(finished.state), jobs.names) == ("success", ["expire_tombstones"])
    assert xcom(finished, "reclaim", "skipped") == "nothing to merge"
    begun = {i.task_id for i in finished.get_task_instances() if i.start_date and str(i.state) != "skipped"}
    assert begun == {"evaluate", "alert"}
    started = {i.task_id for i in finished.get_task_instances() if i.hostname}
    assert started == {"evaluate", "expire_tombstones", "alert"}
    assert note_of(finished) is None


def test_everything_due_runs_every_job_once_in_order(run: Run, jobs: StubbedJobs, site: Site) -> None:
    """Readers that the sweep left behind are named in an alert."""
    jobs.answer("check_quality", {"ok": True, "verdicts": [verdict(0), verdict(1)]})
    jobs.answer("publish", {"ok": True, "published": [0, 1], "snapshot_id": 8, "checkpoints": {"0": 9, "1": 9, "2": 3}})
    behind = [{"topic": "orders", "name": "{{ 7 * 7 }}", "partition": 3, "offset": 17, "at_ms": 1, "gone_to": 20}]
    expired = {"ok": True, "published": [0], "snapshot_id": 9, "checkpoints": {"0": 9}, "left_behind": behind}
    jobs.answer("expire_tombstones", expired)
    finished = run(plan(units=2, sweep=True, reclaim=True))
    assert str(finished.state) == "success"
    (first, compacted), (second, expired) = asset_events(finished)
    assert (first, compacted["operation"], compacted["partitions"]) == ("publish", "compact", [0, 1])
    assert (compacted["checkpoints"], compacted["snapshot_id"]) == ({"0": 9, "1": 9, "2": 3}, "8")
    assert (second, expired["operation"], expired["partitions"]) == ("expire_tombstones", "expire", [0])
    assert jobs.names == ["compact", "compact", "check_quality", "publish", "expire_tombstones", "reclaim"]
    assert states(finished)["outcome"] == "skipped"
    (alert,) = alerts(site)
    assert "tombstones were deleted before 1 reader (partition 3) had read them" in alert["text"]
    assert "reader {{ 7 * 7 }} is at offset 17 of partition 3" in alert["reason"]
    assert alert["link"] == f"{BASE_URL}/cleantail/topics/orders#log-3"


def test_each_job_gets_what_the_one_before_it_made(run: Run, jobs: StubbedJobs, site: Site) -> None:
    """Neither evidence nor table has what was published, so `publish` is an application of its own; test_whole_run.py
    has a round that they have."""
    of_three = unit(0, (0, 3, 7))
    jobs.answer("compact", {"ok": True, **of_three, "counts": {"map_keys": 4}})
    jobs.answer("check_quality", {"ok": True, "round": "r1", "verdicts": [verdict(0)]})
    published = {"ok": True, "published": [], "held_back": []}
    jobs.answer("publish", published)
    finished = run(plan(sweep=True, reclaim=True) | {"units": [of_three]})
    assert jobs.names == ["compact", "check_quality", "publish", "expire_tombstones", "reclaim"]
    assert "--publish" in jobs.calls[1]["arguments"]
    assert asset_events(finished) == []
    assert (states(finished)["publish"], xcom(finished, "publish", "return_value")) == ("skipped", published)
    assert rendered(finished, "publish")["reason"] == "nothing was published, so the topic's asset is not updated"
    handed_on = WORK_UNIT_JSON.value(jobs.argument("compact", "--unit"), "--unit")
    assert handed_on == WORK_UNIT_JSON.of_plain(of_three, "unit")
    assert json.loads(jobs.argument("check_quality", "--round")) == {"round": "r1", "branches": ["ct_r1_u0"]}
    assert json.loads(jobs.argument("publish", "--round")) == {"round": "r1", "heads": [], "passed": [0]}
    sweep = {"now_ms": NOW_MS, "partitions": [0], "fresh_from": {}}
    assert json.loads(jobs.argument("expire_tombstones", "--round")) == sweep
    assert finished.start_date
    for job in ("compact", "check_quality", "publish", "expire_tombstones", "reclaim"):
        assert jobs.argument(job, "--began") == str(int(finished.start_date.timestamp() * 1000))
    for job in ("check_quality", "publish", "expire_tombstones", "reclaim"):
        assert jobs.argument(job, "--now") == str(NOW_MS)
        assert jobs.argument(job, "--topic") == "orders"
        assert jobs.argument(job, "--config") == str(site.config)
    # the UI shows the arguments, and which partitions the unit has
    fields = rendered(finished, "compact")
    assert of_three.items() <= {**fields["unit"], "partitions": of_three["partitions"]}.items()
    assert [work["partition"] for work in fields["unit"]["partitions"]] == [0, 3, 7]
    assert fields["application"].endswith("spark_jobs/run_station.py")
    assert fields["application_args"][:3] == ["compact", "--config", jobs.argument("compact", "--config")]
    assert fields["application_args"][3:5] == ["--topic", "orders"]
    assert "spark.sql.catalog.cleantail" in fields["conf"]
    assert instance(finished, "compact").rendered_map_index == "partitions 0, 3, 7"


def test_a_red_check_says_what_failed_and_the_green_partitions_are_published(
    run: Run, jobs: StubbedJobs, site: Site
) -> None:
    """Tombstones expire all the same, and nothing of a record is rendered as a template."""
    hostile = "{{ 7 * 7 }} {% raw %} {{ conn.spark_default.password }}"
    checked = {"ok": False, "verdicts": [verdict(0), verdict(1, failure(observed=hostile))]}
    jobs.answer("check_quality", checked, code=1)
    published = {"ok": False, "published": [0], "held_back": [1], "verdicts": checked["verdicts"], "red_before": [1]}
    jobs.answer("publish", published, code=1)
    finished = run(plan(units=2, sweep=True))
    assert str(finished.state) == "failed"
    assert jobs.names == ["compact", "compact", "check_quality", "publish", "expire_tombstones"]
    assert json.loads(jobs.argument("publish", "--round")) == {"round": "r1", "heads": [], "passed": [0]}
    assert states(finished)["check_quality"] == "failed"
    assert states(finished)["publish"] == "success"
    assert states(finished)["outcome"] == "failed"
    assert xcom(finished, "check_quality", "return_value") == checked
    assert xcom(finished, "publish", "return_value")["held_back"] == [1]
    (alert,) = alerts(site)
    (row,) = alert["failures"]
    assert (row["topic"], row["partition"], row["severity"]) == ("orders", 1, "critical")
    assert (row["expectation"], row["observed"]) == ("expect_column_values_to_not_be_null", hostile)
    assert alert["link"].startswith(f"{BASE_URL}/dags/orders/runs/")
    assert "/tasks/check_quality" in alert["link"]
    assert alert["run_id"] == finished.run_id
    assert f"orders partition 1: expect_column_values_to_not_be_null (critical): observed {hostile}" in alert["text"]


def test_an_incident_is_notified_once_per_cause_and_again_when_it_is_over(
    run: Run, jobs: StubbedJobs, site: Site
) -> None:
    def fails(error: str) -> Any:
        jobs.answer("reclaim", {"ok": False, "error": error}, code=2)
        return run(plan(reclaim=True))

    def told() -> list[tuple[str, str, str]]:
        return [(alert["event"], alert["state"], alert["headline"]) for alert in alerts(site)]

    # 1. what could not be sent turns the run red, and is sent by the next one, once
    (site.home / "alerts").write_text("a file where the folder of the alerts should be")
    assert states(fails("no disk: 12 bytes of 99 are free"))["alert"] == "failed"
    (site.home / "alerts").unlink()
    assert states(fails("no disk: 12 bytes of 99 are free"))["alert"] == "success"
    fails("no disk: 11 bytes of 99 are free")
    assert told() == [("run_failed", "open", "reclaim failed")]
    # 2. without an evaluation no job is started; the headline begins with the tasks of its own run, under the same key
    before = len(jobs.calls)
    finished = run({"reason": "not a plan"})
    assert (str(finished.state), len(jobs.calls)) == ("failed", before)
    assert rendered(finished, "reclaim")["reason"] == "evaluate made no plan"
    first, second = alerts(site)
    assert (first["incident"], second["state"]) == (second["incident"], "open")
    assert second["headline"] == "evaluate failed; still open from an earlier run: reclaim"
    # 3. it is over when nothing was due
    assert states(run(plan())) == {"evaluate": "success", **dict.fromkeys(DOWNSTREAM, "skipped"), "alert": "success"}
    assert [state for _, state, _ in told()[2:]] == ["over"]


def test_a_topic_without_alert_channels_skips_task_alert(run: Run, jobs: StubbedJobs) -> None:
    jobs.answer("reclaim", {"ok": False, "error": "no disk"}, code=2)
    assert states(run(plan(reclaim=True), alerts=[]))["alert"] == "skipped"


def test_partitions_that_turn_red_when_the_round_starts_over_make_publish_red(
    run: Run, jobs: StubbedJobs, site: Site
) -> None:
    jobs.answer("check_quality", {"ok": True, "verdicts": [verdict(0)]})
    again = {"ok": False, "published": [], "held_back": [0], "verdicts": [verdict(0, failure())]}
    jobs.answer("publish", again, code=1)
    finished = run(plan(units=1))
    assert states(finished)["publish"] == "failed"
    assert [alert["task"] for alert in alerts(site)] == ["publish"]


def test_a_failed_compaction_publishes_nothing_but_tombstones_still_expire(
    run: Run, jobs: StubbedJobs, site: Site
) -> None:
    jobs.answer("compact", {"ok": False, "error": "3 records without a key"}, code=2)
    finished = run(plan(units=1, sweep=True))
    assert str(finished.state) == "failed"
    assert jobs.names == ["compact", "expire_tombstones"]
    assert states(finished)["check_quality"] == "upstream_failed"
    assert states(finished)["publish"] == "skipped"
    assert [(a["task"], a["reason"]) for a in alerts(site)] == [("compact", "compact failed: 3 records without a key")]
    assert alerts(site)[0]["link"].endswith("/tasks/compact/mapped/0")


def test_a_check_that_crashed_publishes_nothing_and_says_so(run: Run, jobs: StubbedJobs) -> None:
    jobs.answer("check_quality", {"ok": False, "error": "out of memory"}, code=2)
    finished = run(plan(units=1))
    assert jobs.names == ["compact", "check_quality"]
    assert states(finished)["publish"] == "skipped"
    assert rendered(finished, "publish")["reason"] == "check_quality reported no verdict, so nothing is published"
    assert states(finished)["outcome"] == "failed"


@pytest.mark.deep
def test_a_conflict_is_tried_again_by_airflow(run: Run, jobs: StubbedJobs) -> None:
    """test_a_topic_that_may_be_tried_again_has_its_pack_tried_again and test_a_conflict_may_be_tried_again hold the rule."""
    jobs.answer("check_quality", {"ok": True, "verdicts": [verdict(0)]})
    jobs.answer("publish", {"ok": False, "error": "another writer"}, code=3)
    run(plan(units=1))
    assert jobs.names.count("publish") == 3


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        pytest.param({}, {"force": False, "partition": None}, id="defaults", marks=pytest.mark.deep),
        pytest.param({"force": True, "partition": 2}, {"force": True, "partition": 2}, id="by-hand"),
    ],
)
def test_parameters_of_a_manual_run_reach_evaluate(
    site: Site, jobs: StubbedJobs, airflow_db: Path, monkeypatch: pytest.MonkeyPatch, conf: Any, expected: Any
) -> None:
    asked: list[dict[str, Any]] = []

    def evaluate(*_: Any, **wanted: Any) -> FixedPlan:
        asked.append(wanted)
        return FixedPlan(plan())

    monkeypatch.setattr("cleantail_airflow.tasks.evaluate_task.evaluate_topic", evaluate)
    site.topic("orders")
    (site.config / "defaults.yaml").write_text("platform: {allow_clock: true}\n")
    site.dag("orders").test(run_conf={**conf, "now_ms": NOW_MS})
    assert asked == [{"now_ms": NOW_MS, "reconcile": False, **expected}]


def test_a_bad_file_stops_the_run_with_its_line(run: Run, jobs: StubbedJobs, site: Site) -> None:
    (site.home / "landing").mkdir()
    file = site.home / "landing" / "a.jsonl"
    file.write_text("nonsense\n")
    jobs.answer("ingest", {"ok": False, "error": "landing/a.jsonl:1: not JSON"}, code=2)
    finished = run(plan(units=1), source={"path": "landing/*.jsonl"})
    assert str(finished.state) == "failed"
    assert (jobs.names, jobs.argument("ingest", "--file")) == (["ingest"], str(file))
    assert states(finished)["evaluate"] == "upstream_failed"
    assert alerts(site)[0]["reason"] == "ingest failed: landing/a.jsonl:1: not JSON"


def test_no_new_file_is_no_reason_to_start_spark_or_to_stop(run: Run, jobs: StubbedJobs) -> None:
    finished = run(plan(sweep=True), source={"path": "landing/*.jsonl"})
    assert jobs.names == ["expire_tombstones"]
    assert "nothing new" in rendered(finished, "ingest")["reason"]


@pytest.mark.parametrize(
    "other_ms", [4_102_444_800_000, pytest.param(NOW_MS, marks=pytest.mark.deep)], ids=["ahead", "behind"]
)
def test_a_run_that_is_triggered_with_another_clock_does_nothing(
    site: Site, jobs: StubbedJobs, airflow_db: Path, monkeypatch: pytest.MonkeyPatch, other_ms: int
) -> None:
    asked: list[int] = []

    def evaluate(*_: Any, **wanted: Any) -> FixedPlan:
        asked.append(wanted["now_ms"])
        return FixedPlan(plan())

    monkeypatch.setattr("cleantail_airflow.tasks.evaluate_task.evaluate_topic", evaluate)
    site.topic("orders")
    finished = site.dag("orders").test(run_conf={"now_ms": other_ms})
    assert (finished.state, asked, jobs.names) == ("failed", [], [])


@pytest.mark.parametrize(
    "source",
    ["landing/*.jsonl", pytest.param(None, marks=pytest.mark.deep)],
    ids=["ingest is first", "evaluate is first"],
)
def test_a_name_that_no_parameter_has_ends_the_run_at_its_first_task(
    run: Run, jobs: StubbedJobs, site: Site, source: str | None
) -> None:
    (site.home / "landing").mkdir()
    (site.home / "landing" / "a.jsonl").write_text('{"partition": 0, "offset": 0, "key": "k", "payload": "v"}\n')
    finished = run(plan(units=1), {"rolback_to": "last"}, source={"path": source})
    assert (str(finished.state), jobs.names) == ("failed", [])
    [first] = [task for task, state in states(finished).items() if state == "failed" and task != "outcome"]
    assert first == ("ingest" if source else "evaluate")
    told = alerts(site)[0]["reason"]
    assert (
        "rolback_to, which is not a parameter of this DAG (did you mean rollback_to?). It takes force, now_ms" in told
    )


@pytest.mark.deep
@pytest.mark.parametrize("source", [None, "landing/*.jsonl"], ids=["evaluate is first", "ingest is first"])
def test_a_clock_in_seconds_ends_the_run_at_its_first_task(
    run: Run, jobs: StubbedJobs, site: Site, source: str | None
) -> None:
    """The test of a name that no parameter has holds the rule, and test_cli.py what a clock in seconds is told."""
    (site.home / "landing").mkdir()
    (site.home / "landing" / "a.jsonl").write_text('{"partition": 0, "offset": 0, "key": "k", "payload": "v"}\n')
    (site.config / "defaults.yaml").write_text("platform: {allow_clock: true}\n")
    finished = run(plan(units=1), {"now_ms": 1_795_932_130}, source={"path": source})
    assert (str(finished.state), jobs.names) == ("failed", [])
    [first] = [task for task, state in states(finished).items() if state == "failed" and task != "outcome"]
    assert first == ("ingest" if source else "evaluate")
    assert (
        "now_ms: 1795932130 is in 1970 to 1973 as Unix ms. Did you mean seconds? Give 1795932130000 "
        "(2026-11-29T06:02:10 UTC). Nothing was done" in alerts(site)[0]["reason"]
    )

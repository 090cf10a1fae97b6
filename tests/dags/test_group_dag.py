"""The DAG of a group: its shape, its versions, and how its tasks handle the report of an application."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cleantail_airflow.groups.alert_group import book_of
from cleantail_airflow.groups.group_dag import RunPackOperator
from cleantail_airflow.groups.group_plan import PLANNED_PACK_JSON, PlannedPack, variable_name
from cleantail_airflow.groups.station_tasks import StationOperator
from tests.airflow_site import NOW_MS, Recorder, Site, StubbedJobs, failure, forget_incidents, verdict

pytestmark = pytest.mark.airflow
STATIONS = ["ingest", "compact", "check_quality", "publish", "reconcile", "expire_tombstones", "reclaim"]
ALERTS = [{"type": "file", "path": "alerts/all.jsonl"}]


@pytest.fixture
def group(site: Site, airflow_db: Path) -> Site:
    """A group `pairs` of two topics, and a second group. Tasks are tried again without a pause."""
    from airflow.models.variable import Variable

    (site.config / "defaults.yaml").write_text(
        json.dumps({"platform": {"cleaner": {"log.cleaner.backoff.ms": 0}, "allow_clock": True}})
    )
    (site.config / "groups").mkdir()
    for name in ("pairs", "others"):
        (site.config / "groups" / f"{name}.yaml").write_text(json.dumps({"group": name, "schedule": "@daily"}))
    for name in ("left", "right"):
        forget_incidents(name)
        site.topic(name, group="pairs", alerts=ALERTS)
    site.topic("third", group="others")
    Variable.delete(variable_name("pairs"))
    return site


def left_over() -> dict[str, int]:
    """Return the group's variable: topic -> time since which it is left over."""
    from airflow.models.variable import Variable

    since: dict[str, int] = json.loads(Variable.get(variable_name("pairs"), "{}"))
    return since


def due(site: Site, monkeypatch: pytest.MonkeyPatch, *topics: str, **limits: Any) -> None:
    """Let `evaluate` find these topics due. `limits`: of the group."""
    from cleantail.log.topic_packs import DueTopic

    text = {"group": "pairs", "limits": {name.replace("_", "."): value for name, value in limits.items()}}
    (site.config / "groups" / "pairs.yaml").write_text(json.dumps(text))
    monkeypatch.setattr(
        "cleantail_airflow.groups.group_dag.due_topic",
        lambda plan, new, configs, since, force: (
            DueTopic(plan.topic, 10, left_since_ms=since) if plan.topic in topics else None
        ),
    )


def outcome(topic: str, **more: Any) -> dict[str, Any]:
    compacted = {"round": "r1", "kind": "compact", "published": [0], "snapshot_id": 8, "checkpoints": {"0": 9}}
    return {"topic": topic, "compacted": compacted, **more}


def states(finished: Any) -> dict[str, list[str]]:
    """Task -> the states of its instances, by map index."""
    found: dict[str, list[tuple[int, str]]] = {}
    for ti in finished.get_task_instances():
        found.setdefault(ti.task_id, []).append((ti.map_index, str(ti.state)))
    return {task: [state for _, state in sorted(instances)] for task, instances in found.items()}


def note_of(finished: Any, task_id: str) -> str:
    """Return the reason of a task's failure."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    where = {"run_id": finished.run_id, "dag_id": "pairs", "task_id": task_id, "key": "failure"}
    with create_session() as session:
        row = session.query(XComModel).filter_by(**where).first()
        return "" if row is None else str(XComModel.deserialize_value(row))


def test_topics_of_a_group_have_one_dag_whose_stations_are_mapped_over_packs(group: Site) -> None:
    group.topic("asked", group="pairs", publish="approve")
    bag = group.bag()
    assert sorted(bag.dags) == ["asked", "cleantail_doctor", "others", "pairs"]
    assert str(bag.dags["asked"].schedule) == str(bag.dags["pairs"].schedule) == "@daily"
    dag = bag.dags["pairs"]
    assert dag.task_group.children["pack"].children.keys() == {"run_pack", *STATIONS}
    assert {
        dag.get_task(name).is_mapped or bool(list(dag.get_task(name).iter_mapped_task_groups())) for name in STATIONS
    }
    assert dag.get_task("run_pack").pool == "cleantail_spark"
    assert {dag.get_task(name).pool for name in STATIONS} == {"default_pool"}


@pytest.mark.deep
def test_the_same_yaml_keeps_one_version_and_a_changed_topic_changes_that_of_its_group_alone(
    group: Site, airflow_db: Path
) -> None:
    """As the serialized DAG does, by which Airflow makes versions."""
    from airflow.models.dag_version import DagVersion
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.serialization.serialized_objects import LazyDeserializedDAG
    from airflow.utils.session import create_session

    def parse() -> dict[str, int]:
        """Parse all DAG files and store the DAGs, as the DAG processor does. Returns the versions."""
        with create_session() as session:
            for dag in group.bag().dags.values():
                SerializedDagModel.write_dag(
                    LazyDeserializedDAG.from_dag(dag), bundle_name="dags-folder", min_update_interval=0, session=session
                )
                session.commit()
            versions = {
                dag_id: DagVersion.get_latest_version(dag_id, session=session) for dag_id in ("pairs", "others")
            }
            return {dag_id: version.version_number for dag_id, version in versions.items() if version}

    for name in ("pairs", "others"):
        group.dag(name).test()  # a version that has run is never written over
    for _ in range(2):
        assert parse() == {"pairs": 1, "others": 1}
    group.topic("left", group="pairs", config={"min.cleanable.dirty.ratio": 0.9})
    assert parse() == {"pairs": 2, "others": 1}


def test_the_serialized_dag_is_the_same_at_every_parse_and_follows_its_topics(group: Site) -> None:
    """In another process: test_dag_files.py."""
    from airflow.serialization.serialized_objects import DagSerialization

    def written(name: str) -> str:
        return json.dumps(DagSerialization.to_dict(group.dag(name)), sort_keys=True)

    group.topic("right", group="pairs", config={"cleanup.policy": "compact,delete", "retention.ms": 9})
    before = written("pairs"), written("others")
    assert (written("pairs"), written("others")) == before
    group.topic("left", group="pairs", config={"min.cleanable.dirty.ratio": 0.9})
    assert (written("pairs") == before[0], written("others") == before[1]) == (False, True)


def test_a_topic_that_may_be_tried_again_has_its_pack_tried_again(
    group: Site, jobs: StubbedJobs, airflow_db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    due(group, monkeypatch, "left", "right")
    lost = outcome("right", ok=False, station="compact", error="another writer was faster", may_retry=True)
    jobs.answer("run_pack", {"ok": False, "reason": "x", "topics": [outcome("left"), lost]}, code=1)
    finished = group.dag("pairs").test()
    assert len(jobs.calls) == 3  # the first try, and two more
    assert len({json.loads(call["arguments"][3])["outcomes"] for call in jobs.calls}) == 1
    found = states(finished)
    assert (found["run_pack"], found["compact"], found["publish"]) == (["failed"], ["failed"], ["success"])
    (sent,) = (group.home / "packs").glob("*.sent.jsonl")  # whose metrics were sent: in the first try, and no more
    assert [json.loads(line)["topic"] for line in sent.read_text().splitlines()] == ["left", "right"]


def test_topics_over_the_limits_are_left_over_and_come_first_in_the_next_run(
    group: Site, jobs: StubbedJobs, airflow_db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first pack only reclaims space, so every other station is skipped."""
    from airflow.models.variable import Variable

    Variable.set(variable_name("pairs"), json.dumps({"right": NOW_MS}))
    due(group, monkeypatch, "left", "right", pack_max_topics=1, run_max_packs=1)
    freed = {"reasons": ["4 small files"], "rewritten_files": 4, "new_files": 1}
    jobs.answer("run_pack", {"ok": True, "topics": [{"topic": "right", "reclaimed": freed}]})
    dag = group.dag("pairs")
    found = states(dag.test(run_conf={"now_ms": NOW_MS + 1}))
    assert json.loads(jobs.argument("run_pack", "--request"))["topics"] == ["right"]
    assert left_over() == {"left": NOW_MS + 1}
    assert (found["run_pack"], found["reclaim"]) == (["success"], ["success"])
    assert all(found[station] == ["skipped"] for station in STATIONS if station != "reclaim")
    dag.test(run_conf={"now_ms": NOW_MS + 2, "topic": "right"})  # a run of one topic forgets no other
    assert json.loads(jobs.argument("run_pack", "--request"))["topics"] == ["right"]
    assert left_over() == {"left": NOW_MS + 1}
    due(group, monkeypatch)
    for conf in ({"now_ms": NOW_MS + 2}, {"topic": "left", "partition": 0}):
        group.dag("pairs").test(run_conf=conf)  # a new DAG object: the old one keeps the parameters of its last run
        assert left_over() == {"left": NOW_MS + 1}  # other logs may wait, or later records
    group.dag("pairs").test()
    assert left_over() == {}


def test_a_run_begins_no_pack_after_its_time(
    group: Site, jobs: StubbedJobs, airflow_db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    due(group, monkeypatch, "left", "right", run_max_ms=1)
    finished = group.dag("pairs").test(run_conf={"now_ms": NOW_MS})
    assert (jobs.calls, states(finished)["run_pack"]) == ([], ["skipped"])
    assert left_over() == {"left": NOW_MS, "right": NOW_MS}
    assert str(finished.state) == "success"
    assert not (group.home / "alerts").exists()


@pytest.mark.parametrize(
    ("conf", "named"),
    [
        pytest.param({"rollback_to": "last"}, "rollback_to needs the parameter topic", marks=pytest.mark.deep),
        # who may run one group's DAG may not undo the rounds of another one's topics
        ({"topic": "third", "rollback_to": "last"}, "no topic third runs in the group pairs"),
        pytest.param({"topik": "left"}, "did you mean topic?", marks=pytest.mark.deep),
    ],
)
def test_a_run_that_was_triggered_wrongly_does_nothing(
    group: Site, jobs: StubbedJobs, airflow_db: Path, conf: dict[str, Any], named: str
) -> None:
    finished = group.dag("pairs").test(run_conf=conf)
    assert (states(finished)["evaluate"], jobs.calls) == (["failed"], [])
    assert named in note_of(finished, "evaluate")
    assert alerts_of(group) == []


def alerts_of(site: Site) -> list[tuple[str, str, str]]:
    """Topic, event and reason of each message so far."""
    file = site.home / "alerts" / "all.jsonl"
    told = [json.loads(each) for each in file.read_text().splitlines()] if file.exists() else []
    return [(alert["topic"], alert["event"], alert["reason"]) for alert in told]


def test_work_done_before_a_crash_is_shown_and_only_the_other_topics_are_notified(
    group: Site, jobs: StubbedJobs, airflow_db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pack that began before the time limit is tried again after it. If it were skipped, the crash would look like
    unneeded work, and the run would succeed."""
    from cleantail_airflow.groups import group_dag

    due(group, monkeypatch, "left", "right", run_max_ms=60_000)
    hour_later = SimpleNamespace(time=lambda: time.time() + (3600 if jobs.calls else 0))
    monkeypatch.setattr(group_dag, "time", hour_later)
    monkeypatch.setattr(group_dag, "_name_of", lambda _: "of-this-test")
    jobs.answer("run_pack", code=137, output="killed")
    (group.home / "packs").mkdir()
    (group.home / "packs" / "of-this-test.jsonl").write_text(json.dumps(outcome("left")) + "\n")
    finished = group.dag("pairs").test()
    found = states(finished)
    assert (found["run_pack"], found["publish"], str(finished.state)) == (["failed"], ["success"], "failed")
    assert [(topic, event) for topic, event, _ in alerts_of(group)] == [("right", "run_failed")]


def test_a_station_logs_what_does_not_fail_it(group: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a topic's own DAG: expectations that only warn, and readers that lost tombstones."""
    warned = verdict(2) | {"warnings": [failure(partition=2, severity="warning")]}
    behind = {"topic": "left", "name": "slow", "partition": 0, "offset": 3, "at_ms": 1, "gone_to": 5}
    of_kind = {"round": "r1", "published": [0, 2], "verdicts": [warned], "expired": 1, "left_behind": [behind]}
    rounds = {"compacted": {**of_kind, "kind": "compact", "left_behind": []}, "expired": {**of_kind, "kind": "expire"}}
    result = {"ok": True, "topics": [{"topic": "left", **rounds}], "reason": ""}
    monkeypatch.setattr(StationOperator, "log", log := Recorder())
    pack = PLANNED_PACK_JSON.plain(PlannedPack("left", ("left",)))
    for station in ("compact", "check_quality", "expire_tombstones"):
        log.lines.append(station)
        task = StationOperator(task_id=station, group="pairs", config_dir=str(group.config), pack=pack)
        task._show({"ti": SimpleNamespace(map_index=0, xcom_pull=lambda **_: result)})  # type: ignore[arg-type]
    warned_of = "left partition 2: expect_column_values_to_not_be_null (warning)"
    behind_of = "left partition 0: reader slow is at offset 3; tombstones that it has not read were deleted"
    told = [line.split(": observed")[0].split(": cleantail.")[0] for line in log.lines if not line.startswith("left: ")]
    assert told == ["compact", "check_quality", warned_of, "expire_tombstones", warned_of, behind_of]


def test_a_topic_that_another_group_has_by_now_is_left_out(group: Site) -> None:
    """Or a topic that a user has written into the XCom of `evaluate`."""
    task = RunPackOperator(task_id="run_pack", group="pairs", config_dir=str(group.config), pack={})
    pack = PlannedPack("3 topics", ("left", "third", "right"))
    assert task._still_of_group(pack).topics == ("left", "right")


def test_an_evaluation_that_failed_is_one_incident_of_the_group_until_one_is_well(
    group: Site, jobs: StubbedJobs, airflow_db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an unreachable catalog would send a thousand messages to one channel, one for each topic."""
    from cleantail.errors import OutsideError

    def unreachable(*_: Any) -> None:
        raise OutsideError("the catalog is out of reach")

    forget_incidents(book_of("pairs"))
    with monkeypatch.context() as patch:
        patch.setattr("cleantail_airflow.groups.group_dag.kept_catalog", unreachable)
        finished = group.dag("pairs").test()
    assert (states(finished)["evaluate"], jobs.calls) == (["failed"], [])
    [(topic, event, reason)] = alerts_of(group)
    assert (topic, event, "out of reach" in reason) == ("group pairs", "run_failed", True)
    # nothing is due, but the end of the incident is notified
    assert str(group.dag("pairs").test().state) == "success"
    lines = [json.loads(line) for line in (group.home / "alerts" / "all.jsonl").read_text().splitlines()]
    assert [(line["topic"], line["state"]) for line in lines] == [("group pairs", "open"), ("group pairs", "over")]
    assert lines[1]["page"].endswith("/dags/pairs")


@pytest.mark.deep
def test_a_failed_evaluation_for_one_topic_is_notified_to_that_topic(
    group: Site, jobs: StubbedJobs, airflow_db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """test_a_failed_rollback_is_notified_to_its_topic holds the rule for a run of one topic."""
    from cleantail.errors import OutsideError

    def unreachable(*_: Any) -> None:
        raise OutsideError("the catalog is out of reach")

    monkeypatch.setattr("cleantail_airflow.groups.group_dag.kept_catalog", unreachable)
    group.dag("pairs").test(run_conf={"topic": "left"})
    assert [(topic, event) for topic, event, _ in alerts_of(group)] == [("left", "run_failed")]


def events_of(topic: str) -> list[dict[str, Any]]:
    """Return the extras of the events of a topic's asset."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session

    with create_session() as session:
        of_topic = session.query(AssetEvent).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        rows = of_topic.filter(AssetModel.uri == f"x-cleantail://{topic}").order_by(AssetEvent.id).all()
        return [dict(row.extra) for row in rows]


def test_a_task_that_is_cleared_sends_no_event_again_and_what_is_new_is_sent(
    group: Site, jobs: StubbedJobs, airflow_db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event starts the DAGs that wait for the topic."""
    for name in ("once-told", "told-anew"):
        group.topic(name, group="pairs")
    due(group, monkeypatch, "once-told", "told-anew")
    jobs.answer("run_pack", {"ok": True, "topics": [outcome("once-told"), outcome("told-anew")]})
    dag = group.dag("pairs")
    first, later = dag.test(), outcome("told-anew")
    later["compacted"]["snapshot_id"] = 9
    jobs.answer("run_pack", {"ok": True, "topics": [outcome("once-told"), later]})
    assert dag.test(logical_date=first.logical_date, run_after=first.run_after).run_id == first.run_id
    # the run goes by what is due now: by its first outcomes, a topic with new records since would count as done
    requests = [json.loads(call["arguments"][3])["outcomes"] for call in jobs.calls]
    assert len(requests) == len({*requests}) == 2
    assert [event["snapshot_id"] for event in events_of("once-told")] == ["8"]
    assert [event["snapshot_id"] for event in events_of("told-anew")] == ["8", "9"]


def test_a_failed_rollback_is_notified_to_its_topic(group: Site, jobs: StubbedJobs, airflow_db: Path) -> None:
    jobs.answer("rollback", {"ok": False, "error": "no such snapshot"}, code=2)
    finished = group.dag("pairs").test(run_conf={"topic": "left", "rollback_to": "last"})
    assert (states(finished)["rollback"], str(finished.state)) == (["failed"], "failed")
    assert [(topic, event) for topic, event, _ in alerts_of(group)] == [("left", "run_failed")]


def test_deadlines_of_a_groups_topics_go_by_the_schedule_of_the_group(
    group: Site, jobs: StubbedJobs, airflow_db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic has no schedule of its own. By it, a record would be late although no run could have cleaned it."""
    from cleantail_airflow.alerts import alerting

    asked: list[Any] = []
    monkeypatch.setattr(alerting, "notify_missed_deadlines", lambda *arguments: asked.append(arguments[4]))
    group.topic("asked", group="pairs", publish="approve")
    finished = group.dag("pairs").test()
    group.dag("asked").test()
    assert asked == ["@daily"] * 3
    # nothing was due: a green run without a process
    begun = {ti.task_id for ti in finished.get_task_instances() if ti.hostname}
    assert (str(finished.state), begun, jobs.calls) == ("success", {"evaluate"}, [])


def test_text_of_a_broken_yaml_is_not_rendered_as_a_template(group: Site, jobs: StubbedJobs, airflow_db: Path) -> None:
    dag = group.dag("pairs")
    group.topic("right", group="pairs", description=["{{ 77 * 77 }}", 1], config={"{{ 66 * 66 }}": "{{ 55 * 55 }}"})
    finished = dag.test()
    assert states(finished)["run_pack"] == ["failed"]
    text = note_of(finished, "run_pack")
    assert "{{ 66 * 66 }}" in text and not {"5929", "4356", "3025"} & set(text.split())


def test_the_dags_have_the_prefix_and_a_broken_group_hides_no_other(group: Site, jobs: StubbedJobs) -> None:
    defaults = json.loads((group.config / "defaults.yaml").read_text())
    defaults["platform"]["dag_prefix"] = "lake-"
    (group.config / "defaults.yaml").write_text(json.dumps(defaults))
    (group.config / "groups" / "others.yaml").write_text(
        json.dumps({"group": "others", "limits": {"pack.max.byte": 1}})
    )
    bag = group.bag()
    assert sorted(bag.dags) == ["lake-cleantail_doctor", "lake-pairs"]
    assert [str(error).count("others.yaml") > 0 for error in bag.import_errors.values()] == [True]
    finished = bag.dags["lake-pairs"].test(run_conf={"topic": "left"})
    assert (str(finished.state), jobs.calls) == ("success", [])

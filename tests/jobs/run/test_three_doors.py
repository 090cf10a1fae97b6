"""The same history through the command line, a topic's DAG and a group's DAG ends in the same table and evidence.

The two DAGs send the same alerts and asset events. The command line has neither: they belong to Airflow. The group's
DAG then does what only it does: one topic alone, and a rollback of one topic.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyiceberg.expressions import EqualTo

from cleantail.config.alert_channels import Event
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.recorded_rounds import evidence_rows, load_evidence
from tests.airflow_environment import airflow_db  # noqa: F401  # first: nothing may import airflow before it
from tests.alert_sinks import hook  # noqa: F401
from tests.jobs.round.test_alerts import Operations, operations  # noqa: F401
from tests.jobs.round.test_rounds import NOW, record

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.gx]
LETTERS = {"expectation": "expect_column_values_to_match_regex", "kwargs": {"column": "key", "regex": "^[a-z]+$"}}
EVENTS = (Event.CHECK_FAILED, Event.QUARANTINED)
BY = ("command_line", "own_dag", "group_dag")
HISTORY = (
    # what is appended, and the clock of the run after it
    (
        [
            *(record(0, "a", "1"), record(1, "b", "1"), record(2, "a", "2"), record(3, "c", None)),
            *(record(0, "a", "1", partition=1), record(1, "A1", "1", partition=1)),
        ],
        NOW,
    ),
    ([record(4, "b", None), record(5, "d", "1")], NOW + 100_000),
)
"""Superseded records; a log whose check is red (its key is not of letters); tombstones, one of which expires in the
second run."""
DUE = {"delete.retention.ms": 50_000, "cleantail.reclaim.deleted.ratio": 0.2}
"""Tombstones expire within the history, and a file that is hidden for the most part is rewritten."""
SAME = [
    "partition",
    "kind",
    "outcome",
    "first_dirty_offset",
    "end_offset",
    "records_in",
    "records_out",
    "tombstones_in",
    "tombstones_out",
    "deleted",
    "passed",
]


def evidence_of(operations: Operations, topic: str) -> list[tuple[Any, ...]]:  # noqa: F811
    """The evidence of a topic, without names, times of the wall clock and ids of snapshots."""
    platform = operations.workshop.platform()
    table = load_evidence(open_catalog(platform), platform)
    assert table is not None
    rows = evidence_rows(table, EqualTo("topic", topic))
    checks = [sorted((c["expectation"], c["passed"]) for c in json.loads(row["checks"])) for row in rows]
    found = [(row["now_ms"], *(row[name] for name in SAME)) for row in rows]
    return sorted(zip(map(str, found), map(str, checks), strict=True))


def test_three_doors_leave_the_same_table_evidence_alerts_and_assets(operations: Operations) -> None:  # noqa: F811
    workshop = operations.workshop
    (workshop.config / "groups").mkdir(exist_ok=True)
    (workshop.config / "groups" / "doors.yaml").write_text(json.dumps({"group": "doors"}))
    topics = {}
    for door in BY:
        more = {"group": "doors"} if door == "group_dag" else {}
        name = f"doors-{door.replace('_', '-')}"
        source = {"path": f"landing/{name}/*.jsonl"}
        topics[door] = operations.topic(name, DUE, *EVENTS, checks=[LETTERS], source=source, **more)
    told: dict[str, list[tuple[int, str, str]]] = {door: [] for door in BY}
    events: dict[str, list[Any]] = {door: [] for door in BY}
    dags = {door: operations.site.dag(dag) for door, dag in (("own_dag", topics["own_dag"]), ("group_dag", "doors"))}
    for number, (records, now_ms) in enumerate(HISTORY):
        for door, topic in topics.items():
            file = workshop.platform().home / "landing" / topic / f"{number}.jsonl"
            if records:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("".join(json.dumps(each) + "\n" for each in records))
            if door == "command_line":
                if records:
                    workshop.ok("ingest", topic, "--file", file)
                planned = workshop.json("plan", topic, "--now", now_ms)
                code, _, _ = workshop.run("compact", topic, "--now", now_ms)
                assert code in (0, 1)
                if planned["reclaim"]["due"]:  # as in a DAG, where the task that evaluates decides it
                    workshop.ok("reclaim", topic, "--now", now_ms)
                continue
            before = len(operations.hook.posts)
            finished = dags[door].test(run_conf={"now_ms": now_ms})
            told[door] += [(number, body["event"], body["state"]) for _, body in operations.hook.posts[before:]]
            events[door] += [
                (number, event.extra["operation"], event.extra["partitions"], event.extra["checkpoints"])
                for event in asset_events(finished.run_id)
            ]
    first, *others = topics.values()
    assert any("reclaim" in row for row, _ in evidence_of(operations, first))
    assert [evidence_of(operations, other) for other in others] == [evidence_of(operations, first)] * 2
    kept = [[{**row, "topic": ""} for row in workshop.read(topic)] for topic in topics.values()]
    assert kept == [kept[0]] * 3 != [[]] * 3
    states = [
        [log["state"] for log in workshop.json("status", t, "--now", NOW + 100_000)["topics"][t]]
        for t in topics.values()
    ]
    assert states[1:] == [states[0]] * 2
    assert told["own_dag"] == told["group_dag"] != []
    assert events["own_dag"] == events["group_dag"] != []


@pytest.mark.deep
def test_a_group_does_a_topic_alone_and_rolls_it_back_and_names_the_topic_that_it_needs(operations: Operations) -> None:  # noqa: F811
    """test_group_dag.py holds the rules, with jobs that are none."""
    workshop = operations.workshop
    (workshop.config / "groups").mkdir()
    (workshop.config / "groups" / "alone.yaml").write_text(json.dumps({"group": "alone"}))
    one, other = (operations.topic(f"alone-{name}", {}, group="alone") for name in ("one", "other"))
    for topic in (one, other):
        operations.ingest(topic, record(0, "a", "1"), record(1, "a", "2"), record(2, "b", "3"))

    def run(**conf: Any) -> tuple[str, list[tuple[str, str, list[int]]]]:
        finished = operations.site.dag("alone").test(
            run_conf=conf
        )  # parsed again: a DAG keeps the parameters of its run
        events = asset_events(finished.run_id)
        return str(finished.state), [(e.asset.uri, e.extra["operation"], e.extra["partitions"]) for e in events]

    assert run(topic=one, now_ms=NOW) == ("success", [(f"x-cleantail://{one}", "compact", [0])])
    assert [[r["offset"] for r in workshop.read(topic)] for topic in (one, other)] == [[1, 2], [0, 1, 2]]
    assert run(topic=one, rollback_to="last", now_ms=NOW) == ("success", [(f"x-cleantail://{one}", "rollback", [0])])
    assert [r["offset"] for r in workshop.read(one)] == [0, 1, 2]
    assert run(rollback_to="last") == ("failed", [])


def asset_events(run_id: str) -> list[Any]:
    """The asset events of a run, in their order."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select
    from sqlalchemy.orm import joinedload

    with create_session() as session:
        of_run = select(AssetEvent).where(AssetEvent.source_run_id == run_id).options(joinedload(AssetEvent.asset))
        return list(session.scalars(of_run.order_by(AssetEvent.id)))

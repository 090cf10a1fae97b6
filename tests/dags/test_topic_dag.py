"""The shape of a topic's DAG: tasks, order, rules, pool, schedule, docs."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from cleantail.rounds.stations import STATIONS
from tests.airflow_site import Site

SPARK_TASKS = ["ingest", "compact", "check_quality", "publish", "expire_tombstones", "reclaim", "rollback"]


@pytest.fixture
def dag(site: Site) -> Any:
    site.topic("orders", source={"path": "landing/*.jsonl"}, owner="sales", description="All orders.")
    return site.dag("orders")


def test_the_tasks_follow_the_way_of_the_data(dag: Any) -> None:
    upstream = {task.task_id: sorted(task.upstream_task_ids) for task in dag.tasks}
    assert upstream == {
        "ingest": [],
        "evaluate": ["ingest"],
        "compact": ["evaluate"],
        "check_quality": ["compact"],
        "publish": ["check_quality"],
        "expire_tombstones": ["publish"],
        "reclaim": ["expire_tombstones", "publish"],
        "rollback": ["evaluate"],
        "outcome": sorted([*SPARK_TASKS, "evaluate"]),
        "alert": sorted([*SPARK_TASKS, "evaluate"]),
    }


def test_the_tasks_of_the_stations_are_in_the_order_of_the_table(site: Site) -> None:
    site.topic("orders", source={"kafka": {"bootstrap.servers": "localhost:1"}}, publish="approve")
    dag = site.dag("orders")
    names = [station.name for station in STATIONS if station.name in dag.task_ids]
    assert {*names} == {station.name for station in STATIONS} - {"convert_deletes"}
    for before, after in itertools.pairwise(names):
        assert before in dag.get_task(after).get_flat_relative_ids(upstream=True)


def test_the_grid_shows_few_boxes_and_tasks_keep_their_names(dag: Any) -> None:
    groups = {g.group_id: sorted(g.children) for g in dag.task_group.children.values() if hasattr(g, "children")}
    assert groups == {
        "round": ["check_quality", "compact", "publish"],
        "upkeep": ["expire_tombstones", "reclaim"],
        "when_needed": ["alert", "outcome", "rollback"],
    }
    assert list(groups) == sorted(groups)  # as the grid shows them, which knows no order between groups but the name's
    assert sorted(set(dag.task_group.children) - set(groups)) == ["evaluate", "ingest"]


def test_a_topic_without_a_source_path_has_no_ingest_task(site: Site) -> None:
    site.topic("orders")
    dag = site.dag("orders")
    assert "ingest" not in dag.task_ids
    assert dag.get_task("evaluate").upstream_task_ids == set()


def test_a_topic_whose_table_a_sink_fills_has_its_deletes_converted_before_it_is_evaluated(site: Site) -> None:
    columns = {"partition": "p", "offset": "o", "key": "k"}
    site.topic("orders", table="sinks.orders", columns=columns, source={"path": "landing/*.jsonl"})
    dag = site.dag("orders")
    assert "ingest" not in dag.task_ids
    convert, evaluate = dag.get_task("convert_deletes"), dag.get_task("evaluate")
    assert (convert.upstream_task_ids, evaluate.upstream_task_ids) == (set(), {"convert_deletes"})
    assert (convert.trigger_rule, evaluate.trigger_rule, convert.pool) == ("none_failed",) * 2 + ("cleantail_spark",)
    assert "`convert_deletes`" in dag.doc_md


@pytest.mark.parametrize(
    ("task", "rule"),
    [
        ("ingest", "all_success"),
        ("evaluate", "none_failed"),
        ("compact", "all_success"),
        ("check_quality", "all_success"),
        ("publish", "one_done"),
        ("expire_tombstones", "all_done"),
        ("reclaim", "all_done"),
        ("rollback", "all_success"),
        ("outcome", "one_failed"),
        ("alert", "all_done"),
    ],
)
def test_each_task_starts_by_its_own_rule(dag: Any, task: str, rule: str) -> None:
    assert dag.get_task(task).trigger_rule == rule


def test_exactly_the_spark_tasks_take_a_slot_of_the_pool(dag: Any) -> None:
    assert sorted(t.task_id for t in dag.tasks if t.pool == "cleantail_spark") == sorted(SPARK_TASKS)


def test_compact_is_mapped_over_the_units_and_labelled_by_partition(dag: Any) -> None:
    compact = dag.get_task("compact")
    assert compact.is_mapped
    assert compact.map_index_template == "{{ task.partitions }}"


def test_the_yaml_decides_schedule_owner_description_and_tags(site: Site) -> None:
    config = {"cleanup.policy": "compact,delete", "compaction.strategy": "timestamp"}
    site.topic("orders", schedule="5 4 * * *", owner="sales", description="All orders.", config=config)
    dag = site.dag("orders")
    assert dag.timetable.expression == "5 4 * * *"
    assert (dag.owner, dag.description) == ("sales", "All orders.")
    assert set(dag.tags) == {"cleantail", "compact,delete", "timestamp"}


def test_a_null_schedule_runs_only_by_hand(site: Site) -> None:
    site.topic("orders", schedule=None)
    assert not site.dag("orders").timetable.can_be_scheduled


def test_one_run_at_a_time_and_no_catching_up(dag: Any) -> None:
    assert (dag.max_active_runs, dag.catchup) == (1, False)


def test_the_pause_between_tries_is_the_cleaners_backoff(site: Site) -> None:
    (site.config / "defaults.yaml").write_text("platform: {cleaner: {log.cleaner.backoff.ms: 3000}}\n")
    site.topic("orders")
    assert site.dag("orders").get_task("publish").retry_delay.total_seconds() == 3


def test_the_docs_name_every_task_and_every_resolved_setting(dag: Any) -> None:
    for task in dag.task_ids:
        assert f"`{task}`" in dag.doc_md
    assert "| **segment.ms** | `1` | topic YAML |" in dag.doc_md
    assert "| delete.retention.ms | `86400000` = 1d | built-in default |" in dag.doc_md
    assert "| table | `cleantail.orders` | built-in default |" in dag.doc_md
    assert "Its asset is `x-cleantail://orders`." in dag.doc_md


def test_no_text_of_the_yaml_breaks_the_table_of_the_docs(site: Site) -> None:
    config = {"compaction.strategy": "header", "compaction.strategy.header": "a|b`c"}
    site.topic("orders", config=config)
    assert "| **compaction.strategy.header** | ``a\\|b`c`` | topic YAML |" in site.dag("orders").doc_md


def test_the_same_yaml_gives_the_same_dag_so_that_airflow_keeps_one_version(site: Site) -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    site.topic("orders", source={"path": "landing/*.jsonl"})
    first, second = (json.dumps(DagSerialization.to_dict(site.dag("orders")), sort_keys=True) for _ in range(2))
    assert first == second


def test_a_run_can_be_forced_bounded_and_dated_by_hand_or_undo_rounds(dag: Any) -> None:
    none = dict.fromkeys(("partition", "now_ms", "rollback_to"))
    assert {name: dag.params[name] for name in dag.params} == {"force": False, **none}


@pytest.mark.parametrize(
    "yaml", [{"publish": "approve"}, {"config": {"cleantail.max.drop.ratio": 0.5}}], ids=["approve", "limit"]
)
def test_a_topic_that_can_be_held_asks_before_each_publish_without_a_slot_of_the_pool(site: Site, yaml: Any) -> None:
    site.topic("orders", approvers=["anna", "b@example.org"], **yaml)
    dag = site.dag("orders")
    path = [
        "check_quality",
        "alert_early",
        "approve",
        "publish",
        "expire_tombstones",
        "approve_expiry",
        "publish_expiry",
        "reclaim",
    ]
    for before, after in itertools.pairwise(path):
        assert before in dag.get_task(after).upstream_task_ids
    for name, rule in {"approve": "one_done", "approve_expiry": "all_done"}.items():
        task = dag.get_task(name)
        assert dag.get_task("publish").trigger_rule == "all_done"  # approve is skipped where nobody is asked
        assert (task.pool, task.trigger_rule, task.defaults) == ("default_pool", rule, ["Reject"])
        assert task.response_timeout.total_seconds() == 86_400
        assert [user["id"] for user in task.assigned_users] == ["anna", "b@example.org"]
        assert f"`{name}`" in dag.doc_md


def test_a_question_waits_as_long_as_the_topic_says(site: Site) -> None:
    site.topic("orders", publish="approve", config={"cleantail.approval.timeout.ms": "2h"})
    dag = site.dag("orders")
    assert [dag.get_task(name).response_timeout.total_seconds() for name in ("approve", "approve_expiry")] == [7200] * 2


def test_free_text_is_one_line_of_plain_text_in_airflow(site: Site) -> None:
    text = "All orders.\n\n# Log in\u202e again\n![x](http://evil.example/b.png)"
    site.topic("orders", description=text)
    dag = site.dag("orders")
    assert dag.description == "All orders. # Log in again ![x](http://evil.example/b.png)"
    assert "evil.example" not in dag.doc_md


def test_a_topic_in_kafka_has_a_task_that_compares_it_with_its_source(site: Site) -> None:
    site.topic("read", source={"kafka": {"bootstrap.servers": "127.0.0.1:9"}})
    site.topic("asked", source={"kafka": {"bootstrap.servers": "127.0.0.1:9"}}, publish="approve")
    upstream = {task.task_id: sorted(task.upstream_task_ids) for task in site.dag("read").tasks}
    assert upstream["reconcile"] == ["publish"]
    assert upstream["expire_tombstones"] == ["publish", "reconcile"]
    assert upstream["reclaim"] == ["expire_tombstones", "publish", "reconcile"]
    held = {task.task_id: sorted(task.upstream_task_ids) for task in site.dag("asked").tasks}
    assert (held["approve_reconcile"], held["publish_reconcile"]) == (["reconcile"], ["approve_reconcile"])
    assert held["expire_tombstones"] == ["publish", "publish_reconcile"]
    assert "reconcile" in site.dag("read").params

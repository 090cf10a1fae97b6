"""The tasks of a group's DAG, and the order in which they run (group_dag has what each of them does)."""

from __future__ import annotations

from typing import Any

from airflow.sdk import TaskGroup, task_group

from cleantail_airflow.groups.alert_group import AlertGroupOperator
from cleantail_airflow.groups.evaluate_group import EvaluateGroupOperator
from cleantail_airflow.groups.group_rollback import GroupRollbackOperator
from cleantail_airflow.groups.pack_report import STATIONS
from cleantail_airflow.groups.run_pack_task import RunPackOperator
from cleantail_airflow.groups.station_tasks import station_class
from cleantail_airflow.task_ids import ALERT, EVALUATE, OUTCOME, ROLLBACK, RUN_PACK
from cleantail_airflow.tasks.pool import POOL
from cleantail_airflow.tasks.spark_operator import OutcomeOperator

LABEL = "{{ task.label }}"


def add_group_tasks(group: str, config_dir: str) -> None:
    """Adds the tasks to the DAG of the block: evaluate, the stations of each pack, and those of `when_needed`."""
    of_group: dict[str, Any] = {"group": group, "config_dir": config_dir}
    evaluate = EvaluateGroupOperator(task_id=EVALUATE, **of_group)

    @task_group(group_id="pack", prefix_group_id=False, tooltip="One pack of topics: its work, and its stations")
    def stations(pack: dict[str, Any]) -> None:
        run_pack = RunPackOperator(task_id=RUN_PACK, pack=pack, pool=POOL, map_index_template=LABEL, **of_group)
        for station in STATIONS:
            run_pack >> station_class(station.task_id)(
                task_id=station.task_id,
                pack=pack,
                trigger_rule="all_done",
                retries=0,
                map_index_template=LABEL,
                **of_group,
            )

    packs: Any = stations.expand(pack=evaluate.output)
    with TaskGroup(group_id="when_needed", tooltip="Only on request or if needed", prefix_group_id=False):
        rollback = GroupRollbackOperator(task_id=ROLLBACK, pool=POOL, **of_group)
        outcome = OutcomeOperator(task_id=OUTCOME, trigger_rule="one_failed", retries=0)
        alert = AlertGroupOperator(task_id=ALERT, trigger_rule="all_done", **of_group)
    evaluate >> rollback
    # each of them by itself: behind a pack whose application crashed all stations are skipped
    of_packs = list(packs.children.values())
    [evaluate, *of_packs, rollback] >> outcome
    [evaluate, *of_packs, rollback] >> alert

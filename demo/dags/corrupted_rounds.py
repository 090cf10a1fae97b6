"""`sensor-readings-corrupted`: the ordinary DAG of the topic, with one task more that damages what compact made.

Only the demonstration has this file. Everything but the task `sabotage` is what the topic's own DAG does, and nothing
there knows of it: that check_quality is red and readers see nothing of the damage is the point.
"""

from __future__ import annotations

import os
from pathlib import Path

from airflow.sdk import DAG, Context

from cleantail.config.loading import find_topic, load_platform
from cleantail_airflow.installation import config_dir
from cleantail_airflow.task_ids import CHECK_QUALITY, COMPACT
from cleantail_airflow.tasks.pool import POOL
from cleantail_airflow.tasks.spark_operator import CleantailSparkOperator
from cleantail_airflow.topic_dag import topic_dag

TOPIC = "sensor-readings"


class SabotageOperator(CleantailSparkOperator):
    """Deletes winners from the branches of the round."""

    job = "sabotage"

    def arguments(self, context: Context) -> list[str]:
        self.application = str(Path(__file__).resolve().parents[1] / "sabotage.py")
        units = context["ti"].xcom_pull(
            task_ids=COMPACT, map_indexes=range(len(context["ti"].xcom_pull(task_ids="evaluate")))
        )
        return [argument for unit in units for argument in ("--branch", unit["branch"])]


def corrupted_dag(topic_name: str, config: Path) -> DAG:
    """Returns the topic's DAG under another name, with `sabotage` between compact and check_quality."""
    dag = topic_dag(find_topic(topic_name, config, os.environ), load_platform(config, os.environ))
    dag.dag_id = dag.dag_display_name = f"{dag.dag_id}-corrupted"
    dag.doc_md = __doc__
    common = {"topic": topic_name, "config_dir": str(config), "pool": POOL}
    sabotage = SabotageOperator(task_id="sabotage", dag=dag, **common)
    dag.get_task(COMPACT) >> sabotage >> dag.get_task(CHECK_QUALITY)
    sabotage >> dag.get_task("outcome")
    return dag


corrupted = corrupted_dag(TOPIC, config_dir(os.environ))

"""`sensor-readings-corrupted`: the ordinary DAG of the topic, with a defect in `compact`: it also removes winners.

Only the demonstration has this file. All tasks except `compact` are the tasks of the topic's own DAG. The run shows
that check_quality fails, and that no reader sees the damage.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from cleantail.config.loading import find_topic
from cleantail.rounds.stations import COMPACT
from cleantail_airflow.installation import config_dir
from cleantail_airflow.tasks.topic_dag import CompactOperator, topic_dag

TOPIC = "sensor-readings"


class DefectiveCompactOperator(CompactOperator):
    """Compacts. The same application also deletes winners from the branch of the round."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.application = str(Path(__file__).resolve().parents[1] / "sabotage.py")


def corrupted_dag(topic_name: str, config: Path) -> DAG:
    """Return the topic's DAG under another name, with a defect in `compact`."""
    dag = topic_dag(find_topic(topic_name, config))
    dag.dag_id = dag.dag_display_name = f"{dag.dag_id}-corrupted"
    dag.doc_md = __doc__
    compact: Any = dag.get_task(COMPACT)  # a mapped task makes an operator for each unit
    compact.operator_class = DefectiveCompactOperator
    return dag


corrupted = corrupted_dag(TOPIC, config_dir())

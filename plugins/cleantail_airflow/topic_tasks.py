"""The tasks of a topic's DAG, and their order. The docstring of topic_dag describes each of them."""

from __future__ import annotations

import itertools
from typing import Any

from airflow.sdk import TaskGroup

from cleantail.config.topic import Topic
from cleantail.rounds.stations import (
    ALERT_EARLY,
    APPROVE,
    APPROVE_EXPIRY,
    APPROVE_RECONCILE,
    CHECK_QUALITY,
    COMPACT,
    CONVERT_DELETES,
    EVALUATE,
    EXPIRE_TOMBSTONES,
    INGEST,
    PUBLISH,
    PUBLISH_EXPIRY,
    PUBLISH_RECONCILE,
    RECLAIM,
    RECONCILE,
    ROLLBACK,
)
from cleantail_airflow.task_ids import ALERT, OUTCOME
from cleantail_airflow.tasks.alert_task import AlertOperator
from cleantail_airflow.tasks.approve_task import ApproveOperator
from cleantail_airflow.tasks.evaluate_task import EvaluateOperator
from cleantail_airflow.tasks.spark_job import OutcomeOperator
from cleantail_airflow.tasks.spark_pool import POOL
from cleantail_airflow.tasks.spark_tasks import (
    CheckQualityOperator,
    CompactOperator,
    ConvertDeletesOperator,
    ExpireTombstonesOperator,
    IngestOperator,
    PublishOperator,
    ReclaimOperator,
    ReconcileOperator,
    RollbackOperator,
)


def add_tasks(topic: Topic, config_dir: str) -> None:
    """Add the tasks to the current DAG, in a chain. The tasks of `when_needed` come after all others."""
    tasks = [*_source_tasks(topic, config_dir)]
    with _group("round", "A round: compact, check, publish"):
        tasks += _round_tasks(tasks[-1], topic, config_dir)
    publish = tasks[-1]
    with _group("upkeep", "Upkeep: keys deleted at the source, expired tombstones, space"):
        reconciling = _reconcile_tasks(topic, config_dir)
        tasks += [*reconciling, *_upkeep_tasks(topic, config_dir)]
    for before, after in itertools.pairwise(tasks):
        before >> after
    publish >> tasks[-1]  # evaluate may skip expire_tombstones before publish has ended
    if reconciling:  # also reconcile
        publish >> next(task for task in tasks if task.task_id == EXPIRE_TOMBSTONES)
        reconciling[-1] >> tasks[-1]
    with _group("when_needed", "Only on request or if needed: rollback, a failed outcome, alerts"):
        rollback = RollbackOperator(task_id=ROLLBACK, **_on_spark(topic, config_dir))
        outcome = OutcomeOperator(task_id=OUTCOME, trigger_rule="one_failed", retries=0)
        alert = AlertOperator(task_id=ALERT, trigger_rule="all_done", **_of_topic(topic, config_dir))
    next(task for task in tasks if task.task_id == EVALUATE) >> rollback
    [*tasks, rollback] >> outcome
    [*tasks, rollback] >> alert


def _source_tasks(topic: Topic, config_dir: str) -> list[Any]:
    """Return `ingest` if the topic has a source, `convert_deletes` if a sink fills its table, and `evaluate`."""
    rule: dict[str, Any] = {"trigger_rule": "none_failed"}
    tasks: list[Any] = []
    if topic.source.path or topic.source.kafka or topic.source.table:
        tasks.append(IngestOperator(task_id=INGEST, **_on_spark(topic, config_dir)))
    if topic.columns is not None:
        tasks.append(ConvertDeletesOperator(task_id=CONVERT_DELETES, **rule, **_on_spark(topic, config_dir)))
    return [*tasks, EvaluateOperator(task_id=EVALUATE, **rule, **_of_topic(topic, config_dir))]


def _round_tasks(evaluate: EvaluateOperator, topic: Topic, config_dir: str) -> list[Any]:
    """Return `compact` to `publish`. The latter also runs after a red check (one_done).

    If rounds may wait, `approve` is skipped when no approval is needed. `publish` runs then too (all_done).
    """
    spark = _on_spark(topic, config_dir)
    compact = CompactOperator.partial(task_id=COMPACT, map_index_template="{{ task.partitions }}", **spark)
    asks_nobody = not topic.waits_for_people
    check = CheckQualityOperator(task_id=CHECK_QUALITY, publishes=asks_nobody, **spark)
    tasks = [compact.expand(unit=evaluate.output), check]
    if asks_nobody:
        publish = PublishOperator(task_id=PUBLISH, trigger_rule="one_done", after_publishing_check=True, **spark)
        return [*tasks, publish]
    early: dict[str, Any] = {"trigger_rule": "one_done", "retries": 0, "early": True}
    return [
        *tasks,
        AlertOperator(task_id=ALERT_EARLY, **early, **_of_topic(topic, config_dir)),
        _approve(APPROVE, CHECK_QUALITY, "one_done", topic, config_dir),
        PublishOperator(task_id=PUBLISH, trigger_rule="all_done", **spark),
    ]


def _reconcile_tasks(topic: Topic, config_dir: str) -> list[Any]:
    """Return `reconcile` for a topic read from Kafka, with its approval if rounds may wait."""
    if topic.source.kafka is None:
        return []
    spark = _on_spark(topic, config_dir)
    reconcile = ReconcileOperator(task_id=RECONCILE, trigger_rule="all_done", **spark)
    if not topic.waits_for_people:
        return [reconcile]
    approve = _approve(APPROVE_RECONCILE, RECONCILE, "all_done", topic, config_dir)
    return [
        reconcile,
        approve,
        PublishOperator(task_id=PUBLISH_RECONCILE, source=RECONCILE, trigger_rule="one_done", **spark),
    ]


def _upkeep_tasks(topic: Topic, config_dir: str) -> list[Any]:
    """Return `expire_tombstones` and `reclaim`, which also run after failed tasks.

    If rounds may wait, `expire_tombstones` is skipped if it published nothing, for example while it waits.
    """
    spark = _on_spark(topic, config_dir)
    expire = ExpireTombstonesOperator(task_id=EXPIRE_TOMBSTONES, trigger_rule="all_done", **spark)
    reclaim = ReclaimOperator(task_id=RECLAIM, trigger_rule="all_done", **spark)
    if not topic.waits_for_people:
        return [expire, reclaim]
    approve = _approve(APPROVE_EXPIRY, EXPIRE_TOMBSTONES, "all_done", topic, config_dir)
    publish = PublishOperator(task_id=PUBLISH_EXPIRY, source=EXPIRE_TOMBSTONES, trigger_rule="one_done", **spark)
    return [expire, approve, publish, reclaim]


def _approve(task_id: str, source: str, trigger_rule: str, topic: Topic, config_dir: str) -> ApproveOperator:
    rule: dict[str, Any] = {"trigger_rule": trigger_rule}
    return ApproveOperator(task_id=task_id, source=source, topic=topic, config_dir=config_dir, **rule)


def _of_topic(topic: Topic, config_dir: str) -> dict[str, Any]:
    """Return the arguments of every operator except those that wait for a person."""
    return {"topic": topic.topic, "config_dir": config_dir}


def _on_spark(topic: Topic, config_dir: str) -> dict[str, Any]:
    """Return the arguments of the operators that start Spark: they take a slot of the pool."""
    return {**_of_topic(topic, config_dir), "pool": POOL}


def _group(name: str, tooltip: str) -> TaskGroup:
    """Make a group of tasks in the grid. The names of the tasks do not contain the group."""
    return TaskGroup(group_id=name, tooltip=tooltip, prefix_group_id=False)

"""All DAGs of a configuration, for a file in any DAGs folder:

    from cleantail_airflow import topic_dags

    globals().update(topic_dags("/etc/cleantail/config"))

A topic whose YAML is broken has no DAG, and does not hide the others. The DAG of `doctor_dag`, in the same file, has
the number of broken files in its name:

    doctor = doctor_dag("/etc/cleantail/config")

The DAG of `erasure_dag` continues requests to erase keys:

    erasures = erasure_dag("/etc/cleantail/config", schedule="@daily")

Airflow shows an import error of a file only if the file has no DAG. So a second file turns broken YAML into an import
error:

    from cleantail_airflow import refuse_broken_topics

    refuse_broken_topics("/etc/cleantail/config")
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from airflow.sdk import DAG, Param, get_parsing_context

from cleantail.config.loading import dag_prefix, load_platform
from cleantail.config.topic import DOCTOR_DAG, ERASURE_DAG, Topic, dag_id_of, topic_of
from cleantail.config.topic_group import TopicGroup
from cleantail.errors import CleantailError, ConfigError
from cleantail.human import counted
from cleantail_airflow.dag_defaults import DOCTOR, ERASE, FIRST_DAY
from cleantail_airflow.groups.group_dag import group_dag
from cleantail_airflow.tasks.assets import usable_groups, usable_topics
from cleantail_airflow.tasks.doctor_task import SEND_TEST, DoctorOperator
from cleantail_airflow.tasks.erase_task import TOPIC, EraseOperator
from cleantail_airflow.tasks.spark_pool import POOL
from cleantail_airflow.tasks.topic_dag import code_span, topic_dag


def topic_dags(config: str | os.PathLike[str]) -> dict[str, DAG]:
    """Return the DAGs of the configuration: one for each topic, or for each group of topics.

    The keys collide with no variable of a DAG file. The function only reads YAML. A task gets only its own DAG. Raises
    ConfigError if `config` is not a directory.
    """
    context = get_parsing_context()
    dags = _dags(Path(config).absolute(), context.dag_id, of_task=context.task_id is not None)
    return {f"dag of {dag.dag_id}": dag for dag in dags}


def _dags(config_dir: Path, only: str | None, of_task: bool) -> Iterator[DAG]:
    """Yield the DAGs of the usable topics and groups. `only`: the id of the requested DAG. `of_task`: a task requests
    it. Commands such as `airflow dags test` also request one DAG, and write it to Airflow's database."""
    groups = {g.group: g for _, g in usable_groups(config_dir) if isinstance(g, TopicGroup)}
    wanted = topic_of(only, dag_prefix(config_dir)) if only and groups else None
    if wanted in groups and of_task:
        # only the docs of a group's DAG name its topics, so a task does not read the YAML of a thousand topics
        yield group_dag(groups[wanted], (), load_platform(config_dir))
        return
    topics = [topic for _, topic in usable_topics(config_dir) if isinstance(topic, Topic)]
    if not topics:  # with a broken defaults.yaml no topic is usable
        return
    platform = load_platform(config_dir)
    for topic in topics:
        group = groups.get(topic.group) if topic.group else None
        own = topic.dag_name == topic.topic and (topic.group is None or group is not None)
        if own and only in (None, dag_id_of(topic.topic, platform.dag_prefix)):
            yield topic_dag(topic, group)
    for name, group in groups.items():
        if only is None or name == wanted:
            yield group_dag(group, [topic for topic in topics if topic.dag_name == name], platform)


def refuse_broken_topics(config: str | os.PathLike[str]) -> None:
    """Raise CleantailError with file, line and key of each error in the configuration, if any.

    Airflow shows import errors to users who may not read these DAGs, so the message contains no values.
    `cleantail check-config` and the topic's page show them.
    """
    if lines := _broken(Path(config).absolute()):
        head = "these files are wrong, so their topics have no DAG; `cleantail check-config` shows the errors:"
        raise CleantailError("\n".join([head, *lines]))


def _broken(config_dir: Path) -> list[str]:
    """Return file, line and key of each error, without values. A broken defaults.yaml is listed once, not by topic."""
    scanned = (*usable_topics(config_dir), *usable_groups(config_dir))
    errors = [error for _, error in scanned if isinstance(error, ConfigError)]
    return list(dict.fromkeys(line for error in errors for line in error.locations))


def doctor_dag(config: str | os.PathLike[str]) -> DAG:
    """Return the DAG that examines the installation on a worker, as `cleantail doctor` does. It has no schedule.

    Its name in the DAG list has the number of broken files, and its docs list their errors. Raises ConfigError if
    `config` is not a directory.
    """
    folder = Path(config).absolute()
    broken = [] if get_parsing_context().dag_id else _broken(folder)  # a task needs only the task
    note = f": {counted(len(broken), 'error')} in the configuration" if broken else ""
    dag_id = dag_id_of(DOCTOR_DAG, dag_prefix(folder))
    with DAG(
        dag_id=dag_id,
        dag_display_name=f"{dag_id}{note}",
        description="Trigger it to examine everything that a run of Cleantail needs",
        doc_md="\n".join([DOCTOR_DOCS, *(f"- {code_span(line)}" for line in broken)]),
        schedule=None,
        start_date=FIRST_DAY,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,
        tags=["cleantail"],
        params={SEND_TEST: Param(False, type="boolean", description="Send a test message to each alert channel.")},
        default_args={"owner": "cleantail", "retries": 0},
    ) as dag:
        DoctorOperator(task_id=DOCTOR, config_dir=str(folder))
    return dag


def erasure_dag(config: str | os.PathLike[str], schedule: str | None = None) -> DAG:
    """Return the DAG that continues open requests to erase keys. It runs by the schedule, or when triggered.

    Raises ConfigError if `config` is not a directory.
    """
    folder = Path(config).absolute()
    with DAG(
        dag_id=dag_id_of(ERASURE_DAG, dag_prefix(folder)),
        description="Erases the keys of open requests, and certifies each erasure",
        doc_md=ERASURE_DOCS,
        schedule=schedule,
        start_date=FIRST_DAY,
        catchup=False,
        max_active_runs=1,
        tags=["cleantail"],
        params={TOPIC: Param(None, type=["null", "string"], description="Only this topic; null: all with requests.")},
        default_args={"owner": "cleantail", "retries": 0},
    ) as dag:
        EraseOperator(task_id=ERASE, config_dir=str(folder), pool=POOL)
    return dag


ERASURE_DOCS = """\
The task `erase` continues open requests to erase keys, and records requests that were left as files in
`CLEANTAIL_HOME/erasures`. It fails if a request is not certified: its log has the reason. No param, XCom or log
contains a key. See docs/erasure.md.
"""


DOCTOR_DOCS = """\
The task `doctor` examines configuration, catalog, store, Kafka topics, Spark, alert channels and API server, as
`cleantail doctor` does, and changes nothing. Its log has each finding and the next step. The page Compaction shows the
last result. The task fails if something is wrong.

Broken files, whose topics have no DAG (none, if the list is empty; `cleantail check-config` shows the errors):
"""

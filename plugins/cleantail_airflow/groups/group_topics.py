"""The topics that the DAG of a group runs, as the YAML says it now: a task never goes by an XCom or a parameter alone,
which could name the topic of another group."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cleantail.config.loading import may_run_in, scan_topics
from cleantail.config.topic import Topic
from cleantail.errors import ConfigError
from cleantail_airflow.airflow_exceptions import AirflowFailException


def topics_of_group(group: str, config_dir: str, only: str | None = None) -> Iterator[tuple[str, Topic | ConfigError]]:
    """Yields the topics of a group by name, and those with a broken YAML that would be among them. `only`: the one that
    a person asks for; raises AirflowFailException where it is not among them."""
    folder = Path(config_dir)
    found = {
        file.stem: topic
        for file, topic in scan_topics(folder)
        if only in (None, file.stem)
        and (topic.dag_name == group if isinstance(topic, Topic) else may_run_in(group, file, folder))
    }
    yield from found.items()
    if only is not None and not found:
        raise AirflowFailException(f"no topic {only} runs in the group {group}; nothing was done")

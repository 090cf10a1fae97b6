"""Says what the templates of the page are filled with: a template knows each field of these values by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from cleantail.config.run_schedule import Schedule
from cleantail.config.settings_in_force import Setting
from cleantail.config.topic import Topic
from cleantail.config.topic_group import TopicGroup
from cleantail.lake.runs.run_plan import RunPlan
from cleantail.log.source_position import SnapshotPosition
from cleantail.rounds.past_rounds import Round
from cleantail.rounds.rollback_plan import UndoneRound
from cleantail.watch.dag_state import DagState
from cleantail.watch.topic_list import Listing, Selection, TopicRow
from cleantail.watch.topic_states import State
from cleantail_airflow.page.data_docs import DocsPage
from cleantail_airflow.page.kafka_watch import SourceView
from cleantail_airflow.page.page_charts import Charts
from cleantail_airflow.page.page_rows import LogView


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Says what stands above the topics on a group's page: the group as its YAML says, and its DAG."""

    name: str
    group: TopicGroup
    dag: DagState


@dataclass(frozen=True, slots=True)
class TopicsPage:
    """Describes a page of many topics. `groups` are the names of their groups; `reading` says that some tables are
    still being read; `of_group` is there on the page of one group."""

    listing: Listing
    selection: Selection
    groups: Sequence[str]
    meaning: Mapping[State, str]
    reading: bool
    now_ms: int
    of_group: GroupPage | None = None


@dataclass(frozen=True, slots=True)
class TopicPage:
    """Describes the page of one topic.

    `owner` and `schedule` are those of its runs, which may be its group's.
    `approval_task` is the task that waits for a person's answer ("" where none does), and `waiting_round` its round.
    `rounds` are the newest, with their pages of Data Docs in `docs`; `more_rounds` older ones are not shown. `undoable`
    has the rounds that can be undone by name and kind, `newest` the first that a rollback undoes. `rounds_error` is why
    the evidence cannot be read. `source` is the
    topic's source in Kafka, None where it has another one, and `source_table` how far it was read from a table.
    """

    topic: Topic
    row: TopicRow
    owner: str
    schedule: Schedule | None
    ingestion: str
    dag: DagState
    approval_task: str
    waiting_round: Round | None
    meaning: Mapping[State, str]
    limits: str
    plan: RunPlan
    logs: Sequence[LogView]
    charts: Charts
    charts_shown: int
    rounds: Sequence[Round]
    docs: Mapping[str, Sequence[DocsPage]]
    more_rounds: int
    undoable: Mapping[tuple[str, str], UndoneRound]
    newest: UndoneRound | None
    settings: Sequence[Setting]
    now_ms: int
    source: SourceView | None = None
    source_table: SnapshotPosition | None = None
    rounds_error: str = ""


def by_name(page: TopicsPage | TopicPage) -> dict[str, Any]:
    """Returns the fields as they are, for a template: dataclasses.asdict would take them apart."""
    return {field.name: getattr(page, field.name) for field in fields(page)}

"""The plan of a group's run as `evaluate` writes it, and the packs over which the stations are mapped."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow.sdk import Context, Variable

from cleantail.codec import Codec
from cleantail.config.loading import may_run_in, scan_topics
from cleantail.config.topic import Topic
from cleantail.errors import ConfigError, TableError
from cleantail.rounds.pack_results import PackRequest
from cleantail.rounds.stations import EVALUATE
from cleantail_airflow.airflow_exceptions import AirflowFailException
from cleantail_airflow.alerts import channels
from cleantail_airflow.dag_defaults import PLAN
from cleantail_airflow.outcomes.run_xcoms import parsed
from cleantail_airflow.tasks.run_params import PARAMS, RECONCILE, RECONCILE_PARAM, ROLLBACK_TO, require_known_params

TOPIC = "topic"
NAMES = (RECONCILE, "partition", ROLLBACK_TO)
"""The parameters that need a topic."""
GROUP_PARAMS: dict[str, dict[str, Any]] = {
    TOPIC: {
        "default": None,
        "type": ["null", "string"],
        "maxLength": 249,
        "description": "Only this topic of the group. Empty: all. Required by partition, reconcile and rollback_to.",
    },
    **PARAMS,
    RECONCILE: RECONCILE_PARAM,
}


@dataclass(frozen=True, slots=True)
class GroupRunParams:
    """The parameters of a run. `topic` None: all topics. `rollback_to` None: an ordinary run."""

    topic: str | None
    force: bool
    partition: int | None
    now_ms: int | None
    reconcile: bool
    rollback_to: str | None

    @classmethod
    def of(cls, context: Context) -> GroupRunParams:
        """Return the parameters of the run.

        Raises AirflowFailException for an unknown parameter, or if a parameter needs a topic and no topic is given.
        """
        require_known_params(context)
        params = context["params"]
        topic = params[TOPIC] or None
        needs = [name for name in NAMES if params[name] is not None and params[name] is not False]
        if needs and topic is None:
            raise AirflowFailException(f"{' and '.join(needs)} needs the parameter topic; nothing was done")
        return cls(
            topic, params["force"], params["partition"], params["now_ms"], params[RECONCILE], params[ROLLBACK_TO]
        )


def topics_of_group(group: str, config_dir: str, only: str | None = None) -> Iterator[tuple[str, Topic | ConfigError]]:
    """Yield the present topics of the group's DAG by their YAML, and the broken files that may belong to it.

    Tasks call this because an XCom or a parameter may name a topic of another group. `only`: the only topic of the
    run. Raises AirflowFailException if the group does not run that topic.
    """
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


PREFIX = "cleantail.left_over."
_DESCRIPTION = "Topics that runs of the group have left over, and since when. Kept by Cleantail."
_SINCE_JSON: Codec[dict[str, int]] = Codec(dict[str, int])

logger = logging.getLogger(__name__)


def variable_name(group: str) -> str:
    return channels.variable_name(group, PREFIX)


def left_since(group: str) -> dict[str, int]:
    """Return topic -> time of the first run that did not reach it (Unix ms). Empty if the variable was deleted."""
    text = Variable.get(variable_name(group), default=None)
    try:
        return _SINCE_JSON.value(text, "the variable") if text else {}
    except TableError as error:
        logger.warning("variable %s cannot be read and is written again: %s", variable_name(group), error)
        return {}


def remember(
    group: str, left_over: Iterable[str], before: Mapping[str, int], now_ms: int, only: str | None = None
) -> None:
    """Store the topics that the run did not reach. Topics that are stored already keep their time.

    `only`: the only topic of the run, after which other topics stay stored. Writes only after a change.
    """
    others = {topic for topic in before if only not in (None, topic)}
    since = {topic: before.get(topic, now_ms) for topic in sorted({*left_over, *others})}
    if since != dict(before):
        Variable.set(variable_name(group), _SINCE_JSON.text(since), description=_DESCRIPTION)


@dataclass(frozen=True, slots=True)
class PlannedPack:
    """The topics of a pack, the most urgent first.

    `errors`: topic -> why it cannot be evaluated. Only one pack has errors. It shows such topics and starts no
    application. `largest_bytes`: new input of the largest topic, None if unknown.
    """

    label: str
    topics: tuple[str, ...]
    errors: Mapping[str, str] = field(default_factory=dict)
    largest_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """The work of a run for the topics of a group.

    `now_ms`: the run's clock (Unix ms). `evaluated`: number of evaluated topics. `left_over`: topics that are due
    and wait for the next run. `to_report`: topics without due work but with a report. `skipped`: stations without work
    when the run was planned.
    """

    now_ms: int
    reason: str
    evaluated: int = 0
    force: bool = False
    partition: int | None = None
    reconcile: bool = False
    packs: tuple[PlannedPack, ...] = ()
    left_over: tuple[str, ...] = ()
    to_report: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def broken(self) -> dict[str, str]:
        return {topic: error for pack in self.packs for topic, error in pack.errors.items()}

    @property
    def due(self) -> list[str]:
        planned = [topic for pack in self.packs if not pack.errors for topic in pack.topics]
        return [*planned, *self.left_over]

    def request(self, pack: PlannedPack, outcomes: str) -> PackRequest:
        """Return the request for the job of a pack. `outcomes`: the file in CLEANTAIL_HOME that stores its topics'
        outcomes."""
        return PackRequest(pack.topics, self.now_ms, self.force, self.partition, self.reconcile, outcomes)


GROUP_PLAN_JSON: Codec[GroupPlan] = Codec(GroupPlan)
PLANNED_PACK_JSON: Codec[PlannedPack] = Codec(PlannedPack)


def group_plan_of(context: Context) -> GroupPlan | None:
    """Return the plan of this run, or None if `evaluate` made no plan. Raises AirflowFailException for an XCom that
    `evaluate` cannot have written."""
    plan = context["ti"].xcom_pull(task_ids=EVALUATE, key=PLAN)
    return None if plan is None else parsed(GROUP_PLAN_JSON, plan, f"the XCom {PLAN} of {EVALUATE}")


def planned_pack(pack: Mapping[str, Any]) -> PlannedPack:
    """Parse a pack. Raises AirflowFailException for a pack that `evaluate` cannot have written."""
    return parsed(PLANNED_PACK_JSON, pack, f"a pack of {EVALUATE}")

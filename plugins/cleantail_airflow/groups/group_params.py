"""The parameters of a group's run: those of a topic's, and which topic is meant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow.sdk import Context, Param

from cleantail_airflow.airflow_exceptions import AirflowFailException
from cleantail_airflow.tasks.run_params import PARAMS, RECONCILE, RECONCILE_PARAM, ROLLBACK_TO, require_known_params

TOPIC = "topic"
NAMES = (RECONCILE, "partition", ROLLBACK_TO)
"""The parameters that need a topic."""
TOPIC_PARAM: dict[str, Any] = {
    "default": None,
    "type": ["null", "string"],
    "maxLength": 249,
    "description": "Only this topic of the group. Empty: all. Required by partition, reconcile and rollback_to.",
}


def group_params() -> dict[str, Param]:
    """Returns the parameters of a group's DAG."""
    described = {TOPIC: TOPIC_PARAM, **PARAMS, RECONCILE: RECONCILE_PARAM}
    return {name: Param(**values) for name, values in described.items()}


@dataclass(frozen=True, slots=True)
class Asked:
    """Says what a person asked of a run. `topic`: None is all; `rollback_to`: None is an ordinary run."""

    topic: str | None
    force: bool
    partition: int | None
    now_ms: int | None
    reconcile: bool
    rollback_to: str | None

    @classmethod
    def of(cls, context: Context) -> Asked:
        """Returns the parameters of the run. Raises AirflowFailException for one that the DAG has not, and for one
        that needs a topic and has none."""
        require_known_params(context)
        params = context["params"]
        topic = params[TOPIC] or None
        needs = [name for name in NAMES if params[name] is not None and params[name] is not False]
        if needs and topic is None:
            raise AirflowFailException(f"{' and '.join(needs)} needs the parameter topic; nothing was done")
        return cls(
            topic, params["force"], params["partition"], params["now_ms"], params[RECONCILE], params[ROLLBACK_TO]
        )

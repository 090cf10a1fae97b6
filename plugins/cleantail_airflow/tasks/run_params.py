"""The parameters of a run: refuses one that was triggered with the name of none, which Airflow would pass over."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from airflow.sdk import Context

from cleantail_airflow.airflow_exceptions import AirflowFailException

ROLLBACK_TO = "rollback_to"
"""The parameter of a run that undoes rounds instead of doing one."""

RECONCILE = "reconcile"
"""The parameter of a run that compares the table with its source."""


PARAMS: dict[str, dict[str, Any]] = {
    "force": {
        "default": False,
        "type": "boolean",
        "description": "Ignore the dirty ratio, but not the bounds.",
    },
    "partition": {
        "default": None,
        "type": ["null", "integer"],
        "minimum": 0,
        "description": "Only this partition. Empty: all.",
    },
    "now_ms": {
        "default": None,
        "type": ["null", "integer"],
        "minimum": 0,
        "description": "The clock of every decision, in Unix ms. Empty: now. It needs platform.allow_clock: true. "
        "`date -d '2026-11-29 14:20 UTC' +%s000` prints such a number.",
    },
    ROLLBACK_TO: {
        "default": None,
        "type": ["null", "string"],
        "pattern": "^(last|[0-9]{1,19})$",
        "description": "Undo rounds, and do nothing else. last: the last published round. A snapshot's id: all rounds "
        "after it.",
    },
}
RECONCILE_PARAM: dict[str, Any] = {
    "default": False,
    "type": "boolean",
    "description": "Remove keys that are alive in the table and deleted in Kafka.",
}
"""The parameters of a run, as Airflow's Param takes them. Each DAG makes Params of its own: Airflow writes what a run
of `dag.test` was given into its DAG's."""


def require_known_params(context: Context) -> None:
    """Raises AirflowFailException where the run's conf has a name that the DAG has no parameter of.

    Airflow takes such a conf by its API, and the run would be an ordinary one: who wrote `rolback_to` would compact.
    The first task of a run asks. Values are Airflow's to check.
    """
    params = sorted(context["dag"].params)
    unknown = sorted(map(str, set(context["dag_run"].conf or ()) - set(params)))
    if unknown:
        nearest = get_close_matches(unknown[0], params, n=1)
        hint = f" (did you mean {nearest[0]}?)" if nearest else ""
        raise AirflowFailException(
            f"the run was triggered with {', '.join(unknown)}, which is not a parameter of this DAG{hint}. It takes "
            f"{', '.join(params)}. Nothing was done. Trigger it again"
        )

"""The parameters of a run. Cleantail refuses a run with an unknown parameter, because Airflow would ignore the name."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from airflow.sdk import Context

from cleantail.human import seconds_problem
from cleantail_airflow.airflow_exceptions import AirflowFailException

ROLLBACK_TO = "rollback_to"
RECONCILE = "reconcile"

PARAMS: dict[str, dict[str, Any]] = {
    "force": {
        "default": False,
        "type": "boolean",
        "description": "Compact even below min.cleanable.dirty.ratio. The active segment and min.compaction.lag.ms "
        "still apply.",
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
        "description": "Decide as if it were this time, in Unix ms. Empty: now. It needs platform.allow_clock: true. "
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
"""Arguments of Airflow's Param. Each DAG makes its own Params, because `dag.test` writes a run's values into them."""


def require_known_params(context: Context) -> None:
    """Raise AirflowFailException for a name that is not a parameter of the DAG, or for a clock in seconds.

    Airflow's API accepts any conf. Without this check a run with the typo `rolback_to` would compact. The first task of
    a run calls this function. Airflow checks the types of the values.
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
    if problem := seconds_problem(context["params"].get("now_ms") or 0):
        raise AirflowFailException(f"now_ms: {problem}. Nothing was done. Trigger it again")

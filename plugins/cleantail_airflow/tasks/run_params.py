"""The parameters of a run: refuses one that was triggered with the name of none, which Airflow would pass over."""

from __future__ import annotations

from difflib import get_close_matches

from airflow.sdk import Context

from cleantail_airflow.airflow_exceptions import AirflowFailException

ROLLBACK_TO = "rollback_to"
"""The parameter of a run that undoes rounds instead of doing one."""

RECONCILE = "reconcile"
"""The parameter of a run that compares the table with its source."""


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
            f"the run was triggered with {', '.join(unknown)}, which is no parameter of this DAG{hint}: it takes "
            f"{', '.join(params)}. Nothing was done; trigger it anew"
        )

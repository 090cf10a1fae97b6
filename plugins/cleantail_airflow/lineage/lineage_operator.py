"""Says what makes an operator tell its lineage: the methods that Airflow's provider for OpenLineage asks for.

The provider asks in a process that it has forked and ends after some seconds, in which no client of a store works
reliably. So what is told is read from the catalog before that, by the task itself, and only where the provider is
installed and has somewhere to send events to. What goes wrong with it never fails a task.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cleantail.errors import CleantailError
from cleantail.lineage import StationLineage

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

PROVIDER = "airflow.providers.openlineage"


class LineageOperator:
    """Is a base of the operators that tell what they have read and written."""

    lineage: StationLineage | None = None
    log: Any

    def keep_lineage(self, told: Callable[[], StationLineage | None]) -> None:
        """Keeps what `told` returns for the end of the task."""
        if not is_wanted():
            return
        try:
            self.lineage = told()
        except Exception as error:  # lineage is told of what a task does, and decides nothing
            # of other errors nobody knows what their texts hold
            why = error if isinstance(error, CleantailError) else type(error).__name__
            self.log.warning("no lineage is told of this task: %s", why)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage:
        """Returns the datasets of a task that ended well, or was skipped, none where it read none; the provider calls
        it."""
        from cleantail_airflow.lineage.openlineage_facets import operator_lineage

        return operator_lineage(self.lineage or StationLineage())

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> OperatorLineage:
        """Returns the datasets of a task that failed, as one with a red check has them too."""
        return self.get_openlineage_facets_on_complete(task_instance)


def is_wanted() -> bool:
    """Returns whether somebody listens: the provider is installed, and knows where to send events."""
    if importlib.util.find_spec(PROVIDER) is None:
        return False
    from airflow.providers.openlineage.conf import is_disabled

    return not is_disabled()

"""The expectation by which a rule is asked first: the highest number of violations is 0."""

from __future__ import annotations

from functools import cache
from typing import Any

from spark_jobs.quality.judge import imported


@cache
def rule_expectation() -> type[Any]:
    """Returns the class of the expectation: Great Expectations' own, which remembers its configuration.

    Great Expectations asks an expectation for that some fifty times in a validation, and its own makes it anew each
    time: half of the work of judging a round.
    """
    highest: type[Any] = imported().expectations.ExpectColumnMaxToBeBetween
    from great_expectations.compatibility import pydantic

    class ExpectHighestCountToBeBetween(highest):  # type: ignore[misc]  # it is known once it is imported
        _remembered: Any = pydantic.PrivateAttr(default=None)

        @property
        def configuration(self) -> Any:
            if self._remembered is None:
                self._remembered = super().configuration
            return self._remembered

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name != "_remembered":
                self._remembered = None

        def __copy__(self) -> Any:
            copied = super().__copy__()
            copied._remembered = None
            return copied

    return ExpectHighestCountToBeBetween

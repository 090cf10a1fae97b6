"""Check the rounds of many topics at once.

Great Expectations validates their measures together, and one commit appends their rows to the evidence. The results
equal those of single checks, because the same rules apply to each log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from cleantail.config.platform import Platform
from cleantail.rounds.check_results import CheckResult
from cleantail.rounds.checked_round import CheckedRound
from spark_jobs.quality.expectations import validated_together
from spark_jobs.quality.time_limit import are_cores_lost
from spark_jobs.round.check import MeasuredRound, with_verdicts
from spark_jobs.round.evidence import append_evidence


def check_together(
    platform: Platform, rounds: Sequence[MeasuredRound], at: Callable[[str], AbstractContextManager[None]]
) -> tuple[list[CheckedRound | Exception], bool]:
    """Return the checked round of each topic or the error of its check, and whether cores are lost.

    If cores are lost, later rounds were not checked and the list is shorter. The checked rounds are recorded when this
    returns. Raises if they cannot be. `at`: context manager for each topic while its
    records are read, by the topic's name.
    """
    results = _by_rules(rounds)
    checked: list[CheckedRound | Exception] = []
    kept, lost = [], False
    for measured, of_rules in zip(rounds, results, strict=True):
        try:
            with at(measured.table.topic.topic):
                judged, all_results = with_verdicts(measured, platform, of_rules)
        except Exception as error:
            checked.append(error)
        else:
            checked.append(judged)
            kept.append((measured.table, judged, all_results))
        # without a core the checks of later topics would take too long too, and would block their logs
        lost = bool(measured.table.topic.checks) and are_cores_lost(measured.table.spark)
        if lost:
            break
    if kept:
        append_evidence(platform, kept)
    return checked, lost


def _by_rules(rounds: Sequence[MeasuredRound]) -> list[list[CheckResult]]:
    """Return the results of the rules for each round. Rounds with the same rules are validated together."""
    results: dict[int, list[CheckResult]] = {}
    for rules in {measured.rules for measured in rounds}:
        numbers = [number for number, measured in enumerate(rounds) if measured.rules == rules]
        asked = [(rounds[n].auditor, rounds[n].round, rounds[n].violations) for n in numbers]
        results |= dict(zip(numbers, validated_together(asked), strict=True))
    return [results[number] for number in range(len(rounds))]

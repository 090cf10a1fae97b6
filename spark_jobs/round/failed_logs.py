"""Says what is left of logs whose check failed: a branch to look at, and a state in quarantine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cleantail.log.log_state import KEYLESS_RULE
from cleantail.log.partition_state import PartitionState, states_of_properties
from cleantail.log.quarantine import after_failure, failed_name
from cleantail.log.round_state import COMPACT, EXPIRE, RECONCILE
from cleantail.rounds.check_results import CheckResult
from cleantail.rounds.checked_round import CheckedRound, keyless_logs, misread_logs
from spark_jobs.iceberg.iceberg_reads import texts
from spark_jobs.iceberg.tables import TopicTable

BRANCH_LETTERS = {COMPACT: "u", EXPIRE: "x", RECONCILE: "r"}
"""Kind of a round -> what stands before the number of the unit in the name of its branch."""


def failed_logs(checked: CheckedRound) -> dict[int, list[str]]:
    """Returns partition -> the names of its failed expectations. A name is followed by what was observed only where
    Cleantail wrote that text. A log that failed nothing itself, and is held back for others with which it shares files,
    is left out."""
    return {v.partition: [_named(failure) for failure in v.failures] for v in checked.verdicts if v.failed}


def _named(failure: CheckResult) -> str:
    """Returns the expectation's name; with what was observed only of an error, and of records without a key: of all
    else that may hold data."""
    ours = failure.error or failure.expectation == KEYLESS_RULE
    return f"{failure.expectation} ({failure.observed})" if ours else failure.expectation


def keep_failed(table: TopicTable, checked: CheckedRound) -> dict[int, str]:
    """Keeps the branches of units in which a log failed under names of their own, where they can be looked at. Returns
    partition -> that name; empty where none is kept.

    A log that is held back for records without a key, or since two readers see it differently, has none: nothing of it
    was changed."""
    if not table.topic.config.cleantail_failed_branch_retention_ms:
        return {}
    kept: dict[int, str] = {}
    red = failed_logs(checked).keys() - keyless_logs(checked.units).keys() - misread_logs(checked.units).keys()
    for unit in checked.units:
        failed = [w.partition for w in unit.partitions if w.partition in red]
        if failed and table.load().refs().containsKey(unit.branch):
            name = failed_name(checked.round, unit.unit, BRANCH_LETTERS[checked.kind], unit.now_ms)
            table.create_branch(name, table.head_of(unit.branch))
            kept |= dict.fromkeys(failed, name)
    return kept


def drop_unnamed(table: TopicTable, branches: Iterable[str]) -> None:
    """Drops the branches that keep_failed created for a commit that then failed, but for those that a quarantine names:
    another try of the same round may have been faster, and its states name the same branches."""
    states = states_of_properties(texts(table.load().properties()), table.name)
    table.drop_branches(set(branches) - {s.quarantine.branch for s in states.values() if s.quarantine})


def quarantined(
    checked: CheckedRound,
    states: Mapping[int, PartitionState],
    kept: Mapping[int, str],
    backoff_ms: int,
) -> dict[int, PartitionState]:
    """Puts each log whose check failed in quarantine, and returns the new states. `kept`: what keep_failed returned.

    A try of this very round may have put it there before it died: then the branch of its quarantine has the round's
    name, and the log is left out, so that no failure is counted twice.
    """
    red, after = failed_logs(checked), {}
    for unit, work in checked.works():
        if (expectations := red.get(work.partition)) is not None:
            state, branch = states.get(work.partition, PartitionState()), kept.get(work.partition, "")
            if branch and state.quarantine and state.quarantine.branch == branch:
                continue
            kind = checked.kind_of(work)
            after[work.partition] = after_failure(state, kind, expectations, unit.now_ms, backoff_ms, branch)
    return after

"""What is left of logs whose check failed: a branch to look at, and a state in quarantine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cleantail.log.keyless import KEYLESS_RULE, held_logs
from cleantail.log.partition_state import PartitionState, states_of_properties
from cleantail.log.round_state import EXPIRE, RETAIN, after_failure
from cleantail.log.work_units import PartitionWork, WorkUnit
from cleantail.rounds.failed_branches import failed_name
from spark_jobs.iceberg.changes import texts
from spark_jobs.iceberg.tables import TopicTable


def failed_logs(checked: Mapping[str, Any]) -> dict[int, list[str]]:
    """Partition -> its failed expectations, with the reason where it is none of the data's. A log that only waits for
    others of its files has not failed."""
    red = (v for v in checked["verdicts"] if not v["passed"] and "waits_for" not in v)
    return {v["partition"]: [_named(f) for f in v["failures"]] for v in red}


def _named(failure: Mapping[str, Any]) -> str:
    """What was observed may hold data, but of an error and of records without a key: those words are our own."""
    told = failure.get("error") or failure["expectation"] == KEYLESS_RULE
    return f"{failure['expectation']} ({failure['observed']})" if told else str(failure["expectation"])


def kind_of(work: PartitionWork, checked: Mapping[str, Any]) -> str:
    """What a checked round was to do to a log: compact, expire or retain."""
    return RETAIN if work.only_retention and checked["kind"] != EXPIRE else str(checked["kind"])


def keep_failed(table: TopicTable, checked: Mapping[str, Any], units: Sequence[WorkUnit]) -> dict[int, str]:
    """Partition -> branch under which its failed try can be looked at; the branches are made. Empty: none is kept.

    A log that is held back for records without a key has none: nothing of it was changed."""
    if not table.topic.config.cleantail_failed_branch_retention_ms:
        return {}
    kept: dict[int, str] = {}
    red = failed_logs(checked).keys() - held_logs(checked["units"])
    for unit in units:
        failed = [w.partition for w in unit.partitions if w.partition in red]
        if failed and table.load().refs().containsKey(unit.branch):
            name = failed_name(checked["round"], unit.unit, "x" if checked["kind"] == EXPIRE else "u", unit.now_ms)
            table.create_branch(name, table.head_of(unit.branch))
            kept |= dict.fromkeys(failed, name)
    return kept


def drop_unnamed(table: TopicTable, branches: Iterable[str]) -> None:
    """What keep_failed has made for a commit that failed. Another try of the same round may have been faster, and its
    states name the same branches: those stay."""
    states = states_of_properties(texts(table.load().properties()), table.name)
    table.drop_branches(set(branches) - {s.quarantine.branch for s in states.values() if s.quarantine})


def quarantined(
    checked: Mapping[str, Any],
    units: Sequence[WorkUnit],
    states: Mapping[int, PartitionState],
    kept: Mapping[int, str],
    backoff_ms: int,
) -> dict[int, PartitionState]:
    """Puts each log whose check failed in quarantine, and returns the new states. A log that an earlier try of this
    very round has put there, and died after, is left out: its branch has the round's name. `kept`: of keep_failed."""
    red, after = failed_logs(checked), {}
    for unit in units:
        for work in unit.partitions:
            if (names := red.get(work.partition)) is not None:
                state = states.get(work.partition, PartitionState())
                kind = kind_of(work, checked)
                branch = kept.get(work.partition, "")
                if branch and state.quarantine and state.quarantine.branch == branch:
                    continue
                after[work.partition] = after_failure(state, kind, names, unit.now_ms, backoff_ms, branch)
    return after

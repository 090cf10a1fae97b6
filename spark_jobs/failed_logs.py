"""What is left of logs whose check failed: a branch to look at, and a state in quarantine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cleantail.failed_branches import failed_name
from cleantail.partition_state import PartitionState
from cleantail.round_state import EXPIRE, RETAIN, after_failure
from cleantail.work_units import WorkUnit
from spark_jobs.tables import TopicTable


def failed_logs(checked: Mapping[str, Any]) -> dict[int, list[str]]:
    """Partition -> its failed expectations. A log that only waits for others of its files has not failed."""
    red = (v for v in checked["verdicts"] if not v["passed"] and "waits_for" not in v)
    return {v["partition"]: [f["expectation"] for f in v["failures"]] for v in red}


def keep_failed(table: TopicTable, checked: Mapping[str, Any], units: Sequence[WorkUnit]) -> dict[int, str]:
    """Partition -> branch under which its failed try can be looked at; the branches are made. Empty: none is kept."""
    if not table.topic.config.cleantail_failed_branch_retention_ms:
        return {}
    kept, red = {}, failed_logs(checked)
    for unit in units:
        failed = [w.partition for w in unit.partitions if w.partition in red]
        if failed and table.load().refs().containsKey(unit.branch):
            name = failed_name(checked["round"], unit.unit, "x" if checked["kind"] == EXPIRE else "u", unit.now_ms)
            table.create_branch(name, table.head_of(unit.branch))
            kept |= dict.fromkeys(failed, name)
    return kept


def quarantined(
    checked: Mapping[str, Any],
    units: Sequence[WorkUnit],
    states: Mapping[int, PartitionState],
    kept: Mapping[int, str],
    backoff_ms: int,
) -> dict[int, PartitionState]:
    """The states of the logs that failed. `kept`: of keep_failed."""
    red, after = failed_logs(checked), {}
    for unit in units:
        for work in unit.partitions:
            if (names := red.get(work.partition)) is not None:
                state = states.get(work.partition, PartitionState())
                kind = RETAIN if work.only_retention and checked["kind"] != EXPIRE else checked["kind"]
                branch = kept.get(work.partition, "")
                after[work.partition] = after_failure(state, kind, names, unit.now_ms, backoff_ms, branch)
    return after


def drop_branches(table: TopicTable, branches: Iterable[str]) -> None:
    for branch in dict.fromkeys(branches):
        table.drop_branch(branch)

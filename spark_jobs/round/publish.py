"""Publish the logs that passed their check: delete files, checkpoints, horizons and log ends in one commit on `main`.

The evidence of the check defines what is published: the passed logs, their measures and their branch heads.
`--round` comes through Airflow's database, so it only names the round. If the name contradicts the evidence, nothing is
published (exit code 5).

A log whose check failed is quarantined with its reason, and its branch is kept for a while. The other logs are
published. For all logs, a checkpoint outside its log is corrected. Appends to `main` meanwhile do not conflict.
If another writer rewrote or deleted files that the round read, the round starts over on the current table. After the
last attempt (cleantail.retries.ROUNDS) the exit code is 3. A round is never published in part.

A round that needs approval is published after one of the topic's approvers has accepted exactly what was checked
(cleantail.rounds.approval). If exactly this cannot be published, nothing is published (exit code 5). A rejected
round is dropped.

Records without a key go to a side table if `cleantail.keyless.policy` is `quarantine` (semantics.md 3.7).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from cleantail.config.topic_table import KEY, KEYLESS_SUFFIX, OFFSET, PARTITION
from cleantail.errors import ConflictError, HeldError
from cleantail.log.partition_state import PROPERTY_PARTITION, PartitionState, states_of_properties
from cleantail.log.quarantine import replaced
from cleantail.log.round_state import (
    COMPACT,
    ERASE,
    EXPIRE,
    RECONCILE,
    after_erasure,
    after_expiry,
    after_reconciliation,
    after_round,
)
from cleantail.log.work_units import WorkUnit
from cleantail.rounds.approval import approved_note, held_message
from cleantail.rounds.checked_round import CheckedRound, RoundResult
from cleantail.rounds.commit_summaries import APPROVED_BY, BEFORE, Commit, logs_of, packed
from cleantail.rounds.past_rounds import PUBLISHED
from cleantail.rounds.publications import (
    LAST_COMPACTION_JSON,
    PROPERTY_COMPACTION,
    LastCompaction,
    identity_of,
    publication_of,
)
from spark_jobs.engine.deleted_versions import remember
from spark_jobs.iceberg.commits import publish_deletes
from spark_jobs.iceberg.iceberg_reads import asked_again, branch_change, files_with_deletes, history, rounds_since
from spark_jobs.iceberg.java_calls import texts
from spark_jobs.iceberg.snapshot_files import METADATA
from spark_jobs.iceberg.tables import TopicTable, below_end
from spark_jobs.round.approvals import drop_unnamed, keep_failed, quarantined, set_aside
from spark_jobs.round.evidence import append_answer, has_answer
from spark_jobs.round.latest_view import ensure_latest_view
from spark_jobs.round.released_logs import forget_answered, states_and_releases


def published_as(table: TopicTable, checked: CheckedRound) -> Commit | None:
    """Return the commit that published this round, or None. Searches `main` back to the snapshot the round read."""
    mine = identity_of(checked).items()
    read = {unit.base_snapshot_id for unit in checked.units}
    since = takewhile(lambda c: c.snapshot_id not in read, history(table.load()))
    return next((c for c in since if mine <= c.summary.items()), None)


def result_of(table: TopicTable, checked: CheckedRound, snapshot_id: int, iceberg: Any = None) -> RoundResult:
    """Return the result of a published round. `iceberg`: the table, if it was loaded after the publish."""
    states = states_of_properties(texts((iceberg or table.load()).properties()), table.name)
    return publication_of(checked, snapshot_id, states)


def side_table(table: TopicTable) -> str:
    return f"{table.name[:-1]}{KEYLESS_SUFFIX}`"


def move_keyless(table: TopicTable, units: Sequence[WorkUnit], green: Collection[int]) -> None:
    """Copy the keyless records of the logs to publish into the side table: the first copy of each (semantics.md 3.5).

    The next commit removes them from the topic table. A repeated call copies nothing twice."""
    for unit in units:
        works = [w for w in unit.partitions if w.partition in green]
        records = below_end(table.at_snapshot(unit.base_snapshot_id), works).where(F.col(KEY).isNull())
        if works and records.limit(1).count():
            name = side_table(table)
            fields = [f for f in table.current().schema if f.name not in METADATA]
            columns = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in fields)
            table.ensure_side_table(name, columns, "'format-version'='3'")
            held = asked_again(partial(table.spark.table, name))
            once = _without_copies(table, records, unit.base_snapshot_id)
            fresh = once.join(held.select(PARTITION, OFFSET), [PARTITION, OFFSET], "left_anti")
            table.append_rows(name, fresh.select(*held.columns))


def _without_copies(table: TopicTable, records: DataFrame, base_snapshot_id: int) -> DataFrame:
    """Keep the first copy of each offset: the one with the lowest data sequence number (`arrived`)."""
    files = files_with_deletes(table.load(), base_snapshot_id)
    rows = [(str(file.location()), int(file.dataSequenceNumber())) for file, _ in files]
    arrivals = table.spark.createDataFrame(rows, "_file string, arrived bigint")
    came = Window.partitionBy(PARTITION, OFFSET).orderBy("arrived", "_file", "_pos")
    placed = records.select("*", "_file", "_pos") if "_file" not in records.columns else records
    ordered = placed.join(F.broadcast(arrivals), "_file")
    return ordered.withColumn("nth", F.row_number().over(came)).where("nth = 1")


logger = logging.getLogger("cleantail.publish")


def publish_round(table: TopicTable, checked: CheckedRound, approved_by: str | None = None) -> RoundResult:
    """Commit the passed logs of a checked round exactly once. Completes an earlier attempt that died after its commit.

    Raises ConflictError, with nothing published, if the table changed meanwhile, and HeldError if a required approval
    is missing."""
    if before := published_before(table, checked):
        return before
    if checked.holds and approved_by is None:
        raise HeldError(held_message(checked.topic, checked.holds))
    try:
        return _publish(table, checked, approved_by)
    except ConflictError:
        if meanwhile := published_before(table, checked):
            return meanwhile
        raise


def _publish(table: TopicTable, checked: CheckedRound, approved_by: str | None) -> RoundResult:
    """Publish a round that was not published before.

    1. Records without a key, and versions of deleted keys, are copied to the side tables before the commit removes
       them. A repetition after a crash adds nothing twice.
    2. The branches must be those that were checked.
    3. Branches of failed logs are kept under new names.
    4. One commit adds the delete files and next states of the passed logs, quarantines the failed ones, and drops the
       round's branches.
    5. The evidence gets the outcome of the round.
    """
    green = set(checked.green)
    for verdict in (v for v in checked.verdicts if v.waits_for):
        logger.warning(
            "partition %s waits: logs %s share files with it, and failed", verdict.partition, verdict.waits_for
        )
    # 1. copy to the side tables
    if table.topic.config.cleantail_keyless_policy == "quarantine" and checked.kind == COMPACT:
        move_keyless(table, checked.units, green)
    if checked.kind == EXPIRE:
        remember(table, checked.units, green)
    # 2. compare the branches with those that were checked
    as_checked = table.as_staged()  # not before: the side tables read the branches
    _require_as_checked(table, as_checked, checked)
    # 3. keep failed branches
    kept = keep_failed(table, checked)
    # 4. commit
    as_read = texts(as_checked.properties())
    before, releases = states_and_releases(table, as_checked)
    after = _next_states(as_checked, checked, before)
    after |= quarantined(checked, before, kept, table.platform.cleaner.log_cleaner_backoff_ms)
    try:
        properties = {f"{PROPERTY_PARTITION}{p}": state.as_json() for p, state in after.items()}
        if checked.kind == COMPACT and (last := LastCompaction.of_round(checked.units, checked.measures)):
            properties[PROPERTY_COMPACTION] = LAST_COMPACTION_JSON.text(last)
        of_rollback = packed({p: before.get(p) for p in checked.green}, after)
        snapshot_id = _commit(table, as_checked, checked, of_rollback, properties, as_read, approved_by)
    except ConflictError:
        drop_unnamed(table, kept.values())
        raise
    # 5. record the outcome
    table.forget_staged()
    forget_answered(table, releases, after)
    append_answer(table, checked, PUBLISHED, approved_note(_required_approver(checked, approved_by)))
    _tidy(table, replaced(before, after))
    return _with_view(table, checked, snapshot_id)


def _with_view(table: TopicTable, checked: CheckedRound, snapshot_id: int) -> RoundResult:
    published = table.load()
    ensure_latest_view(table, published)
    return result_of(table, checked, snapshot_id, published)


def _require_as_checked(table: TopicTable, iceberg: Any, checked: CheckedRound) -> None:
    """Raise ConflictError if a branch was dropped or changed, or a later round has published.

    A checkpoint without its deletes, or an older checkpoint or ledger in place of a newer one, would leave records for
    ever. `iceberg`: the table as loaded for the commit."""
    for unit in checked.units:
        if table.head_of(unit.branch, iceberg) != unit.head_snapshot_id:
            branch = f"branch {unit.branch} of table {table.topic.table}"
            raise ConflictError(f"{branch} was changed after its round was done")
        if iceberg.snapshot(unit.base_snapshot_id) is None:
            raise ConflictError(f"snapshot {unit.base_snapshot_id} that round {checked.round} read has expired")
        logs = {work.partition for work in unit.partitions}
        for later, before in rounds_since(iceberg, unit.base_snapshot_id).items():
            if shared := logs & logs_of(before, f"{BEFORE} of snapshot {later}"):
                raise ConflictError(f"partition {min(shared)} had a later round than {checked.round}")


def _next_states(
    iceberg: Any, checked: CheckedRound, states: Mapping[int, PartitionState]
) -> dict[int, PartitionState]:
    after: dict[int, PartitionState] = {}
    for unit in checked.units:
        sequence_number = int(iceberg.snapshot(unit.base_snapshot_id).sequenceNumber())
        for work in (w for w in unit.partitions if w.partition in checked.green):
            state, measure = states.get(work.partition, PartitionState()), checked.measure_of(work.partition)
            if checked.kind == EXPIRE:
                after[work.partition] = after_expiry(state, measure, unit.now_ms)
            elif checked.kind == RECONCILE:
                after[work.partition] = after_reconciliation(state, work, unit.now_ms)
            elif checked.kind == ERASE:
                after[work.partition] = after_erasure(state, work, unit.now_ms)
            else:
                after[work.partition] = after_round(state, work, measure, sequence_number, unit.now_ms)
    return after


def _commit(
    table: TopicTable,
    iceberg: Any,
    checked: CheckedRound,
    before: str,
    properties: Mapping[str, str],
    as_read: Mapping[str, str],
    approved_by: str | None,
) -> int:
    branch_changes = [branch_change(iceberg, unit.branch, unit.base_snapshot_id) for unit in checked.units]
    summary = identity_of(checked) | {BEFORE: before}
    approver = _required_approver(checked, approved_by)
    summary |= {APPROVED_BY: approver} if approver else {}
    return publish_deletes(
        table,
        branch_changes,
        set(checked.green),
        checked.units[0].base_snapshot_id,
        properties,
        summary,
        {unit.branch for unit in checked.units},
        as_read,
        {iceberg.snapshot(unit.branch).schemaId() for unit in checked.units} - {None},
    )


def _required_approver(checked: CheckedRound, approved_by: str | None) -> str | None:
    """Return the user who approved the round, or None if it did not have to wait."""
    return approved_by if checked.holds else None


def publish_approved(table: TopicTable, checked: CheckedRound, approved_by: str) -> RoundResult:
    """Publish exactly what the person approved. Raises HeldError, with nothing published, if that is not possible."""
    try:
        return publish_round(table, checked, approved_by)
    except ConflictError as e:
        set_aside(table, checked, None, str(e))
        raise HeldError(
            f"{checked.topic}: what {approved_by} approved cannot be published as it was shown; nothing was published: "
            f"{e}. The next run makes a new round and requests approval again"
        ) from None


def published_before(table: TopicTable, checked: CheckedRound) -> RoundResult | None:
    """Complete an earlier attempt that died after its commit, and return its result. None if there was none."""
    commit = published_as(table, checked)
    if commit is None:
        return None
    if not has_answer(table, checked, PUBLISHED):
        append_answer(table, checked, PUBLISHED, approved_note(commit.approved_by))
    _tidy(table, [unit.branch for unit in checked.units])
    return _with_view(table, checked, commit.snapshot_id)


def _tidy(table: TopicTable, branches: Iterable[str]) -> None:
    """Drop branches after the commit. Only logs a conflict, because a later run drops stale branches."""
    try:
        table.drop_branches(branches)
    except ConflictError as e:
        logger.warning("branches of the round will be dropped by a later run: %s", e)

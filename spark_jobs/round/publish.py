"""Publish what passed its check: delete files, checkpoints, horizons and log ends in one commit on `main`.

What passed, what was measured and where the branches were is read from the evidence that the check wrote, and who
approved it from what was answered: `--round`, which came through Airflow's database, only says which round is meant,
and where it says something else than the evidence nothing is published (exit code 5).

A log whose check failed is held back and quarantined with its reason, and what it would have published stays on a
branch for a while; the others publish. Checkpoints that lay outside their log are written back, also of logs that no
unit touches. Appends to `main` meanwhile do not matter. Where another writer rewrote or deleted what the round had
read, the round starts over on the table as it is now; after the last try (cleantail.retries.ROUNDS) the exit code is 3.
Nothing is ever half published.

A round that waits for approval is published once one of the topic's approvers has said yes to exactly what was
checked (cleantail.rounds.approval), as it was checked or not at all (exit code 5), and dropped where the answer is no.

Records without a key go to a side table where `cleantail.keyless.policy` is `quarantine` (semantics.md 3.7).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from cleantail.config.topic_table import KEY, KEYLESS_SUFFIX, OFFSET, PARTITION
from cleantail.errors import ConflictError, HeldError
from cleantail.log.partition_state import PROPERTY_PARTITION, PartitionState, states_of_properties
from cleantail.log.quarantine import replaced
from cleantail.log.round_state import COMPACT, EXPIRE, RECONCILE, after_expiry, after_reconciliation, after_round
from cleantail.log.work_units import WorkUnit
from cleantail.rounds.approval import held_message
from cleantail.rounds.checked_round import CheckedRound, RoundResult
from cleantail.rounds.commit_summaries import APPROVED_BY, BEFORE, packed
from cleantail.rounds.past_rounds import PUBLISHED
from cleantail.rounds.publications import PROPERTY_COMPACTION, LastCompaction, identity_of, publication_of
from spark_jobs.engine.deleted_versions import remember
from spark_jobs.iceberg.commits import publish_deletes
from spark_jobs.iceberg.iceberg_reads import branch_change, files_with_deletes, history, texts
from spark_jobs.iceberg.snapshot_files import METADATA
from spark_jobs.iceberg.tables import TopicTable, below_end
from spark_jobs.round.approvals import drop_unnamed, keep_failed, quarantined, set_aside
from spark_jobs.round.evidence import append_answer, has_answer
from spark_jobs.round.latest_view import ensure_latest_view
from spark_jobs.round.released_logs import forget_answered, states_and_releases


def published_as(table: TopicTable, checked: CheckedRound) -> int | None:
    """Returns the snapshot that published this very round, None where none did. It searches main from its head back to
    what the round read."""
    mine = identity_of(checked).items()
    read = {unit.base_snapshot_id for unit in checked.units}
    since = takewhile(lambda c: c.snapshot_id not in read, history(table.load()))
    return next((c.snapshot_id for c in since if mine <= c.summary.items()), None)


def result_of(table: TopicTable, checked: CheckedRound, snapshot_id: int, iceberg: Any = None) -> RoundResult:
    """Returns the result of a published round, whichever try of its task has published it. `iceberg`: the table, where
    it was loaded since."""
    states = states_of_properties(texts((iceberg or table.load()).properties()), table.name)
    return publication_of(checked, snapshot_id, states)


def side_table(table: TopicTable) -> str:
    return f"{table.name[:-1]}{KEYLESS_SUFFIX}`"


def move_keyless(table: TopicTable, units: Sequence[WorkUnit], green: Collection[int]) -> None:
    """Copies the keyless records of the logs about to be published, of one that is there twice the first (3.5). They
    leave the topic table in the commit after it; a crash between the two copies nothing twice, since what is in the
    side table already is left out."""
    for unit in units:
        works = [w for w in unit.partitions if w.partition in green]
        records = below_end(table.at_snapshot(unit.base_snapshot_id), works).where(F.col(KEY).isNull())
        if works and records.limit(1).count():
            name = side_table(table)
            _create_like(table, name)
            held = table.spark.table(name).select(PARTITION, OFFSET)
            once = _without_copies(table, records, unit.base_snapshot_id)
            fresh = once.join(held, [PARTITION, OFFSET], "left_anti")
            table.append_beside(name, fresh.select(*table.spark.table(name).columns))


def _without_copies(table: TopicTable, records: DataFrame, base_snapshot_id: int) -> DataFrame:
    """Returns the records without the later copies of an offset: one row for each."""
    came = Window.partitionBy(PARTITION, OFFSET).orderBy("arrived", "_file", "_pos")
    placed = records.select("*", "_file", "_pos") if "_file" not in records.columns else records
    ordered = placed.join(F.broadcast(_arrivals(table, base_snapshot_id)), "_file")
    return ordered.withColumn("nth", F.row_number().over(came)).where("nth = 1")


def _arrivals(table: TopicTable, snapshot_id: int) -> DataFrame:
    """Returns (_file, arrived): the data sequence number of every data file of a snapshot."""
    files = files_with_deletes(table.load(), snapshot_id)
    rows = [(str(file.location()), int(file.dataSequenceNumber())) for file, _ in files]
    return table.spark.createDataFrame(rows, "_file string, arrived bigint")


def _create_like(table: TopicTable, name: str) -> None:
    fields = [f for f in table.current().schema if f.name not in METADATA]
    columns = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in fields)
    table.ensure_side_table(name, columns, "'format-version'='3'")


logger = logging.getLogger("cleantail.publish")
Answer = Callable[[TopicTable, CheckedRound, str], None]
"""Says in the evidence what became of a round."""


def publish_round(
    table: TopicTable, checked: CheckedRound, approved_by: str | None = None, answer: Answer | None = None
) -> RoundResult:
    """Commits the green logs of a checked round, once: a try that died after the commit is taken up. Raises
    ConflictError, with nothing published, when the table changed under the round, and HeldError when it waits for
    approval and nobody has given it. `answer`: appends to the evidence that the round is published; append_answer,
    unless another one does it for many rounds together."""
    if before := published_before(table, checked):
        return before
    if checked.holds and approved_by is None:
        raise HeldError(held_message(checked.topic, checked.holds))
    try:
        return _publish(table, checked, approved_by, answer or append_answer)
    except ConflictError:
        if meanwhile := published_before(table, checked):
            return meanwhile
        raise


def _publish(table: TopicTable, checked: CheckedRound, approved_by: str | None, answer: Answer) -> RoundResult:
    """Publishes a round that was not published before.

    1. What the commit takes from the table for good goes to the side tables first: records without a key, and the
       versions of deleted keys. A crash after it adds nothing twice.
    2. The branches have to be those that were checked.
    3. What failed is kept on branches of its own.
    4. One commit: delete files of the green logs, their next states, the quarantine of the red ones; it drops the
       round's branches.
    5. The evidence gets the outcome of the round.
    """
    green = set(checked.green)
    for verdict in (v for v in checked.verdicts if v.waits_for):
        logger.warning("partition %s waits: logs %s failed, and share files", verdict.partition, verdict.waits_for)
    # 1. the side tables
    if table.topic.config.cleantail_keyless_policy == "quarantine" and checked.kind == COMPACT:
        move_keyless(table, checked.units, green)
    if checked.kind == EXPIRE:
        remember(table, checked.units, green)
    # 2. the branches are as they were checked
    as_checked = table.load()  # not before: the side tables read the branches
    _require_as_checked(table, as_checked, checked)
    # 3. what failed is kept
    kept = keep_failed(table, checked)
    # 4. the commit
    as_read = texts(as_checked.properties())
    before, releases = states_and_releases(table, as_checked)
    after = _next_states(as_checked, checked, before)
    after |= quarantined(checked, before, kept, table.platform.cleaner.log_cleaner_backoff_ms)
    try:
        properties = _as_properties(checked, after)
        snapshot_id = _commit(table, as_checked, checked, before, properties, as_read, approved_by)
    except ConflictError:
        drop_unnamed(table, kept.values())
        raise
    # 5. what became of it
    forget_answered(table, releases, after)
    answer(table, checked, PUBLISHED)
    _tidy(table, replaced(before, after))
    return _with_view(table, checked, snapshot_id)


def _with_view(table: TopicTable, checked: CheckedRound, snapshot_id: int) -> RoundResult:
    """Brings the view up to date with what is published now, and returns the result."""
    published = table.load()
    ensure_latest_view(table, published)
    return result_of(table, checked, snapshot_id, published)


def _require_as_checked(table: TopicTable, iceberg: Any, checked: CheckedRound) -> None:
    """Raises ConflictError where a branch is gone or changed, or a later round has published meanwhile: a checkpoint
    without its deletes, or an older one over a newer, would leave superseded records for good. `iceberg`: the table
    as it was loaded for the commit, here and below."""
    states = states_of_properties(texts(iceberg.properties()), table.name)
    for unit in checked.units:
        table.require_head(unit.branch, unit.head_snapshot_id, iceberg)
        base = iceberg.snapshot(unit.base_snapshot_id)
        if base is None:
            raise ConflictError(f"snapshot {unit.base_snapshot_id} that round {checked.round} read has expired")
        base_sequence_number = int(base.sequenceNumber())
        for work in unit.partitions:
            state = states.get(work.partition, PartitionState())
            if state.known_sequence_number > base_sequence_number:
                raise ConflictError(f"partition {work.partition} had a later round than {checked.round}")


def _next_states(
    iceberg: Any, checked: CheckedRound, states: Mapping[int, PartitionState]
) -> dict[int, PartitionState]:
    """Returns the states of the published logs after the round."""
    green = checked.green
    after: dict[int, PartitionState] = {}
    for unit in checked.units:
        sequence_number = int(iceberg.snapshot(unit.base_snapshot_id).sequenceNumber())
        for work in (w for w in unit.partitions if w.partition in green):
            state, measure = states.get(work.partition, PartitionState()), checked.measure_of(work.partition)
            if checked.kind == EXPIRE:
                after[work.partition] = after_expiry(state, measure, unit.now_ms)
            elif checked.kind == RECONCILE:
                after[work.partition] = after_reconciliation(state, work, unit.now_ms)
            else:
                after[work.partition] = after_round(state, work, measure, sequence_number, unit.now_ms)
    return after


def _as_properties(checked: CheckedRound, states: Mapping[int, PartitionState]) -> dict[str, str]:
    properties = {f"{PROPERTY_PARTITION}{p}": state.as_json() for p, state in states.items()}
    if checked.kind == COMPACT and (last := LastCompaction.of_round(checked.units, checked.measures)):
        properties[PROPERTY_COMPACTION] = last.as_json()
    return properties


def _commit(
    table: TopicTable,
    iceberg: Any,
    checked: CheckedRound,
    states: Mapping[int, PartitionState],
    properties: Mapping[str, str],
    as_read: Mapping[str, str],
    approved_by: str | None,
) -> int:
    """Commits in one transaction the delete files of all green logs, their new states, and the quarantine of the red
    ones."""
    branch_changes = [branch_change(iceberg, unit.branch, unit.base_snapshot_id) for unit in checked.units]
    before = {p: states.get(p) for p in checked.green}
    summary = identity_of(checked) | {BEFORE: packed(before)}
    summary |= {APPROVED_BY: approved_by} if approved_by and checked.holds else {}
    return publish_deletes(
        table,
        branch_changes,
        set(checked.green),
        checked.units[0].base_snapshot_id,
        properties,
        summary,
        {unit.branch for unit in checked.units},
        as_read,
    )


def publish_approved(table: TopicTable, checked: CheckedRound, approved_by: str) -> RoundResult:
    """Publishes exactly what the person saw, or nothing: a round that started over would be another one. Raises
    HeldError."""
    try:
        return publish_round(table, checked, approved_by)
    except ConflictError as e:
        set_aside(table, checked, None, str(e))
        raise HeldError(
            f"{checked.topic}: what {approved_by} approved cannot be published as it was shown, and nothing was: "
            f"{e}. The next run makes the round anew and asks again"
        ) from None


def published_before(table: TopicTable, checked: CheckedRound) -> RoundResult | None:
    """Finishes what an earlier try of this task left undone when it died after its commit; returns its result.

    Returns None where no try has published the round. A failed branch that the round has replaced goes when its own
    time has passed.
    """
    snapshot_id = published_as(table, checked)
    if snapshot_id is None:
        return None
    if not has_answer(table, checked, PUBLISHED):
        append_answer(table, checked, PUBLISHED)
    _tidy(table, [unit.branch for unit in checked.units])
    return _with_view(table, checked, snapshot_id)


def _tidy(table: TopicTable, branches: Iterable[str]) -> None:
    """Tidies up after the commit. An error here is logged and no more: what is left is dropped when it is stale, and
    the round is published."""
    try:
        table.drop_branches(branches)
    except ConflictError as e:
        logger.warning("branches of the round are left for later: %s", e)

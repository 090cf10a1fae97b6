"""Groups of neighbouring files become new files without the deleted records, and take their place in one commit each.

A group is rewritten by a task of spark_jobs.engine.rewrites, which reads and writes with pyarrow; where that refuses,
by Spark onto a branch. A killed run leaves finished groups done, the rest as it was, and files that no snapshot knows.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from cleantail.config.platform import Platform
from cleantail.errors import ConflictError
from cleantail.human import counted
from cleantail.log.policy.shares import parallelism
from cleantail.log.segments import DataFile
from cleantail.rounds.reclaim_results import RewrittenGroup
from cleantail.rounds.size_history import OPERATION
from spark_jobs.iceberg.commits import replace_files
from spark_jobs.iceberg.iceberg_reads import each, history
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.upkeep.staged_rewrites import Plans, Staged, drop_branch, drop_staged, stage_group

logger = logging.getLogger("cleantail.reclaim")

AHEAD = 2
"""So many groups for each core are rewritten before their turn to be swapped comes."""
REWRITE = "cleantail.rewrite"
"""Names a swap in the summary of its snapshot."""


def rewrite_groups(
    table: TopicTable, platform: Platform, groups: Sequence[Sequence[DataFile]]
) -> Iterator[RewrittenGroup]:
    """Rewrites each group as one task of Spark, as many at a time as there are cores, and yields those that were
    swapped on `main`. After an error no further group is begun, and what was staged is dropped."""
    cores, plans = parallelism(platform.spark), Plans(table, groups)
    waiting, numbered = deque[tuple[Sequence[DataFile], Future[Staged]]](), iter(enumerate(groups))
    with ThreadPoolExecutor(cores) as threads:
        try:
            while True:
                while len(waiting) < AHEAD * cores and (next_one := next(numbered, None)):
                    number, group = next_one
                    waiting.append((group, threads.submit(stage_group, table, platform, group, plans, number)))
                if not waiting:
                    return
                group, staged = waiting.popleft()
                if (done := _swapped(table, group, staged)) is not None:
                    yield done
        except BaseException:
            threads.shutdown(cancel_futures=True)
            for _, staged in waiting:
                if not staged.cancelled() and staged.exception() is None:
                    drop_staged(table, staged.result())
            raise


def _swapped(table: TopicTable, group: Sequence[DataFile], staged: Future[Staged]) -> RewrittenGroup | None:
    try:
        return swap_group(table, group, staged.result())
    except ConflictError as e:
        logger.warning("%s is left for the next run: %s", counted(len(group), "file"), e)
        return None


def swap_group(table: TopicTable, group: Sequence[DataFile], staged: Staged) -> RewrittenGroup:
    """Puts the new files in the old ones' place. Raises ConflictError, with the new files deleted, where another writer
    was faster."""
    name = str(uuid.uuid4())
    old = [(f.task.file(), list(each(f.task.deletes()))) for f in staged.old]
    number, summary = max(f.data_sequence_number for f in group), {OPERATION: "reclaim", REWRITE: name}
    try:
        replace_files(table, staged.new, old, staged.snapshot_id, number, summary)
    except ConflictError:
        # a commit that was sent twice, by the client of a catalog, is refused though its first try was taken
        if _summary_of(table, name) is None:
            drop_staged(table, staged)
            raise
    # after any other error nobody knows whether `main` has the files: they are left
    if staged.branch is not None:
        drop_branch(table, staged.branch)
    return RewrittenGroup(len(group), len(staged.new), _freed_bytes(_summary_of(table, name) or {}))


def _summary_of(table: TopicTable, rewrite: str) -> dict[str, str] | None:
    """Returns the summary of a swap's snapshot in the history of `main`; None where it is not there."""
    summaries = (commit.summary for commit in history(table.load()))
    return next((dict(summary) for summary in summaries if summary.get(REWRITE) == rewrite), None)


def _freed_bytes(summary: dict[str, str]) -> int:
    """Returns by how much a rewrite made the data files smaller; 0 where it did not."""
    sizes = [int(summary.get(name) or 0) for name in ("removed-files-size", "added-files-size")]
    return max(sizes[0] - sizes[1], 0)

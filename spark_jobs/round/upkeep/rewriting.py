"""Groups of neighbouring files become new files without the deleted records, which take their place.

1. A batch of groups is rewritten by a task of spark_jobs.engine.rewrites, which reads and writes with pyarrow, and
   swapped in one commit. A group that such a task refuses is rewritten by Spark onto a branch.
2. Where another writer has changed a file of a batch meanwhile, its groups are rewritten and swapped one by one: only
   the changed one is left for the next run.
3. A killed run leaves finished batches done, the rest as it was, and files that no snapshot knows.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import count

from cleantail.config.platform import Platform
from cleantail.errors import ConflictError
from cleantail.human import counted
from cleantail.lake.runs.reclaim_plan import Group, kept_number, rewrite_batches
from cleantail.log.task_shares import parallelism
from cleantail.rounds.commit_summaries import OPERATION
from cleantail.rounds.station_results import RewrittenFiles
from spark_jobs.engine.rewrites.written_schema import RefusedError
from spark_jobs.iceberg.commits import replace_files
from spark_jobs.iceberg.jvm.java_collections import elements_of
from spark_jobs.iceberg.jvm.many_calls import ask
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.upkeep.staged_rewrites import Plans, Staged, drop_staged, stage

logger = logging.getLogger("cleantail.reclaim")

Batch = Sequence[Group]
AHEAD = 2
"""So many batches for each core are rewritten before their turn to be swapped comes."""


def rewrite_groups(table: TopicTable, platform: Platform, groups: Sequence[Group]) -> Iterator[RewrittenFiles]:
    """Rewrites the groups and yields what was swapped on `main`. A task of Spark rewrites a batch of them; as many are
    under way as there are cores. After an error none is begun any more, and what was staged is dropped."""
    cores, plans, numbers = parallelism(platform.spark), Plans(table, groups), count()
    waiting, batches = deque[tuple[Batch, Future[Staged]]](), iter(rewrite_batches(groups))

    def staged_now(batch: Batch) -> Staged:
        return stage(table, platform, batch, plans, next(numbers))

    with ThreadPoolExecutor(cores) as threads:
        try:
            while True:
                while len(waiting) < AHEAD * cores and (begun := next(batches, None)):
                    waiting.append((begun, threads.submit(staged_now, begun)))
                if not waiting:
                    return
                batch, staged = waiting.popleft()
                yield from _swapped(table, batch, staged.result, staged_now)
        except BaseException:
            threads.shutdown(cancel_futures=True)
            for _, staged in waiting:
                if not staged.cancelled() and staged.exception() is None:
                    drop_staged(table, staged.result())
            raise


def _swapped(
    table: TopicTable, batch: Batch, staged: Callable[[], Staged], stage_now: Callable[[Batch], Staged]
) -> Iterator[RewrittenFiles]:
    """Yields what was swapped. Where the groups of a batch could not be swapped together, each is staged anew and
    swapped alone."""
    try:
        yield swap(table, batch, staged())
    except (ConflictError, RefusedError) as e:
        if len(batch) == 1:
            logger.warning("%s is left for the next run: %s", counted(len(batch[0]), "file"), e)
            return
        logger.info("%s are rewritten one by one: %s", counted(len(batch), "group"), e)
        for group in batch:
            yield from _swapped(table, [group], partial(stage_now, [group]), stage_now)


def swap(table: TopicTable, batch: Batch, staged: Staged) -> RewrittenFiles:
    """Puts the new files in the old ones' place. Raises ConflictError, with the new files deleted, where another writer
    was faster."""
    tasks = [file.task for file in staged.old]
    old = list(zip(ask(tasks, "file"), elements_of(ask(tasks, "deletes")), strict=True))
    summary = {OPERATION: "reclaim"}
    try:
        made = replace_files(table, staged.new, old, staged.snapshot_id, kept_number(batch[0]), summary)
    except ConflictError:
        drop_staged(table, staged)
        raise
    # after any other error `main` may have the files: they are left
    if staged.branch is not None:
        table.drop_branches([staged.branch])
    return RewrittenFiles(len(staged.old), len(staged.new), _freed_bytes(made))


def _freed_bytes(summary: Mapping[str, str]) -> int:
    """Returns by how much a rewrite made the data files smaller; 0 where it did not."""
    sizes = [int(summary.get(name) or 0) for name in ("removed-files-size", "added-files-size")]
    return max(sizes[0] - sizes[1], 0)

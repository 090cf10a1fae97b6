"""The plan of a reclaim, from the table's metadata. A reclaim rewrites files, and expires snapshots and branches:

1. Neighbouring files of one log are grouped as Kafka groups segments, up to segment.bytes (semantics.md 1.4.3).
2. A group is rewritten if the deleted share of one of its files is above cleantail.reclaim.deleted.ratio, or if it has
   enough files to merge. A file that is large next to the others is a group of its own. Small files merge in tiers, as
   in a log-structured merge tree, and a record is rewritten a bounded number of times:
   - Up to ALWAYS_MERGED_BYTES a file is never large. Below SMALL_BYTES it is large until the others have twice its
     bytes. Such files merge if they are cleantail.reclaim.min.merge.files or more.
   - From SMALL_BYTES on, a file is large until it and the others reach MERGED_BYTES. Then they merge, also if they are
     few. So a topic of large runs rewrites a record once.
   - A file of MERGED_BYTES is always large.
   A group below ALWAYS_MERGED_BYTES is rewritten for its deleted share at most once a day, or once in
   cleantail.snapshot.retention.ms if that is shorter. Its old files stay on the disk until their snapshots expire, and
   a commit has some 30 KB of metadata. If the ratio is 0, such a group is rewritten at once.
3. Only files that a round has seen are rewritten, and no file that several logs share. A new file keeps the sequence
   number, by which the next round finds new records. A file that is registered twice waits for the round that keeps one
   registration.
4. Snapshots expire after cleantail.snapshot.retention.ms, except the current one. None expires if the table's
   gc.enabled is false, because files would be deleted. Snapshots expire together: when TOGETHER of them are past their
   time, or when the oldest is past it by a day, or by the retention if that is shorter. Each search for files to delete
   costs a commit, and more time than a round of a small topic. `cleantail reclaim` does not wait.
5. Branches of failed rounds are dropped after cleantail.failed.branch.retention.ms.
6. Small groups share a Spark task and a commit, because each costs more than rewriting a few records. A commit gives
   all new files one sequence number, so groups share a commit only if their files keep the same number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.human import be, counted
from cleantail.lake.table_metadata import TableFacts
from cleantail.log.quarantine import past_their_time
from cleantail.log.segments import DataFile
from cleantail.log.task_shares import PACK_RECORDS
from cleantail.rounds.run_plan import Group, ReclaimPlan

_SNAPSHOTS = "cleantail.snapshot.retention.ms"
BATCH_RECORDS, BATCH_BYTES = PACK_RECORDS, 32 << 20
"""Maximum that groups in one task rewrite together."""
ALWAYS_MERGED_BYTES, SMALL_BYTES, MERGED_BYTES = 128 << 10, 1 << 20, 24 << 20
"""The sizes of rule 2. Rewriting a file of the first size costs less than opening one more file. The last size is at
most half of segment.bytes. These are the results of a simulation. All runs have one size, and all records stay alive:

bytes a run | runs  | files of 24 MiB or more | other files, at most | bytes written to bytes that came in
4 KiB       | 8,000 | 0                       | 30                   | 6.1
100 KiB     | 2,000 | 7                       | 19                   | 3.6
300 KiB     | 2,000 | 24                      | 17                   | 3.0
1 MiB       | 2,000 | 76                      | 40                   | 2.0
20 MiB      | 200   | 100                     | 5                    | 2.0
"""
TOGETHER = 32
"""The snapshots of about 15 runs of a small topic."""
MOST_WAIT_MS = 86_400_000


def resolve_reclaim(
    facts: TableFacts | None, configs: KafkaConfigs, now_ms: int, by_person: bool = False
) -> ReclaimPlan:
    """Return what reclaim would do now, by the clock of expiry (cleantail.lake.evaluate).

    `by_person`: a user called the reclaim. Then neither snapshots nor small groups wait for others."""
    if facts is None:
        return ReclaimPlan(False, "there is no table yet")
    # 1. files that become one, log by log
    groups: list[tuple[DataFile, ...]] = []
    shared = {path for path, logs in Counter(f.path for f in facts.files).items() if logs > 1}
    for partition in facts.partitions:
        state = facts.states.get(partition)
        newest = state.known_sequence_number if state else 0
        files = [f for f in facts.files_of(partition) if f.data_sequence_number <= newest and f.path not in shared]
        groups += rewrite_groups([f for f in files if f.registered == 1], configs)
    retention_ms = configs.cleantail_snapshot_retention_ms
    wait_ms = 0 if by_person else min(retention_ms, MOST_WAIT_MS)
    if (at_ms := facts.rewritten_ms) is not None and now_ms < at_ms + wait_ms:
        groups = [group for group in groups if not _may_wait(group, configs)]
    # 2. snapshots past their retention
    past_ms = [at_ms for i, at_ms in facts.snapshots if at_ms < now_ms - retention_ms and i != facts.snapshot_id]
    is_time = len(past_ms) >= TOGETHER or any(at_ms < now_ms - retention_ms - wait_ms for at_ms in past_ms)
    expired = len(past_ms) if is_time and facts.may_delete_files else 0
    # 3. branches of failed rounds past theirs
    branches = past_their_time(facts.branches, configs.cleantail_failed_branch_retention_ms, now_ms)
    due = bool(groups or expired or branches)
    return ReclaimPlan(due, _reason(groups, expired, branches), tuple(groups), expired, tuple(branches))


def rewrite_groups(files: Sequence[DataFile], configs: KafkaConfigs) -> list[tuple[DataFile, ...]]:
    """Return neighbouring files of one log that become one: Kafka's grouping of segments (1.4.3), at most
    segment.bytes.

    A group is rewritten when one of its files has too large a deleted share, or when it merges enough small files.
    """
    groups: list[list[DataFile]] = []
    for file in sorted(files, key=lambda f: (f.lower_offset, f.upper_offset, f.path)):
        fits = groups and sum(f.live_bytes for f in groups[-1]) + file.live_bytes <= configs.segment_bytes
        if fits and groups[-1][-1].iceberg_partition == file.iceberg_partition:
            groups[-1].append(file)
        else:
            groups.append([file])
    parts = (part for group in groups for part in _without_large(group, configs))
    return [tuple(part) for part in parts if _worth_rewriting(part, configs)]


def _without_large(group: Sequence[DataFile], configs: KafkaConfigs) -> list[Sequence[DataFile]]:
    """Split a group at its largest file, if that is large (rule 2)."""
    largest = max(range(len(group)), key=lambda n: group[n].live_bytes)
    others = sum(file.live_bytes for file in group) - group[largest].live_bytes
    if len(group) == 1 or not _is_large(group[largest], others, configs):
        return [group]
    before, after = group[:largest], group[largest + 1 :]
    parts = (part for part in (before, [group[largest]], after) if part)
    return [split for part in parts for split in _without_large(part, configs)]


def _is_large(file: DataFile, others_bytes: int, configs: KafkaConfigs) -> bool:
    """Return whether a file stays apart from neighbours with this sum of live bytes, none of them larger."""
    if file.live_bytes < SMALL_BYTES:
        return file.live_bytes > max(ALWAYS_MERGED_BYTES, others_bytes // 2)
    # by its size on disk: else it would merge again as soon as one of its records is deleted
    merged_bytes = min(MERGED_BYTES, configs.segment_bytes // 2)
    return file.size_bytes >= merged_bytes or file.live_bytes + others_bytes < merged_bytes


def _worth_rewriting(group: Sequence[DataFile], configs: KafkaConfigs) -> bool:
    too_dead = any(f.deleted_share > configs.cleantail_reclaim_deleted_ratio for f in group)
    reaches_size = len(group) > 1 and max(f.live_bytes for f in group) >= SMALL_BYTES
    return too_dead or reaches_size or len(group) >= configs.cleantail_reclaim_min_merge_files


def _may_wait(group: Sequence[DataFile], configs: KafkaConfigs) -> bool:
    """Return whether a group can wait because it frees few bytes, and merges too few files."""
    is_small = sum(file.size_bytes for file in group) < ALWAYS_MERGED_BYTES
    is_asked = configs.cleantail_reclaim_deleted_ratio == 0
    return is_small and not is_asked and len(group) < configs.cleantail_reclaim_min_merge_files


def rewrite_batches(groups: Sequence[Group]) -> list[tuple[Group, ...]]:
    """Return the groups that share a task and a commit (rule 6), in their order."""
    batches: list[list[Group]] = []
    for group in groups:
        if batches and _fits(batches[-1], group):
            batches[-1].append(group)
        else:
            batches.append([group])
    return [tuple(batch) for batch in batches]


def _fits(batch: Sequence[Group], group: Group) -> bool:
    files = [file for one in (*batch, group) for file in one]
    return (
        kept_number(group) == kept_number(batch[0])
        and sum(file.live_records for file in files) <= BATCH_RECORDS
        and sum(file.live_bytes for file in files) <= BATCH_BYTES
    )


def kept_number(group: Group) -> int:
    """Return the sequence number that the new files of a group keep."""
    return max(file.data_sequence_number for file in group)


def _reason(groups: Sequence[Sequence[DataFile]], expired: int, branches: Sequence[str]) -> str:
    parts = []
    if groups:
        parts.append(f"{counted(sum(len(g) for g in groups), 'file')} to rewrite into {len(groups)}")
    if expired:
        parts.append(f"{counted(expired, 'snapshot')} {be(expired)} past {_SNAPSHOTS}")
    if branches:
        count = counted(len(branches), "branch", "branches")
        parts.append(f"{count} of failed rounds {be(len(branches))} past cleantail.failed.branch.retention.ms")
    return "; ".join(parts) or "no file is over the deleted share, nothing to merge, no snapshot to expire"

"""Which files are rewritten together, and which snapshots are past their time (semantics.md 1.4.3)."""

from dataclasses import replace
from itertools import pairwise

import pytest

from cleantail.lake.reclaim_plan import (
    ALWAYS_MERGED_BYTES,
    BATCH_BYTES,
    BATCH_RECORDS,
    MERGED_BYTES,
    resolve_reclaim,
    rewrite_batches,
    rewrite_groups,
)
from cleantail.lake.table_metadata import TableFacts
from cleantail.log.partition_state import PartitionState
from cleantail.rounds.run_plan import ReclaimPlan
from tests.cleantail.kernel_builders import configs, data_file


def facts(files=(), states=None, snapshots=(), snapshot_id=1):
    return TableFacts("n.t", snapshot_id, 1, tuple(files), (), states or {}, frozenset(), tuple(snapshots))


def groups(files, **changes):
    changes = {"cleantail_reclaim_min_merge_files": 2, "cleantail_reclaim_deleted_ratio": 1.0} | changes
    return [[f.path for f in group] for group in rewrite_groups(files, configs(**changes))]


FILES = [data_file(n, path=str(n)) for n in range(4)]
KNOWN = {0: PartitionState(known_sequence_number=1)}


@pytest.mark.parametrize(
    ("segment_bytes", "expected"),
    [
        pytest.param(400, [["0", "1", "2", "3"]], id="all fit"),
        pytest.param(399, [["0", "1", "2"]], id="three fit, one is left"),
        pytest.param(200, [["0", "1"], ["2", "3"]], id="sum == segment.bytes"),
        pytest.param(199, [], id="no two fit"),
    ],
)
def test_neighbours_are_merged_while_their_sum_fits_a_segment(segment_bytes, expected):
    assert groups(FILES, segment_bytes=segment_bytes) == expected
    assert groups(reversed(FILES), segment_bytes=segment_bytes) == expected


@pytest.mark.parametrize(("least", "expected"), [(4, [["0", "1", "2", "3"]]), (5, [])], ids=["as many", "too few"])
def test_a_merge_needs_so_many_files(least, expected):
    assert groups(FILES, cleantail_reclaim_min_merge_files=least) == expected


def test_files_of_different_partitions_of_the_table_do_not_become_one():
    files = [data_file(n, path=str(n), iceberg_partition=part) for n, part in enumerate("aaabb")]
    assert groups(files) == [["0", "1", "2"], ["3", "4"]]
    assert groups([replace(files[3], lower_offset=-1), *files]) == [["0", "1", "2"], ["3", "4"]]


def test_a_task_rewrites_at_most_so_much():
    assert (BATCH_RECORDS, BATCH_BYTES) == (200_000, 32 * 1024**2)


def test_the_sum_counts_live_bytes():
    dead = [data_file(0, 9, path="a", deleted_records=9), data_file(10, 19, path="b")]
    assert groups(dead, segment_bytes=110) == [["a", "b"]]
    assert groups(dead, segment_bytes=109) == []


@pytest.mark.parametrize(
    ("deleted", "expected"),
    [
        pytest.param(2, [], id="below"),
        pytest.param(3, [], id="share == ratio: stays"),
        pytest.param(4, [["a"]], id="above: rewritten"),
    ],
)
def test_a_file_is_rewritten_when_its_deleted_share_is_above_the_ratio(deleted, expected):
    file = data_file(0, 9, path="a", deleted_records=deleted)
    assert groups([file], cleantail_reclaim_deleted_ratio=0.3, cleantail_reclaim_min_merge_files=8) == expected


def test_one_dead_file_takes_its_small_neighbours_along():
    files = [data_file(0, 9, path="a"), data_file(10, 19, path="b", deleted_records=9)]
    assert groups(files, cleantail_reclaim_deleted_ratio=0.3, cleantail_reclaim_min_merge_files=8) == [["a", "b"]]


KIB = 1 << 10


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param([128, 1, 1], [3], id="a small file is never large"),
        pytest.param([129, 1, 1], [2], id="a large one stays as it is"),
        pytest.param([400, 400, 400], [3], id="the others have twice its bytes"),
        pytest.param([400, 400, 399], [], id="the others have less"),
        pytest.param([1, 1, 900, 1, 1], [2, 2], id="those before and after it"),
        pytest.param([900, 300, 1, 1], [2], id="one after the other"),
    ],
)
def test_a_large_file_is_not_rewritten_with_few_small_ones(sizes, expected):
    files = [data_file(n, path=str(n), size_bytes=size * KIB) for n, size in enumerate(sizes)]
    assert ALWAYS_MERGED_BYTES == 128 * KIB
    assert [len(group) for group in groups(files)] == expected


def test_a_dead_file_does_not_take_a_large_neighbour_along():
    files = [data_file(0, path="a", size_bytes=1 << 29), data_file(10, 19, path="b", deleted_records=9)]
    assert groups(files, cleantail_reclaim_deleted_ratio=0.3, cleantail_reclaim_min_merge_files=8) == [["b"]]


@pytest.mark.parametrize(
    ("sizes", "segment_mib", "expected"),
    [
        pytest.param([1] * 23, 1024, [], id="they do not reach 24 MiB"),
        pytest.param([1] * 24, 1024, [24], id="they reach it"),
        pytest.param([20, 4], 1024, [2], id="however few"),
        pytest.param([23.5, 0.5], 1024, [2], id="with a small one"),
        pytest.param([24, 24], 1024, [], id="they have it already"),
        pytest.param([24, 20, 4, 24], 1024, [2], id="those between"),
        pytest.param([1] * 7, 16, [], id="not half a segment"),
        pytest.param([1] * 8, 16, [8], id="half a segment"),
    ],
)
def test_files_from_a_mib_on_are_merged_once_they_reach_their_size(sizes, segment_mib, expected):
    files = [data_file(n, path=str(n), size_bytes=int(size * KIB**2)) for n, size in enumerate(sizes)]
    merged = groups(files, segment_bytes=segment_mib << 20, cleantail_reclaim_min_merge_files=30)
    assert (MERGED_BYTES, [len(group) for group in merged]) == (24 << 20, expected)


def test_a_merged_file_with_deleted_records_is_not_merged_again():
    first = data_file(0, 9, path="a", size_bytes=24 << 20, deleted_records=2)
    others = [data_file(10, path="b", size_bytes=5 << 20), data_file(20, path="c", size_bytes=5 << 20)]
    assert groups([first, *others]) == []


@pytest.mark.parametrize(
    ("size", "runs", "most_files", "most_written"),
    [
        pytest.param(4 * KIB, 1_500, 25, 6, id="60 records a run"),
        pytest.param(100 * KIB, 1_500, 30, 4, id="a larger topic"),
        pytest.param(1024 * KIB, 500, 45, 2.5, id="a large topic"),
        pytest.param(20 << 20, 60, 40, 2.5, id="a larger one"),
    ],
)
def test_a_log_has_few_files_and_a_record_is_rewritten_few_times(size, runs, most_files, most_written):
    """The records of all runs stay alive: the worst case."""
    files, written, most = [], runs * size, 0
    for run in range(runs):
        files.append(data_file(run, path=str(run), size_bytes=size))
        most = max(most, len(files))
        for merged in rewrite_groups(files, configs()):
            first = files.index(merged[0])
            whole = sum(file.size_bytes for file in merged)
            written += whole
            files[first : first + len(merged)] = [replace(merged[0], upper_offset=run, size_bytes=whole)]
    assert most <= most_files
    assert written / (runs * size) < most_written


def test_files_of_one_first_offset_are_ordered_by_end_and_path():
    files = [data_file(0, 9, path="c"), data_file(0, 9, path="b"), data_file(0, 5, path="d")]
    assert groups(files) == [["d", "b", "c"]]


# ---- the plan


def test_without_a_table_there_is_nothing_to_reclaim():
    plan = resolve_reclaim(None, configs(), 0)
    assert (plan, plan.due, plan.expired_snapshots) == (ReclaimPlan(False, "there is no table yet"), False, 0)


def test_partitions_are_never_merged_with_each_other():
    files = [data_file(0, path="a"), data_file(1, path="b", partition=1)]
    known = KNOWN | {1: PartitionState(known_sequence_number=1)}
    assert not resolve_reclaim(facts(files, known), configs(cleantail_reclaim_min_merge_files=2), 0).due


@pytest.mark.parametrize(
    ("states", "merged"),
    [
        pytest.param({}, 0, id="no round yet"),
        pytest.param({0: PartitionState(known_sequence_number=4)}, 0, id="newer than the last round"),
        pytest.param({0: PartitionState(known_sequence_number=5)}, 2, id="as new as the last round"),
        pytest.param({0: PartitionState(known_sequence_number=6)}, 2, id="older"),
    ],
)
def test_only_files_that_a_round_has_seen_are_rewritten(states, merged):
    files = [data_file(n, path=str(n), data_sequence_number=5) for n in range(2)]
    plan = resolve_reclaim(facts(files, states), configs(cleantail_reclaim_min_merge_files=2), 0)
    assert ([len(g) for g in plan.groups], plan.due) == ([merged] if merged else [], merged > 0)


DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("retention_ms", "ages_ms", "current", "expired"),
    [
        pytest.param(100, [201], 1, 1, id="past its time by more than the retention"),
        pytest.param(100, [200], 1, 0, id="by the retention: waits"),
        pytest.param(2 * DAY_MS, [3 * DAY_MS + 1], 1, 1, id="past its time by more than a day"),
        pytest.param(2 * DAY_MS, [3 * DAY_MS], 1, 0, id="by a day: waits"),
        pytest.param(100, [201, 101], 9, 2, id="the one that waits goes with the other"),
        pytest.param(100, [201, 100], 9, 1, id="age == retention: stays"),
        pytest.param(100, [201], 0, 0, id="the current one stays"),
        pytest.param(100, [101] * 32, 99, 32, id="many together"),
        pytest.param(100, [101] * 31, 99, 0, id="one less: wait"),
        pytest.param(100, [101] * 31 + [100], 99, 0, id="one of them not past its time: wait"),
        pytest.param(100, [101] * 32, 0, 0, id="the current one of them does not count"),
        pytest.param(0, [1], 9, 1, id="no retention: at once"),
    ],
)
def test_snapshots_expire_together_once_they_are_many_or_one_is_past_its_time_by_a_day(
    retention_ms, ages_ms, current, expired
):
    now_ms = 10 * DAY_MS
    found = facts(snapshots=[(i, now_ms - age) for i, age in enumerate(ages_ms)], snapshot_id=current)
    plan = resolve_reclaim(found, configs(cleantail_snapshot_retention_ms=retention_ms), now_ms)
    assert (plan.expired_snapshots, plan.due) == (expired, expired > 0)


def test_a_reclaim_that_a_user_calls_does_not_wait():
    now_ms, small = 10 * DAY_MS, [data_file(0, 9, path="a", size_bytes=1, deleted_records=9)]
    found = replace(facts(small, KNOWN, [(0, now_ms - 101)], snapshot_id=9), rewritten_ms=now_ms - 1)
    retention = configs(cleantail_snapshot_retention_ms=100)
    assert not resolve_reclaim(found, retention, now_ms).due
    plan = resolve_reclaim(found, retention, now_ms, by_person=True)
    assert (plan.expired_snapshots, len(plan.groups)) == (1, 1)


def test_a_small_topic_makes_few_commits_to_expire_its_snapshots():
    """Two snapshots a run, with the default retention: every fifteenth run a quarter of an hour apart, every seventh
    four hours apart, and every second a day apart."""
    for minutes, runs in ((15, 15), (240, 7), (1440, 2)):
        snapshots, expiries = list[tuple[int, int]](), list[int]()
        for run in range(600):
            now_ms = run * minutes * 60_000
            snapshots += [(2 * run, now_ms), (2 * run + 1, now_ms)]
            if resolve_reclaim(
                facts(snapshots=snapshots, snapshot_id=2 * run + 1), configs(), now_ms
            ).expired_snapshots:
                expiries.append(run)
                snapshots = [(i, at_ms) for i, at_ms in snapshots if at_ms >= now_ms - 129_600_000]
        assert {later - earlier for earlier, later in pairwise(expiries)} <= {runs, runs + 1}, minutes


def test_the_reason_names_files_and_snapshots():
    settings = configs(cleantail_reclaim_min_merge_files=2, segment_bytes=200, cleantail_snapshot_retention_ms=0)
    plan = resolve_reclaim(facts(FILES, KNOWN, [(7, 0), (8, 1), (1, 0)]), settings, 10)
    assert plan.reason == "4 files to rewrite into 2; 2 snapshots are past cleantail.snapshot.retention.ms"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        pytest.param(facts(FILES, KNOWN), "4 files to rewrite into 1", id="only files"),
        pytest.param(
            facts(snapshots=[(7, 0)]), "1 snapshot is past cleantail.snapshot.retention.ms", id="only snapshots"
        ),
        pytest.param(
            facts(), "no file is over the deleted share, nothing to merge, no snapshot to expire", id="nothing"
        ),
    ],
)
def test_the_reason_leaves_out_what_is_not_due(given, reason):
    settings = configs(cleantail_reclaim_min_merge_files=2, cleantail_snapshot_retention_ms=0)
    assert resolve_reclaim(given, settings, 10).reason == reason


def test_before_its_first_round_no_file_of_a_log_is_rewritten():
    """Sequence numbers begin at 1: a file of the first commit is not known either."""
    first = [data_file(n, path=str(n), data_sequence_number=1) for n in range(4)]
    assert resolve_reclaim(facts(first), configs(cleantail_reclaim_min_merge_files=2), 0).groups == ()


# ---- how often small files are rewritten

KIB_127 = 127 * KIB


@pytest.mark.parametrize(
    ("rewritten_ms", "sizes", "changes", "groups"),
    [
        pytest.param(None, [KIB_127], {}, 1, id="never before"),
        pytest.param(900, [KIB_127], {}, 1, id="the retention ago"),
        pytest.param(901, [KIB_127], {}, 0, id="less: waits"),
        pytest.param(901, [128 * KIB], {}, 1, id="not small"),
        pytest.param(901, [64 * KIB] * 2, {}, 1, id="not small together"),
        pytest.param(901, [1] * 3, {"cleantail_reclaim_min_merge_files": 3}, 1, id="enough to merge"),
        pytest.param(901, [KIB_127], {"cleantail_reclaim_deleted_ratio": 0.0}, 1, id="asked for"),
        pytest.param(1_000 - DAY_MS, [KIB_127], {"cleantail_snapshot_retention_ms": 2 * DAY_MS}, 1, id="a day ago"),
        pytest.param(
            1_001 - DAY_MS, [KIB_127], {"cleantail_snapshot_retention_ms": 2 * DAY_MS}, 0, id="less than a day"
        ),
    ],
)
def test_small_files_are_rewritten_for_their_deleted_share_once_a_day_or_once_in_a_shorter_retention(
    rewritten_ms, sizes, changes, groups
):
    """Their bytes stay until the snapshots expire, and the commit of a rewrite takes more than it frees."""
    files = [data_file(10 * n, 10 * n + 9, path=str(n), size_bytes=s, deleted_records=9) for n, s in enumerate(sizes)]
    found = replace(facts(files, KNOWN), rewritten_ms=rewritten_ms)
    plan = resolve_reclaim(found, configs(**{"cleantail_snapshot_retention_ms": 100} | changes), 1_000)
    assert (len(plan.groups), plan.due) == (groups, groups > 0)


# ---- branches of failed rounds


@pytest.mark.parametrize(("now_ms", "due"), [(6_999, False), (7_000, True)], ids=["a millisecond before", "at its end"])
def test_a_failed_branch_makes_reclaim_due_when_its_time_is_over(now_ms, due):
    table = replace(facts(), branches=("ct_r_u0_1", "failed_r_u0_2"))
    plan = resolve_reclaim(table, configs(cleantail_failed_branch_retention_ms=5_000), now_ms)
    assert (plan.due, plan.branches) == (due, ("failed_r_u0_2",) if due else ())
    assert ("1 branch of failed rounds is past cleantail.failed.branch.retention.ms" in plan.reason) is due


def test_a_file_that_is_registered_twice_is_not_rewritten():
    files = [data_file(n, path=str(n), registered=2 if n == 1 else 1) for n in range(3)]
    plan = resolve_reclaim(facts(files, KNOWN), configs(cleantail_reclaim_min_merge_files=2), 0)
    assert [[f.path for f in group] for group in plan.groups] == [["0", "2"]]


def test_a_file_that_several_logs_share_is_not_rewritten():
    files = [*FILES, *(data_file(n, path=path, partition=1) for n, path in enumerate(["3", "4", "5"]))]
    known = KNOWN | {1: PartitionState(known_sequence_number=1)}
    plan = resolve_reclaim(facts(files, known), configs(cleantail_reclaim_min_merge_files=2), 0)
    assert [[f.path for f in group] for group in plan.groups] == [["0", "1", "2"], ["4", "5"]]


def group(records=1, size=1, number=1, deleted=0):
    file = replace(data_file(0, path="a"), records=records + deleted, deleted_records=deleted, size_bytes=size)
    return (file, replace(file, data_sequence_number=number, records=0, deleted_records=0, size_bytes=0))


@pytest.mark.parametrize(
    ("groups", "sizes"),
    [
        pytest.param([group(), group(), group()], [3], id="small ones share a commit"),
        pytest.param([group(BATCH_RECORDS - 1), group(1), group(1)], [2, 1], id="records"),
        pytest.param([group(size=BATCH_BYTES - 1), group(), group()], [2, 1], id="bytes"),
        pytest.param([group(1, 1, deleted=BATCH_RECORDS), group()], [2], id="what is deleted is not written"),
        pytest.param([group(), group(2 * BATCH_RECORDS), group()], [1, 1, 1], id="a large one is alone"),
        pytest.param([group(number=1), group(number=2), group(number=2)], [1, 2], id="each keeps its number"),
        pytest.param([], [], id="none"),
    ],
)
def test_small_groups_of_one_sequence_number_share_a_commit(groups, sizes):
    batches = rewrite_batches(groups)
    assert [len(batch) for batch in batches] == sizes
    assert [one for batch in batches for one in batch] == groups

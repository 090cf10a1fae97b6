"""Where a read begins and ends, how it is cut, and every reason not to begin it."""

from __future__ import annotations

import pytest

from cleantail.codec import FORMAT
from cleantail.errors import SourceError, SourceUnreachableError
from cleantail.kafka.read_plan import (
    PORTION_BYTES,
    PORTION_OFFSETS_MAX,
    PORTION_OFFSETS_MIN,
    RANGE_OFFSETS_MIN,
    BrokerTopic,
    LogOffsets,
    Range,
    ReadPlan,
    next_budget,
    plan_read,
    portion_ranges,
    task_ranges,
)
from cleantail.log.source_position import Gap, SourcePosition

NOW_MS = 1_700_000_000_000


def broker(*logs: tuple[int, int, int], topic_id="id-1", cluster_id="c") -> BrokerTopic:
    return BrokerTopic(cluster_id, "orders", topic_id, {p: LogOffsets(*log) for p, log in enumerate(logs)})


def position(*offsets: int, topic_id="id-1", cluster_id="c") -> SourcePosition:
    return SourcePosition(
        cluster_id, "orders", topic_id, dict(enumerate(offsets)), "read_committed", "r", 0, version=FORMAT
    )


def plan(at, topic, ends=None, isolation="read_committed", on_gap="fail") -> ReadPlan:
    return plan_read(at, ends or {}, topic, isolation, on_gap, NOW_MS)


def test_the_first_read_begins_at_the_log_start_and_calls_that_no_gap():
    found = plan(None, broker((7, 9, 12), (0, 0, 0)))
    assert (found.starts, found.ends, found.gaps) == ({0: 7, 1: 0}, {0: 9, 1: 0}, ())


def test_records_of_files_count_until_something_was_read_from_kafka():
    assert plan(None, broker((0, 9, 9)), {0: 5}).starts == {0: 5}
    assert plan(position(8), broker((0, 9, 9)), {0: 5}).starts == {0: 8}


@pytest.mark.parametrize(("isolation", "end"), [("read_committed", 9), ("read_uncommitted", 12)])
def test_the_end_is_the_last_stable_offset_unless_uncommitted_records_are_wanted(isolation, end):
    assert plan(position(3), broker((0, 9, 12)), isolation=isolation).ends == {0: end}


def test_a_position_above_the_last_stable_offset_waits_for_it():
    """After read_uncommitted, with a transaction that is still open."""
    found = plan(position(11), broker((0, 9, 12)))
    assert (found.starts, found.ends, found.offsets) == ({0: 11}, {0: 11}, 0)


def test_an_added_partition_is_read_from_its_beginning():
    assert plan(position(3), broker((0, 9, 9), (0, 4, 4))).starts == {0: 3, 1: 0}


@pytest.mark.parametrize(
    ("at", "topic", "kind", "says"),
    [
        (position(3, topic_id="old"), broker((0, 9, 9)), SourceError, "topic orders was recreated: its id is id-1"),
        (
            position(3, topic_id="old", cluster_id=""),
            broker((0, 9, 9)),
            SourceError,
            "topic orders was recreated: its id is id-1",
        ),
        (
            position(3, topic_id="old", cluster_id="c0"),
            broker((0, 9, 9)),
            SourceError,
            "of cluster c is not the topic that the table was read from, orders of cluster c0",
        ),
        (
            position(3, cluster_id="c0"),
            broker((0, 9, 9)),
            SourceError,
            "topic orders of cluster c is not the topic that the table was read from, orders of cluster c0: a copy of",
        ),
        (position(3, topic_id="", cluster_id="c0"), broker((0, 9, 9)), SourceError, "orders of cluster c0: a copy of"),
        (position(3, 4), broker((0, 9, 9)), SourceError, "no longer has partition 1. The table has its offsets up to 4"),
        (position(10), broker((0, 9, 9)), SourceUnreachableError, "partition 0 ends at offset 9, and the table has offsets up to 10"),
        (position(3), broker((5, 9, 9)), SourceError, "offsets 3 to 4 were deleted in Kafka before they were read"),
        (position(3), broker((0, 9, 9), (2, 9, 9)), SourceError, "partition 1: offsets 0 to 1 were deleted in Kafka"),
        (None, broker((0, 9, 9)), SourceError, "no longer has partition 1"),
    ],
    ids=["made anew", "made anew since segments", "another cluster", "a copy of the cluster", "another cluster since segments", "fewer partitions", "shorter log", "gap", "gap of an added one", "files of more"],
)  # fmt: skip
def test_each_obstacle_to_a_read_is_an_error_that_says_nothing_was_appended(at, topic, kind, says):
    with pytest.raises(kind, match="nothing was appended") as caught:
        plan(at, topic, {1: 3})
    assert says in str(caught.value)


def test_segments_that_do_not_say_their_topic_are_taken_for_the_brokers():
    assert plan(position(3, topic_id="", cluster_id=""), broker((0, 9, 9))).starts == {0: 3}


def test_behind_a_gap_it_goes_on_where_the_yaml_says_so():
    found = plan(position(3, 1), broker((5, 9, 9), (0, 2, 2)), on_gap="continue")
    assert (found.starts, found.gaps) == ({0: 5, 1: 1}, (Gap(0, 3, 5, NOW_MS),))


def test_on_gap_continue_does_not_accept_a_recreated_topic():
    with pytest.raises(SourceError, match="recreated"):
        plan(position(3, topic_id="old"), broker((5, 9, 9)), on_gap="continue")


def test_a_large_partition_is_cut_and_nothing_is_left_out_or_read_twice():
    whole = ReadPlan({0: 10, 1: 0, 2: 5}, {0: 1_000_010, 1: 30, 2: 5})
    ranges = portion_ranges(whole, 10_000_000, cores=2)
    assert [r for r in ranges if r.partition != 0] == [Range(1, 0, 30)]
    large = [r for r in ranges if r.partition == 0]
    assert len(large) == 4
    assert [large[0].start, large[-1].end] == [10, 1_000_010]
    assert all(a.end == b.start for a, b in zip(large, large[1:], strict=False))
    assert whole.next_offsets(ranges) == {0: 1_000_010, 1: 30, 2: 5}


def test_a_round_passes_a_bounded_part_of_the_way_small_partitions_whole():
    whole = ReadPlan(dict.fromkeys(range(3), 0), {0: 5_000_000, 1: 100, 2: 5_000_000})
    after = whole.next_offsets(portion_ranges(whole, 1_000_000, cores=2))
    assert after[1] == 100
    assert abs(after[0] - after[2]) <= 1 and sum(after.values()) <= 1_000_000


def test_more_partitions_than_the_budget_has_offsets_all_go_on():
    whole = ReadPlan(dict.fromkeys(range(50), 0), dict.fromkeys(range(50), 7))
    assert set(whole.next_offsets(portion_ranges(whole, 10, cores=2)).values()) == {1}


def test_many_small_partitions_share_a_task_and_keep_their_order():
    ranges = tuple(Range(p, 0, RANGE_OFFSETS_MIN // 10) for p in range(35))
    tasks = task_ranges(ranges, cores=1)
    assert tuple(r for task in tasks for r in task) == ranges
    assert [len(task) for task in tasks] == [17, 17, 1]


@pytest.mark.parametrize(
    ("offsets", "written", "expected"),
    [
        (1000, PORTION_BYTES, PORTION_OFFSETS_MIN),
        (1_000_000, PORTION_BYTES // 2, 2_000_000),
        (1_000_000, 1, PORTION_OFFSETS_MAX),
        (1_000_000, 0, 200),
    ],
    ids=["large records", "half full", "tiny records", "nothing but aborted ones"],
)
def test_the_next_round_is_as_large_as_its_bytes_allow(offsets, written, expected):
    assert next_budget(offsets, written, 100) == expected

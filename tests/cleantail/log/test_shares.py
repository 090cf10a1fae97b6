"""How many tasks go through a log: from the numbers in its files' metadata, and said by `plan`."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.platform import Platform, Spark
from cleantail.config.platform_configs import CleanerConfigs
from cleantail.log.task_shares import (
    BUCKET_KEYS,
    BUCKET_RECORD_BYTES,
    KEY_BYTES,
    PACK_RECORDS,
    RECORD_BYTES,
    SHARE_RECORDS,
    UNPACKED,
    bucket_count,
    ends_where_full,
    in_one_process,
    map_fits,
    one_of,
    parallelism,
    task_plan,
    task_sizes,
)
from cleantail.log.work_units import PartitionWork, WorkUnit

MANY = 1 << 40


def work(partition, records):
    return PartitionWork(partition, 0, 10, 0, 10, dirty_records=records // 5, records=records)


def cluster(cores):
    return Spark(
        master="spark://h:7077", conf={"spark.executor.instances": cores, "spark.executor.cores": 1}, insecure=True
    )


@pytest.mark.parametrize(
    ("records", "cores", "memory", "shares"),
    [
        ([SHARE_RECORDS], 8, MANY, [1]),
        ([SHARE_RECORDS + 1], 1, MANY, [1]),
        ([SHARE_RECORDS * 10], 2, MANY, [2]),
        ([SHARE_RECORDS * 4] * 4, 2, MANY, [1, 1, 1, 1]),
        ([SHARE_RECORDS * 9, SHARE_RECORDS], 2, MANY, [2, 1]),
        ([SHARE_RECORDS * 10], 1, SHARE_RECORDS * 2 * RECORD_BYTES, [1]),
        ([SHARE_RECORDS * 10], 1, SHARE_RECORDS * RECORD_BYTES, [2]),
        ([SHARE_RECORDS * 15], 1, SHARE_RECORDS * RECORD_BYTES, [3]),
    ],
    ids=["small", "one core", "two cores", "as many logs", "one large", "fits", "by memory", "into three"],
)
def test_a_log_is_dealt_out_to_cores_and_by_what_fits_into_a_task(records, cores, memory, shares):
    works = [work(p, n) for p, n in enumerate(records)]
    sizes = task_sizes(works, cluster(cores), memory)
    assert [sizes.tasks([w]) for w in works] == shares
    assert {sizes.threads([w]) for w in works} == {1}


@pytest.mark.parametrize(
    ("records", "memory", "shares", "threads"),
    [
        ([10], MANY, [1], [4]),
        ([10, 10, 10, 10], MANY, [1, 1, 1, 1], [1, 1, 1, 1]),
        ([10, 1, 1], MANY, [1, 1, 1], [3, 1, 1]),
        ([20], SHARE_RECORDS * RECORD_BYTES, [1], [4]),
        ([25], SHARE_RECORDS * RECORD_BYTES, [5], [4]),
        ([10, 10], SHARE_RECORDS * RECORD_BYTES, [1, 1], [2, 2]),
        ([20, 20], SHARE_RECORDS * RECORD_BYTES, [4, 4], [2, 2]),
    ],
    ids=[
        "one log",
        "as many as cores",
        "one large",
        "just fits",
        "does not fit",
        "both fit",
        "do not fit beside each other",
    ],
)
def test_on_a_local_master_a_log_is_one_task_of_several_threads_as_long_as_it_fits(records, memory, shares, threads):
    works = [work(p, n * SHARE_RECORDS) for p, n in enumerate(records)]
    sizes = task_sizes(works, Spark(master="local[4]"), memory)
    assert [sizes.tasks([w]) for w in works] == shares
    assert [sizes.threads([w]) for w in works] == threads


@pytest.mark.parametrize(
    ("records", "packs"),
    [
        ([PACK_RECORDS], [[0]]),
        ([1] * 6, [[0, 1, 2, 3, 4, 5]]),
        ([0, 0], [[0, 1]]),
        ([PACK_RECORDS - 1, 1, 1], [[0, 1], [2]]),
        ([1, PACK_RECORDS + 1, 1, 1], [[0], [1], [2, 3]]),
        ([SHARE_RECORDS] * 3, [[0], [1], [2]]),
    ],
    ids=["alone", "small ones", "without records", "as many as fit", "not beside a large one", "large ones"],
)
def test_small_logs_share_a_task_and_large_ones_have_their_own(records, packs):
    works = [work(p, n) for p, n in enumerate(records)]
    sizes = task_sizes(works, cluster(2), MANY)
    assert [[w.partition for w in pack] for pack in sizes.packs(reversed(works))] == packs


def test_logs_that_share_a_task_fit_into_its_memory():
    works = [work(p, 40) for p in range(5)]
    assert [len(pack) for pack in task_sizes(works, cluster(2), 80 * RECORD_BYTES).packs(works)] == [2, 2, 1]


def test_a_task_has_room_for_one_record_at_least():
    works = [work(0, 25)]
    assert task_sizes(works, cluster(1), 1).tasks(works) == 5


def test_a_log_of_one_record_has_all_cores_and_one_without_records_one_thread():
    for records, threads in ((1, 4), (0, 1)):
        works = [work(0, records)]
        assert task_sizes(works, Spark(master="local[4]"), MANY).threads(works) == threads


def test_the_cores_of_a_local_master_are_in_one_process():
    masters = ("local", "local[2]", "local[*]", "local[2,4]", "local-cluster[2,1,1024]", "spark://h:7077", "yarn")
    assert [in_one_process(Spark(master=master, insecure=True)) for master in masters] == [True] * 4 + [False] * 3


def test_a_map_is_shipped_where_all_of_it_fits_into_a_task():
    assert map_fits(10, 0, 10 * KEY_BYTES)
    assert not map_fits(11, 0, 10 * KEY_BYTES)


def test_there_are_as_many_buckets_as_have_room_for_the_records_and_at_least_one_for_each_share():
    memory = 10 * BUCKET_RECORD_BYTES
    assert [bucket_count(records, 2, memory, 0) for records in (0, 20, 21)] == [2, 2, 3]


def test_longer_keys_make_more_buckets():
    memory = 10 * BUCKET_RECORD_BYTES
    room = memory // BUCKET_KEYS
    assert [bucket_count(10, 1, memory, keys) for keys in (0, room, room + 1)] == [1, 2, 3]


def test_long_keys_are_not_shipped_as_a_map():
    assert map_fits(1, 100, 100 * UNPACKED)
    assert not map_fits(1, 101, 100 * UNPACKED)


@pytest.mark.parametrize(
    ("master", "conf", "tasks"),
    [
        ("local[3]", {}, 3),
        ("local", {}, 1),
        ("local[2,4]", {}, 2),
        ("spark://h:7077", {"spark.executor.instances": "4", "spark.executor.cores": "5"}, 20),
        ("yarn", {}, 2),
        ("yarn", {"spark.default.parallelism": 7}, 7),
        ("yarn", {"spark.executor.instances": 0}, 1),
    ],
)
def test_parallelism_follows_from_the_spark_settings(master, conf, tasks):
    assert parallelism(Spark(master=master, conf=conf, insecure=True)) == tasks


@pytest.mark.parametrize(
    ("over_budget", "records", "said", "by_rounds"),
    [
        ("spill", [100], "partition 0: a task for each partition (2 cores, at most 20 keys in a partition)", False),
        (
            "spill",
            [70 * SHARE_RECORDS, 100],
            "partitions 0, 1: tasks: 3 for partition 0, one for each other partition (2 cores, at most 14000000 keys in a "
            "partition; a task has at most 35000050 records)",
            False,
        ),
        ("spill", [70 * SHARE_RECORDS], "partition 0: tasks: 3 for partition 0 (2 cores, ", False),
        (
            "spill",
            [50 * SHARE_RECORDS, 100],
            "tasks: 2 for partition 0, one for each other partition (2 cores, ",
            False,
        ),
        (
            "spill",
            [100, 100, PACK_RECORDS],
            "partitions 0, 1, 2: 2 tasks (2 cores, at most 40000 keys in a partition)",
            False,
        ),
        (
            "rounds",
            [100],
            "partition 0: a task for each partition, until its map of 5033164 keys is full (2 cores, ",
            True,
        ),
    ],
)
def test_the_plan_says_how_many_tasks_there_are_and_why(over_budget, records, said, by_rounds):
    cleaner = CleanerConfigs(**{"cleantail.over.budget": over_budget})
    platform = Platform(cleaner=cleaner, spark={"master": "local[2]"}, home=Path("/x"), config_dir=Path("/x"))
    unit = WorkUnit("r", 0, 0, 1, "b", tuple(work(p, n) for p, n in enumerate(records)))
    assert said in task_plan(unit, platform, KafkaConfigs())
    assert ends_where_full(cleaner) == by_rounds


@pytest.mark.parametrize(
    ("logs", "named"), [(10, "partitions 0, 1, 2, 3, 4, 5, 6, 7, 8, 9: 1 task"), (11, "11 partitions: 1 task")]
)
def test_the_plan_names_ten_partitions_and_counts_more(logs, named):
    platform = Platform(spark={"master": "local[2]"}, home=Path("/x"), config_dir=Path("/x"))
    unit = WorkUnit("r", 0, 0, 1, "b", tuple(work(p, 100) for p in range(logs)))
    assert task_plan(unit, platform, KafkaConfigs()).startswith(named)


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([100, 100], "1 task for all, because they share files"),
        ([SHARE_RECORDS * 15, SHARE_RECORDS * 15], "6 tasks for all, because they share files"),
        ([100], "a task for each partition"),
    ],
)
def test_logs_that_share_files_are_gone_through_together(records, said):
    cleaner = CleanerConfigs(**{"cleantail.task.memory.bytes": SHARE_RECORDS * RECORD_BYTES})
    platform = Platform(cleaner=cleaner, spark={"master": "local[2]"}, home=Path("/x"), config_dir=Path("/x"))
    unit = WorkUnit("r", 0, 0, 1, "b", tuple(work(p, n) for p, n in enumerate(records)))
    assert said in task_plan(unit, platform, KafkaConfigs(), shared_files=True)


@pytest.mark.parametrize(("master", "number", "part"), [("local[8]", 4, 2), ("local[2]", 4, 1), ("local", 2, 1)])
def test_topics_side_by_side_share_the_cores_of_a_local_master(master, number, part):
    assert parallelism(one_of(Spark(master=master), number)) == part


def test_a_topic_beside_others_has_a_cluster_as_it_is():
    assert one_of(cluster(8), 4) == cluster(8)

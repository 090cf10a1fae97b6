"""The join of a round is chosen from metadata alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cleantail.config.platform import Platform
from cleantail.config.settings.cleaner_configs import CleanerConfigs
from cleantail.config.settings.kafka_configs import KafkaConfigs
from cleantail.log.policy.join_plans import BROADCAST, HASH, MERGE, parallelism, resolve_join
from cleantail.log.work_units import PartitionWork, WorkUnit


def plan(*dirty_records, master="local[2]", keys=100):
    cleaner = {"log.cleaner.dedupe.buffer.size": 24 * keys, "log.cleaner.io.buffer.load.factor": 1.0}
    platform = Platform(
        cleaner=CleanerConfigs(**cleaner), spark={"master": master}, home=Path("/x"), config_dir=Path("/x")
    )
    works = tuple(PartitionWork(p, 0, n, 0, n, dirty_records=n) for p, n in enumerate(dirty_records))
    made = resolve_join(WorkUnit("r", 0, 0, 1, "b", works), platform, KafkaConfigs(), adopted=False)
    return made.hint, made.grouped


@pytest.mark.parametrize(
    ("dirty", "expected"),
    [
        pytest.param((50, 50), (HASH, True), id="the logs at work together just fit"),
        pytest.param((50, 51), (MERGE, True), id="they do not"),
        pytest.param((50, 50, 50, 50), (HASH, True), id="others wait for their turn"),
        pytest.param((1, 60, 1, 60), (MERGE, True), id="the largest may meet"),
        pytest.param((100,), (BROADCAST, False), id="fewer logs than cores: one map for all tasks"),
        pytest.param((101,), (MERGE, False), id="fewer logs than cores, and no room"),
    ],
)
def test_a_plan_keeps_the_budget_and_all_cores_at_work(dirty, expected):
    assert plan(*dirty) == expected


def test_with_more_cores_than_logs_no_core_waits():
    assert plan(10, 10, master="local[3]") == (BROADCAST, False)


@pytest.mark.parametrize(
    ("master", "choice", "strategy", "adopted", "dirty", "columnar"),
    [
        pytest.param("local[2]", "auto", "offset", False, 50, True, id="the driver has all that it takes"),
        pytest.param("spark://h:7077", "auto", "offset", False, 50, False, id="of workers that is not known"),
        pytest.param("spark://h:7077", "always", "offset", False, 50, True, id="unless it is said"),
        pytest.param("local[2]", "never", "offset", False, 50, False, id="said not to"),
        pytest.param("local[2]", "always", "timestamp", False, 50, False, id="another strategy"),
        pytest.param("local[2]", "always", "offset", True, 50, False, id="files of several logs"),
        pytest.param("local[2]", "always", "offset", False, 101, False, id="more keys than the buffer holds"),
    ],
)
def test_keys_are_matched_by_columns_where_that_is_known_to_work(master, choice, strategy, adopted, dirty, columnar):
    cleaner = {"log.cleaner.dedupe.buffer.size": 32 * 100, "log.cleaner.io.buffer.load.factor": 1.0}
    spark = {"master": master, "columnar": choice, "insecure": True}
    platform = Platform(cleaner=CleanerConfigs(**cleaner), spark=spark, home=Path("/x"), config_dir=Path("/x"))
    unit = WorkUnit("r", 0, 0, 1, "b", (PartitionWork(0, 0, dirty, 0, dirty, dirty_records=dirty * 4 // 3),))
    configs = KafkaConfigs(**{"compaction.strategy": strategy})
    made = resolve_join(unit, platform, configs, adopted)
    assert made.columnar == columnar
    assert ("by columns" in made.reason) == columnar


@pytest.mark.parametrize(
    ("master", "conf", "tasks"),
    [
        pytest.param("local[3]", {}, 3, id="local threads"),
        pytest.param("local[3,2]", {}, 3, id="with failures"),
        pytest.param("local[*]", {}, os.cpu_count(), id="all cores"),
        pytest.param("local", {}, 1, id="one thread"),
        pytest.param("spark://h:7077", {}, 2, id="a cluster of which nothing is said"),
        pytest.param("yarn", {"spark.executor.instances": 4, "spark.executor.cores": "3"}, 12, id="executors"),
        pytest.param("yarn", {"spark.default.parallelism": 7, "spark.executor.instances": 4}, 7, id="said outright"),
    ],
)
def test_how_many_tasks_run_at_a_time(master, conf, tasks):
    assert parallelism(master, conf) == tasks

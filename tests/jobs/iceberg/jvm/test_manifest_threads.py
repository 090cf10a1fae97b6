"""Manifests of small tables on a local disk are read by the thread that commits; all others by Iceberg's own threads."""

import pytest

from spark_jobs.iceberg.jvm.java_collections import each
from spark_jobs.iceberg.jvm.manifest_threads import FEW_FILES, committing, is_small, scanning


@pytest.mark.parametrize(
    ("location", "data_files", "small"),
    [
        ("file:/warehouse/t", 0, True),
        ("file:///warehouse/t", FEW_FILES, True),
        ("/warehouse/t", FEW_FILES, True),
        ("/warehouse/t", FEW_FILES + 1, False),
        ("s3://bucket/t", 1, False),
        ("hdfs://name/t", 1, False),
    ],
)
def test_a_table_is_small_on_a_local_disk_with_few_files(location, data_files, small):
    assert is_small(location, data_files) is small


def record(offset):
    return {"partition": 0, "offset": offset, "ts": 1_700_000_000_000 + offset, "key": f"k{offset}", "payload": "v"}


def pool_ns(jvm):
    """Returns how long Iceberg's own threads have worked so far."""
    bean = jvm.java.lang.management.ManagementFactory.getThreadMXBean()
    named = [(i, bean.getThreadInfo(i)) for i in bean.getAllThreadIds()]
    return sum(bean.getThreadCpuTime(i) for i, info in named if info and "iceberg-worker" in info.getThreadName())


def test_a_commit_and_a_scan_of_a_small_table_are_the_work_of_one_thread(workshop, table_of):
    topic = workshop.topic("manifest-threads")
    for number in range(3):
        workshop.ok("ingest", topic, "--file", workshop.file(f"{number}.jsonl", [record(number)]))
    table = table_of(topic)
    iceberg, jvm = table.load(), table.jvm

    def commit(update):
        update.set("written-by", "test").commit()

    def read(scan):
        return sum(1 for _ in each(scan.planFiles()))

    before = pool_ns(jvm)
    commit(committing(iceberg.newFastAppend(), iceberg))
    assert read(scanning(iceberg)) == 3
    assert pool_ns(jvm) == before
    # what both are without it, as this test would not notice otherwise
    commit(iceberg.newFastAppend())
    committed = pool_ns(jvm)
    assert read(iceberg.newScan()) == 3
    assert before < committed < pool_ns(jvm)

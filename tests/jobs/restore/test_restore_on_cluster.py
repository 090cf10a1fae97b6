"""A restore on a Spark cluster, an executor of which is killed while it writes: its partition goes on elsewhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from pyspark.sql import functions as F

from cleantail.kafka.target_client import TargetBrokers
from cleantail.sources.kcat import parse_line
from differential.spark_cluster import processes_of, spark_cluster
from tests.jobs.restored import as_restored

RECORDS = 300_000


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("restoring-cluster")


@pytest.fixture(scope="module")
def master(directory):
    """The address of a master with two workers of one core."""
    with spark_cluster(directory) as address:
        yield address


def written(kafka, topic):
    return sum(TargetBrokers({"bootstrap.servers": kafka.address}).describe(topic).ends.values())


@pytest.mark.deep
def test_a_task_that_spark_tries_again_goes_on_where_the_partition_ends(
    kafka, workshop, table_of, spark, master, directory
):
    topic = workshop.topic("restored-on-cluster")
    table = table_of(topic)
    table.ensure()
    frame = spark.range(0, RECORDS, 1, 2).selectExpr(
        "CAST(id % 2 AS int) AS `partition`",
        "id AS `offset`",
        "timestamp_millis(1600000000000 + id) AS `timestamp`",
        "0 AS timestamp_type",
        "CAST(CONCAT('k', id) AS binary) AS `key`",
        "CAST(repeat(sha2(CAST(id AS string), 256), 4) AS binary) AS `value`",
        "CAST(array() AS array<struct<key: string, value: binary>>) AS headers",
    )
    frame.withColumn("tombstone", F.lit(False)).writeTo(table.name).append()
    kafka.create("restored-on-cluster-2", 2)
    conf = {"spark.pyspark.python": sys.executable, "spark.executor.memory": "512m", "spark.executor.cores": 1}
    settings = {"platform": {"spark": {"master": master, "insecure": True, "conf": conf}}}
    (workshop.config / "defaults.yaml").write_text(json.dumps(settings))
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    command = [sys.executable, "-m", "cleantail_cli", "restore", topic, "--bootstrap-server", kafka.address]
    command += ["--to", "restored-on-cluster-2", "--json", "--config", str(workshop.config)]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    while run.poll() is None and written(kafka, "restored-on-cluster-2") < RECORDS // 10:
        time.sleep(0.01)
    assert run.poll() is None, "it ended before an executor was killed"
    executor = processes_of(directory, "CoarseGrainedExecutorBackend")[0]
    before = written(kafka, "restored-on-cluster-2")
    os.kill(executor, signal.SIGKILL)
    out, err = run.communicate()
    assert run.returncode == 0, err
    done = json.loads(out)
    assert before < RECORDS and (done["verified"], done["resumed"]) == (RECORDS, False)
    shown = [parse_line(line.encode(), "text") for line in workshop.ok("read", topic).splitlines()]
    assert kafka.consumed("restored-on-cluster-2", 2, committed=False) == as_restored(shown)

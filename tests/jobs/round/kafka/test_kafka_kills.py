"""Ingestions that are killed with -9 while producers go on, and a broker that restarts in the middle of a read.

These take minutes and are of `make test-deep`. CLEANTAIL_KILLS says how many kills there are, each of a process of its
own.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from cleantail.kafka.client_settings import settings_of_environment
from cleantail.kafka.source_topic import Brokers
from spark_jobs.round.intake.kafka_reading import BrokerLogs, TopicRead
from tests.jobs.kafka_site import kafka_site

KILLS = int(os.environ.get("CLEANTAIL_KILLS", "5"))
pytestmark = pytest.mark.deep
PARTITIONS = 3


class Producers(threading.Thread):
    """Three transactional producers, of whose transactions 30 % abort, over segments that roll."""

    def __init__(self, kafka, topic, seed):
        super().__init__(daemon=True)
        self.rng, self.kafka, self.topic = random.Random(seed), kafka, topic
        self.over = threading.Event()
        self.committed = 0

    def run(self):
        senders = [self.kafka.transactions(self.topic, f"{self.topic}-{n}") for n in range(PARTITIONS)]
        while not self.over.is_set():
            for partition, sender in enumerate(senders):
                records = [self._record() for _ in range(self.rng.randrange(1, 100))]
                if self.rng.random() < 0.3:
                    sender.abort(records, partition)
                else:
                    sender.commit(records, partition)
                    self.committed += len(records)
            self.over.wait(0.2)  # kills take minutes, and all is compared at the end

    def _record(self):
        rng = self.rng
        key = rng.choice([None, b"", b"k%d" % rng.randrange(500)])
        value = rng.choice([None, b"", rng.randbytes(rng.randrange(800))])
        headers = [(rng.choice("ab"), rng.choice([None, b"", b"\xff"])) for _ in range(rng.randrange(3))]
        return key, value, headers, rng.randrange(1, 1_700_000_000_000)


def test_after_any_number_of_kills_each_record_is_there_once(kafka, workshop, landed):
    topic = workshop.topic("killed", source=kafka.source())
    kafka.create(topic, PARTITIONS, segment_bytes=1_048_576)
    producers = Producers(kafka, topic, seed=1)
    producers.start()
    rng, command = random.Random(2), [sys.executable, "-m", "cleantail_cli", "ingest", topic, "--json"]
    settings = {"platform": {"spark": {"master": "local[2]"}}}
    (workshop.config / "defaults.yaml").write_text(json.dumps(settings))
    began = time.monotonic()
    subprocess.run([*command, "--config", str(workshop.config)], check=True, capture_output=True)
    whole_s, ended = time.monotonic() - began, 0
    for _ in range(KILLS):
        run = subprocess.Popen(
            [*command, "--config", str(workshop.config)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(rng.uniform(0.3, 1.1) * whole_s)
            ended += 1
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    producers.over.set()
    producers.join()
    workshop.ok("ingest", topic)
    assert landed(topic) == kafka.consumed(topic, PARTITIONS)
    assert len(landed(topic)) == producers.committed > 0
    assert ended < KILLS


def test_of_two_processes_without_a_common_lock_each_record_lands_once(kafka, workshop, landed, tmp_path):
    """As on two machines: each has a CLEANTAIL_HOME of its own, and both have one catalog."""
    topic = workshop.topic("two-processes", source=kafka.source())
    kafka.create(topic, PARTITIONS)
    workshop.ok("ingest", topic)  # makes catalog and table
    home = workshop.platform().home
    catalog = {"uri": f"sqlite:///{home / 'catalog.db'}", "warehouse": f"file:{home / 'warehouse'}"}
    platform = {"catalog": catalog, "spark": {"master": "local[2]"}}
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": platform}))
    command = [sys.executable, "-m", "cleantail_cli", "ingest", topic, "--json", "--config", str(workshop.config)]
    for n in range(PARTITIONS):
        kafka.send(topic, [(b"%d" % k, b"v") for k in range(5_000)], partition=n)
    runs = [
        subprocess.Popen(command, env={**os.environ, "CLEANTAIL_HOME": str(tmp_path / name)}, stdout=subprocess.PIPE)
        for name in ("one", "other")
    ]
    done = [json.loads(run.communicate(timeout=300)[0]) for run in runs]
    assert sum(each["records"] for each in done) == PARTITIONS * 5_000
    assert landed(topic) == kafka.consumed(topic, PARTITIONS)


def test_a_broker_that_restarts_in_the_middle_costs_time_and_nothing_else(workshop, table_of, landed, tmp_path):
    own = tmp_path / "own-broker"
    own.mkdir()
    with kafka_site(own) as kafka:
        topic = workshop.topic("restarted", source=kafka.source(**{"stall.timeout.ms": 120_000}))
        kafka.create(topic, PARTITIONS, segment_bytes=1_048_576)
        workshop.ok("ingest", topic)
        producers = Producers(kafka, topic, seed=3)
        producers.start()
        time.sleep(20)
        producers.over.set()
        producers.join()
        source = workshop.find(topic).source.kafka
        settings = settings_of_environment(source, {})
        again = []
        logs = BrokerLogs(workshop.find(topic), Brokers(settings, 120_000), settings)
        read = TopicRead(table_of(topic), logs, 5)
        read.run(lambda step: again.append(kafka.restart()) if step.startswith("reading") and not again else None)
        try:
            assert landed(topic) == kafka.consumed(topic, PARTITIONS)
        finally:
            os.killpg(again[0].pid, signal.SIGKILL)
            again[0].wait()

"""Reads of a source table that are killed with -9 while its sink goes on, and two at once without a common lock.

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
import time

import pytest

from tests.jobs.source_tables import allow

KILLS = int(os.environ.get("CLEANTAIL_KILLS", "5"))
pytestmark = pytest.mark.deep


class Sinking:
    """What a sink appends: each offset once, now and then a copy, over three partitions; and its compaction."""

    def __init__(self, lake, seed):
        self.lake, self.rng, self.rows = lake, random.Random(seed), []

    def go_on(self):
        rng, start = self.rng, len(self.rows)
        fresh = [(n % 3, n // 3, 86_400_000 + n, f"k{rng.randrange(40)}", f"v{n}") for n in range(start, start + 3_000)]
        self.rows += fresh
        self.lake.append(*rng.sample(fresh, len(fresh)), *rng.sample(self.rows, 3))
        if rng.random() < 0.3:
            self.lake.rewrite()

    @property
    def expected(self):
        return sorted(self.rows, key=lambda row: row[:2])


def test_after_any_number_of_kills_each_record_is_there_once(sink, workshop, reading, records):
    lake = sink("killed")
    sinking = Sinking(lake, 1)
    sinking.go_on()
    topic = reading("table-killed", lake)
    allow(workshop, spark={"master": "local[2]"})
    command = [sys.executable, "-m", "cleantail_cli", "ingest", topic, "--json", "--config", str(workshop.config)]
    began = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    whole_s, rng, ended = time.monotonic() - began, random.Random(2), 0
    for _ in range(KILLS):
        sinking.go_on()
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        run = subprocess.Popen(command, start_new_session=True, **quiet)
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(rng.uniform(0.5, 1.1) * whole_s)
            ended += 1
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    workshop.ok("ingest", topic)
    assert records(topic) == sinking.expected
    assert ended < KILLS


def test_of_two_processes_without_a_common_lock_each_record_lands_once(
    sink,
    workshop,
    reading,
    records,
    tmp_path,
):
    """As on two machines: each has a CLEANTAIL_HOME of its own, and both have one catalog."""
    lake = sink("two-at-once")
    sinking = Sinking(lake, 3)
    sinking.go_on()
    topic = reading("table-two-at-once", lake)
    home = workshop.platform().home
    catalog = {"uri": f"sqlite:///{home / 'catalog.db'}", "warehouse": f"file:{home / 'warehouse'}"}
    allow(workshop, catalog=catalog, spark={"master": "local[2]"})
    command = [sys.executable, "-m", "cleantail_cli", "ingest", topic, "--json", "--config", str(workshop.config)]
    for _ in range(2):  # a first read, and one that goes on
        sinking.go_on()
        runs = [
            subprocess.Popen(
                command, env={**os.environ, "CLEANTAIL_HOME": str(tmp_path / name)}, stdout=subprocess.PIPE
            )
            for name in ("one", "other")
        ]
        done = [(json.loads(run.communicate(timeout=300)[0] or "{}"), run.returncode) for run in runs]
        assert any(code == 0 for _, code in done)
        assert records(topic) == sinking.expected

"""What other processes do meanwhile, and what a killed one leaves behind."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading

import pytest

from cleantail.lake.spark_settings import SMALL_RUN
from cleantail.log.partition_state import PartitionState
from tests.jobs.round.test_rounds import NOW, offsets, record
from tests.model import changelog, compacted, without_tombstones

pytestmark = pytest.mark.integration

APPENDER = """
import os, sys
from pathlib import Path
from cleantail.config.loading import find_topic
from spark_jobs.round.intake.ingest import ingest_files
from spark_jobs.iceberg.session import start_session

config, name, files = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
topic = find_topic(name, config)
spark = start_session(topic.platform, "appender")
print("ready", flush=True)
sys.stdin.readline()
for file in files:
    ingest_files(spark, topic, [Path(file)], "text", lambda _: None, any_topic=True)
    print("appended", flush=True)
"""


@pytest.fixture
def short(workshop):
    """Applications of their own are over before more compiling would pay off."""
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": {"spark": {"conf": SMALL_RUN}}}))


def rows(records):
    return [(r["partition"], r["offset"], r["key"], r["payload"]) for r in records]


# test_a_round_is_one_commit in test_uncommitted_rounds.py has an append of another while a
# round is checked; here with a real process, and appends at any moment
@pytest.mark.deep
def test_appends_of_another_process_are_neither_lost_nor_doubled_and_the_checkpoint_is_true(workshop, short):
    topic = workshop.topic("busy", {"min.cleanable.dirty.ratio": 0.0})
    records = changelog(1_200, 2, 150, 100, seed=5)
    parts = [records[i : i + 300] for i in range(0, 1_200, 300)]
    files = [workshop.file(f"{n}.jsonl", part) for n, part in enumerate(parts)]
    workshop.ok("ingest", topic, "--file", files[0], "--any-topic")
    command = [sys.executable, "-c", APPENDER, str(workshop.config), topic, *map(str, files[1:])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as appender:
        assert appender.stdout is not None and appender.stdin is not None
        assert next(line for line in appender.stdout if line.strip() == "ready")
        appender.stdin.write("go\n")
        appender.stdin.flush()
        while appender.poll() is None:
            workshop.ok("compact", topic, "--now", NOW)
        assert appender.returncode == 0
    workshop.ok("compact", topic, "--now", NOW)
    assert rows(workshop.read(topic)) == rows(compacted(records))
    for log in workshop.json("status", topic, "--now", NOW)["topics"][topic]:
        assert log["checkpoint"] == log["log_end_offset"] == log["first_uncleanable_offset"]


@pytest.mark.deep
def test_a_killed_round_is_simply_run_again(workshop, short):
    """The process, its JVM and all. In `make test`, runs of the histories die between any two commits, and
    test_a_killed_undo_of_an_ingestion_is_atomic_and_can_be_repeated in test_taken_back.py kills a process."""
    topic = workshop.topic("killed-round")
    records = changelog(2_000, 2, 100, 80, seed=6)
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", records), "--any-topic")
    before = workshop.read(topic)
    kill_at("publishing", ["compact", topic, "--now", str(NOW), "--config", str(workshop.config)])
    assert rows(workshop.read(topic)) in (rows(before), rows(compacted(records)))
    workshop.ok("compact", topic, "--now", NOW)
    assert rows(workshop.read(topic)) == rows(compacted(records))
    workshop.ok("compact", topic, "--now", NOW + 1000)
    assert rows(workshop.read(topic)) == rows(without_tombstones(compacted(records)))


def kill_at(step, argv):
    """Runs the command line, whose stderr is a terminal, and kills it, JVM and all, as soon as it names the step."""
    command = [sys.executable, "-m", "cleantail_cli", *argv]
    ours, its_own = pty.openpty()
    run = subprocess.Popen(command, stderr=its_own, start_new_session=True)
    os.close(its_own)
    shown = ""
    while step not in shown:
        try:
            shown += os.read(ours, 4096).decode(errors="replace")
        except OSError:  # the other end is closed
            raise AssertionError(f"{step} was never reached: {shown}") from None
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    os.close(ours)


def test_a_rewrite_by_another_writer_makes_the_round_start_over(workshop, table_of, monkeypatch):
    """The other writer comes between the check and the publication, once."""
    from spark_jobs.round import run as rounds

    topic = workshop.topic("overtaken")
    lines = [record(i, f"k{i % 3}", f"v{i}") for i in range(9)]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    table, publish, overtaken = table_of(topic), rounds.publish_round, threading.Event()

    def overtake(*arguments):
        if not overtaken.is_set():
            overtaken.set()
            table.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
        return publish(*arguments)

    monkeypatch.setattr(rounds, "publish_round", overtake)
    workshop.ok("compact", topic, "--now", NOW)
    assert offsets(workshop.read(topic)) == [6, 7, 8]
    [log] = workshop.json("status", topic, "--now", NOW)["topics"][topic]
    assert (log["checkpoint"], log["records"]) == (9, 3)


def test_case_13_a_checkpoint_outside_the_log_is_written_back_though_nothing_is_cleaned(workshop, table_of):
    topic = workshop.topic("case-13", {"min.cleanable.dirty.ratio": 1.0})
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(10, "a", "x"), record(11, "a", "y")]))
    table = table_of(topic)
    table.set_properties({"cleantail.partition.0": PartitionState(checkpoint=200).as_json()})
    out = workshop.ok("compact", topic, "--now", NOW)
    assert "no compaction is due" in out
    [log] = workshop.json("status", topic, "--now", NOW)["topics"][topic]
    assert (log["checkpoint"], log["warnings"], log["records"]) == (10, [], 2)

"""Ctrl-C while Spark works: its jobs end, the session still answers, and the exit code is 130."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from cleantail_cli.long_work import SILENT, interruptible, spark_session

LONG = 10**15


def interrupt_when_at_work(spark):
    """Sends SIGINT once a job is active."""

    def wait():
        tracker = spark.sparkContext.statusTracker()
        until = time.monotonic() + 60
        while not tracker.getActiveStageIds() and time.monotonic() < until:
            time.sleep(0.05)
        if tracker.getActiveStageIds():  # else the work has ended, and the signal would meet another test
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=wait, daemon=True).start()


def test_an_interrupt_cancels_the_spark_job_and_cleanup_code_can_still_call_java(spark):
    before = signal.getsignal(signal.SIGINT)
    put_away = []
    with pytest.raises(KeyboardInterrupt), interruptible(spark):  # noqa: PT012
        interrupt_when_at_work(spark)
        try:
            spark.range(LONG).selectExpr("sum(id % 7)").collect()
        finally:
            put_away.append(spark.catalog.currentCatalog())
    assert put_away, "a call into Java after the interrupt"
    assert spark.range(3).count() == 3
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_without_an_interrupt_is_raised_unchanged(spark):
    with pytest.raises(ZeroDivisionError, match="division"), interruptible(spark):
        _ = 1 / 0


def test_a_command_that_is_interrupted_ends_with_130_and_changes_nothing(workshop, spark, monkeypatch, capsys):
    topic = workshop.topic("interrupted")
    lines = [{"partition": 0, "offset": o, "ts": 1, "key": "k", "payload": "v"} for o in range(3)]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))

    def long_work(table):
        interrupt_when_at_work(table.spark)
        table.spark.range(LONG).selectExpr("sum(id % 7)").collect()

    monkeypatch.setattr("spark_jobs.round.check.prove_topic", long_work)
    code, out, err = workshop.run("check", topic)
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == "interrupted; only published changes are kept"
    assert [r["offset"] for r in workshop.read(topic)] == [0, 1, 2]


def test_the_session_is_the_one_that_runs(workshop, spark):
    with spark_session(workshop.platform(), "cleantail tests", SILENT) as session:
        assert session.range(2).count() == 2

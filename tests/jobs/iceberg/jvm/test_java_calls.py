"""What is asked of the JVM, and how often: every question is a round trip between two processes."""

from __future__ import annotations

import pytest
from py4j.java_gateway import GatewayClient
from pyspark.errors import IllegalArgumentException
from pyspark.sql import functions as F

from cleantail.lake.evaluate import evaluate_topic
from spark_jobs.iceberg.iceberg_reads import texts
from spark_jobs.iceberg.jvm import many_calls
from spark_jobs.round.make import compact_unit

TS = 1_700_000_000_000
TEXTS = {"": "", "plain": "text", 'a "quoted"\n\tname': '{"json": [1, "\\\\"]}', "größe": "🙂\u2028", "zero": "\x00"}


def calls_of(monkeypatch, work):
    """What `work` sends and waits for: a command, or many at once; but for those that tell of objects that Python has let
    go."""
    sent, send, exchange = [], GatewayClient.send_command, many_calls._exchange

    def counted(self, command, *more, **named):
        sent.append(command)
        return send(self, command, *more, **named)

    def counted_once(client, portion):
        sent.append(b"".join(portion).decode())
        return exchange(client, portion)

    with monkeypatch.context() as patch:
        patch.setattr(GatewayClient, "send_command", counted)
        patch.setattr(many_calls, "_exchange", counted_once)
        work()
    return [command for command in sent if not command.startswith("m\n")]


def test_a_java_map_comes_over_whole_as_it_is_and_in_one_call(spark, monkeypatch):
    java_map = spark._jvm.java.util.HashMap()
    for name, value in TEXTS.items():
        java_map.put(name, value)
    assert texts(java_map) == TEXTS
    assert len(calls_of(monkeypatch, lambda: texts(java_map))) == 1


def test_a_function_of_a_column_asks_for_no_class_and_for_no_line_of_python(spark, monkeypatch):
    commands = calls_of(monkeypatch, lambda: F.col("offset") + F.lit(1))
    assert commands
    assert not [c for c in commands if c.startswith("r\nu\n") or "CurrentOrigin" in c or "stackTraces" in c]


def test_an_error_of_the_jvm_is_turned_into_one_of_python_and_no_jar_is_searched_for_it(spark, monkeypatch):
    def refused():
        with pytest.raises(IllegalArgumentException, match="No enum constant"):
            spark._jvm.org.apache.iceberg.FileFormat.valueOf("none")

    commands = calls_of(monkeypatch, refused)
    assert [c for c in commands if "isInstanceOf" in c]
    looked_up = [c.split("\n")[2] for c in commands if c.startswith("r\nu\n")]
    assert all(name.startswith("org.apache.spark.") for name in looked_up), looked_up  # whole names of classes


def test_a_round_asks_a_few_times_for_each_log_that_it_deletes_in(workshop, table_of, monkeypatch):
    counts, calls = (2, 22), []
    for logs in counts:
        topic = workshop.topic(f"asked-{logs}")
        lines = [
            {"partition": p, "offset": o, "ts": TS + o, "key": "k", "payload": "v"}
            for p in range(logs)
            for o in range(2)
        ]
        workshop.ok("ingest", topic, "--file", workshop.file(f"{logs}.jsonl", lines))
        table = table_of(topic)
        [unit] = evaluate_topic(table.topic, now_ms=1 << 41, force=True).units
        calls.append(calls_of(monkeypatch, lambda: compact_unit(table, unit)))  # noqa: B023
    # four of them write the log's deletion vectors: they are in a file of their own
    assert (len(calls[1]) - len(calls[0])) / (counts[1] - counts[0]) <= 5

"""Records that a table cannot hold: refused, moved to the side table or dropped, whatever the source is."""

from __future__ import annotations

import json

import pytest

from cleantail.config.alert_channels import Event
from cleantail.lake.evaluate import log_states, read_facts
from cleantail.watch import metrics
from cleantail.watch.alarms import log_alarms
from cleantail.watch.log_metrics import totals_of
from tests.jobs.round.test_rounds import NOW, offsets, record
from tests.segment_builders import batch, sealed, segment

NANOS = 1_700_000_000_000_000_000
MS = 1_700_000_000_000
LOWEST, HIGHEST = -9_223_372_036_854_775, 9_223_372_036_854_775
"""The first and the last timestamp of Iceberg's microseconds."""


def bad_name(base, *records, codec=0):
    """A batch of which each header that is called `bad` has the name 0xff 61 64."""
    data = bytearray(batch(base, records))
    while b"\x06bad" in data:
        data[data.index(b"\x06bad") + 1] = 0xFF
    return sealed(data, 0)


RECORDS = [
    (b"a", b"1", [("good", b"x")], MS),
    (b"a", b"2", [("bad", b"x"), ("good", None)], MS + 1),
    (b"b", None, [], NANOS),
    (b"b", b"4", [], MS + 3),
]
"""Of four records the table can hold the first and the last."""


class FromKafka:
    kind, raw_headers = "kafka", None

    def __init__(self, workshop, kafka, sink):
        self.workshop, self.kafka = workshop, kafka

    def topic(self, name, config):
        return self.workshop.topic(name, config, source=self.kafka.source())

    def fill(self, topic, base=0):
        if not base:
            self.kafka.create(topic)
        self.kafka.send_batch(topic, bad_name(0, *RECORDS))
        return ()


class FromSegments:
    kind, raw_headers = "segments", [{"key": b"\xffad", "value": b"x"}, {"key": b"good", "value": None}]

    def __init__(self, workshop, kafka, sink):
        self.workshop = workshop

    def topic(self, name, config):
        return self.workshop.topic(name, config)

    def fill(self, topic, base=0):
        logs = self.workshop.config / "logs"
        segment(logs / f"{topic}-0", base, bad_name(base, *RECORDS))
        return ("--segments", logs)


class FromFiles:
    kind, raw_headers = "files", FromSegments.raw_headers

    def __init__(self, workshop, kafka, sink):
        self.workshop = workshop

    def topic(self, name, config):
        return self.workshop.topic(name, config)

    def fill(self, topic, base=0):
        lines = [
            record(base + n, key.decode(), value and value.decode(), ts=ms, headers=flat(headers))
            for n, (key, value, headers, ms) in enumerate(RECORDS)
        ]
        file = self.workshop.file(f"{base}.jsonl", lines)
        file.write_bytes(file.read_bytes().replace(b'"bad"', b'"\xffad"'))
        return ("--file", file)


def flat(headers):
    return [part for name, value in headers for part in (name, value and value.decode())]


class FromTable:
    kind, raw_headers = "table", None

    def __init__(self, workshop, kafka, sink):
        self.workshop, self.sink = workshop, sink

    def topic(self, name, config):
        self.lake = self.sink(name)
        return self.workshop.topic(name, config, source={"table": self.lake.source})

    def fill(self, topic, base=0):
        # a table of Spark has no name of a header that is not UTF-8
        times = [NANOS if n == 1 else ms for n, (_, _, _, ms) in enumerate(RECORDS)]
        records = [(key.decode(), value and value.decode()) for key, value, _, _ in RECORDS]
        self.lake.append(
            *((0, base + n, ms, *record) for n, (ms, record) in enumerate(zip(times, records, strict=True)))
        )
        return ()


SOURCES = [FromKafka, FromSegments, FromFiles, FromTable]


@pytest.fixture(params=SOURCES, ids=lambda source: source.kind)
def source(request, workshop, kafka, sink):
    return request.param(workshop, kafka, sink)


def deep_but_for(*quick):
    """Parametrizes `source`: only these are left to `make test`."""
    marks = {source: () if source in quick else pytest.mark.deep for source in SOURCES}
    params = [pytest.param(source, id=source.kind, marks=marks[source]) for source in SOURCES]
    return pytest.mark.parametrize("source", params, indirect=True)


def side_rows(spark, table_of, topic):
    name = f"{table_of(topic).name[:-1]}_unholdable`"
    return [row.asDict(recursive=True) for row in spark.table(name).orderBy("offset").collect()]


def alarms(workshop, topic, now_ms):
    configured, _platform = workshop.find(topic), workshop.platform()
    logs = log_states(configured, read_facts(configured), now_ms)
    return [c for c in log_alarms(logs, (), configured.config, now_ms) if c.event is Event.GAP]


def test_by_default_unholdable_records_are_refused_and_the_error_names_the_policy(source, workshop, table_of):
    topic = source.topic(f"unheld-fail-{source.kind}", {})
    code, _, err = workshop.run("ingest", topic, *source.fill(topic))
    assert (code, "nothing was appended" in err, "cleantail.unholdable.policy" in err) == (2, True, True), err
    assert not table_of(topic).exists() or workshop.read(topic) == []


# test_a_crash_after_the_side_table_was_written_... has records from Kafka, which tasks write as those of files
@deep_but_for(FromTable)
def test_policy_quarantine_moves_unholdable_records_unchanged_to_the_side_table(source, workshop, spark, table_of):
    topic = source.topic(f"unheld-side-{source.kind}", {"cleantail.unholdable.policy": "quarantine"})
    for base in (0, 4):
        workshop.ok("ingest", topic, *source.fill(topic, base))
    assert offsets(workshop.read(topic)) == [0, 3, 4, 7]
    rows = side_rows(spark, table_of, topic)
    assert [row["offset"] for row in rows] == [1, 2, 5, 6]
    assert_moved(*rows[:2], source.raw_headers)


def assert_moved(name, time, raw_headers):
    """The second and the third of RECORDS, in the side table."""
    assert (name["key"], name["value"], name["headers"]) == (b"a", b"2", raw_headers)
    assert (time["key"], time["value"], time["timestamp_ms"]) == (b"b", None, NANOS)
    assert time["reason"] == "timestamp"


@deep_but_for(FromFiles)
def test_dropped_unholdable_records_are_reported_in_status_evidence_and_alert(source, workshop, table_of):
    topic = source.topic(f"unheld-drop-{source.kind}", {"cleantail.unholdable.policy": "drop"})
    done = workshop.json("ingest", topic, *source.fill(topic))
    assert done["records"] == 2
    names = {"table": 0}.get(source.kind, 1)
    texts = done["warnings"]
    assert len(texts) == 1 + names and all("dropped" in text for text in texts)
    [log] = workshop.json("status", topic)["topics"][topic]
    assert [text for text in log["warnings"] if "cannot hold" in text] == texts
    rows = [row for row in workshop.evidence(topic) if row["kind"] == "gap"]
    assert sum(json.loads(row["deleted"])["unholdable"] for row in rows) == 2
    at_ms = max(row["now_ms"] for row in rows)
    [alarm] = alarms(workshop, topic, at_ms + 1)
    assert "cleantail.unholdable.policy: drop" in alarm.text and alarms(workshop, topic, at_ms + 86_400_000) == []
    assert totals_of(rows) == {(metrics.DROPPED, (topic, "0", "unholdable")): 2}
    workshop.ok("compact", topic, "--now", NOW)
    assert [text for text in workshop.json("status", topic)["topics"][topic][0]["warnings"] if "hold" in text] == texts


def test_negative_timestamps_are_stored_and_only_minus_one_becomes_null(workshop, kafka, landed, sink, records):
    stamps = [0, -1, -2, -5_000, -62_000_000_000_000]
    topic = workshop.topic("before-1970", source=kafka.source())
    kafka.create(topic)
    kafka.send_batch(topic, batch(0, [(b"k", b"v", [], ms) for ms in stamps]))
    workshop.ok("ingest", topic)
    held = [None if ms == -1 else ms for ms in stamps]
    assert [r.timestamp_ms for r in landed(topic)] == held
    lake = sink("before-1970")
    lake.append(*[(0, n, ms, "k", "v") for n, ms in enumerate(stamps)])
    table = workshop.topic("before-1970-table", source={"table": lake.source})
    workshop.ok("ingest", table)
    assert [ms for _, _, ms, _, _ in records(table)] == held


def test_the_first_and_the_last_timestamp_of_the_table_are_held(workshop):
    topic = workshop.topic("farthest-times")
    stamps = [LOWEST, HIGHEST]
    lines = [record(n, "k", "v", ts=ms) for n, ms in enumerate(stamps)]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    assert [r["ts"] for r in workshop.read(topic)] == stamps


def test_a_crash_after_the_side_table_was_written_moves_nothing_twice(workshop, kafka, spark, table_of, monkeypatch):
    topic = workshop.topic("unheld-crash", {"cleantail.unholdable.policy": "quarantine"}, source=kafka.source())
    kafka.create(topic)
    kafka.send_batch(topic, bad_name(0, *RECORDS))
    with monkeypatch.context() as crash:
        crash.setattr("spark_jobs.round.intake.kafka_reading.append_and_advance", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError, match="division"):
            workshop.run("ingest", topic)
    assert [row["offset"] for row in side_rows(spark, table_of, topic)] == [1, 2]
    workshop.ok("ingest", topic)
    rows = side_rows(spark, table_of, topic)
    assert [row["offset"] for row in rows] == [1, 2]
    assert_moved(*rows, FromKafka.raw_headers)
    assert offsets(workshop.read(topic)) == [0, 3]


def test_an_ingestion_continues_after_a_batch_of_unholdable_records_alone(workshop, kafka, table_of):
    topic = workshop.topic("unheld-all", {"cleantail.unholdable.policy": "drop"}, source=kafka.source())
    kafka.create(topic, 2)
    kafka.send(topic, [(b"k", b"v", None, NANOS + n) for n in range(50)], partition=1)
    assert workshop.json("ingest", topic)["records"] == 0
    kafka.send(topic, [(b"k", b"v", None, MS)], partition=1)
    assert workshop.json("ingest", topic)["records"] == 1
    assert offsets(workshop.read(topic)) == [50]


def test_an_invalid_line_is_refused_even_if_unholdable_records_are_dropped(workshop, table_of):
    topic = workshop.topic("unheld-and-bad", {"cleantail.unholdable.policy": "drop"})
    file = workshop.file("a.jsonl", [record(0, "k", "v", ts=NANOS), record(1, "k", "v")])
    file.write_text(file.read_text() + "oops\n")
    code, _, err = workshop.run("ingest", topic, "--file", file)
    assert code == 2 and "a.jsonl:3: not JSON" in err
    assert not table_of(topic).exists() or workshop.read(topic) == []


@pytest.mark.parametrize("policy", ["quarantine", pytest.param("drop", marks=pytest.mark.deep)])
def test_lines_that_kcat_could_not_decode_are_left_out_by_the_policy_and_counted(workshop, spark, table_of, policy):
    topic = workshop.topic(f"unheld-undecoded-{policy}", {"cleantail.unholdable.policy": policy})
    lines = [
        record(0, "k", "v"),
        record(1, "k", None, payload_error="Schema not found"),
        record(2, None, "v", key_error="Schema not found"),
        record(3, "k", None, value_schema_id=7),
        record(4, "b", "v"),
    ]
    done = workshop.json("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    assert done["records"] == 2 and any("could not decode" in text for text in done["warnings"])
    assert [(r["offset"], r["payload"]) for r in workshop.read(topic)] == [(0, "v"), (4, "v")]
    rows = [row for row in workshop.evidence(topic) if row["kind"] == "gap"]
    assert sum(json.loads(row["deleted"])["unholdable"] for row in rows) == 3
    if policy == "quarantine":
        left = [(r["offset"], r["key"], r["value"], r["reason"]) for r in side_rows(spark, table_of, topic)]
        assert left == [(n, None, None, "not decoded") for n in (1, 2, 3)]

"""Erased keys do not come back, whatever the source is; and a person may let them in again."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pyarrow as pa
import pytest

from cleantail.config.topic_table import ERASURES
from cleantail.erasure.requests import APPROVED, ErasureEvent
from cleantail.erasure.store import ErasureStore
from cleantail.errors import TableError
from cleantail.watch import metrics
from cleantail.watch.log_metrics import totals_of
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.intake import ingest, kafka_reading
from spark_jobs.round.intake.denylist import Denylist, denied_keys, note_denylist
from tests.jobs.round.test_rounds import record
from tests.segment_builders import batch, segment

MS = 1_700_000_000_000
FIRST = [(b"gone", b"marker-1"), (b"kept", b"1"), (None, b"keyless")]
AGAIN = [(b"gone", b"marker-2"), (b"kept", b"2"), (b"gone", None), (None, b"keyless too"), (b"gone-not", b"3")]
"""The second time, the records 3 and 5 have an erased key."""


class FromKafka:
    kind = "kafka"

    def __init__(self, workshop, kafka, sink):
        self.workshop, self.kafka = workshop, kafka

    def topic(self, name):
        topic = self.workshop.topic(name, source=self.kafka.source())
        self.kafka.create(topic)
        return topic

    def fill(self, topic, base, records):
        self.kafka.send_batch(topic, batch(0, [(key, value, [], MS) for key, value in records]))
        return ()


class FromSegments:
    kind = "segments"

    def __init__(self, workshop, kafka, sink):
        self.workshop = workshop

    def topic(self, name):
        return self.workshop.topic(name)

    def fill(self, topic, base, records):
        logs = self.workshop.config / "logs"
        segment(logs / f"{topic}-0", base, batch(base, [(key, value, [], MS) for key, value in records]))
        return ("--segments", logs)


class FromFiles(FromSegments):
    kind = "files"

    def fill(self, topic, base, records):
        lines = [
            record(base + n, key and key.decode(), value and value.decode(), ts=MS)
            for n, (key, value) in enumerate(records)
        ]
        return ("--file", self.workshop.file(f"{base}.jsonl", lines))


class FromFilesBySpark(FromFiles):
    """Spark writes the records, because tasks may write no log."""

    kind = "files-by-spark"


class FromTable:
    kind = "table"

    def __init__(self, workshop, kafka, sink):
        self.workshop, self.sink = workshop, sink

    def topic(self, name):
        self.lake = self.sink(name)
        return self.workshop.topic(name, source={"table": self.lake.source})

    def fill(self, topic, base, records):
        rows = [(0, base + n, MS, k and k.decode(), v and v.decode()) for n, (k, v) in enumerate(records)]
        self.lake.append(*rows)
        return ()


SOURCES = [FromKafka, FromSegments, FromFiles, FromFilesBySpark, FromTable]


@pytest.fixture(
    params=[
        # what tasks write, test_keys_that_are_erased_while_kafka_is_read_are_left_out_too holds
        pytest.param(s, id=s.kind, marks=() if s is FromTable else pytest.mark.deep)
        for s in SOURCES
    ]
)
def source(request, workshop, kafka, sink, monkeypatch):
    if request.param is FromFilesBySpark:
        monkeypatch.setattr(ingest, "LOGS_MAX", 0)
    return request.param(workshop, kafka, sink)


@pytest.fixture(autouse=True)
def secret(monkeypatch):
    monkeypatch.setenv("CLEANTAIL_ERASURE_KEY", base64.b64encode(bytes(range(32))).decode())


@pytest.fixture
def deny(workshop, table_of):
    """Approves a request for keys, as an erasure does, and returns it."""

    def approved(topic, *keys):
        store = ErasureStore(workshop.platform())
        request = store.request(topic, keys, by="ana", now_ms=MS, deadline_ms=MS + 1)
        store.append(ErasureEvent(topic, request.id, APPROVED, MS, "ana"))
        note_denylist(table_of(topic))
        return request

    return approved


def values(workshop, topic):
    return [(r["offset"], r["payload"]) for r in workshop.read(topic)]


def erased_rows(workshop, topic):
    return [row for row in workshop.evidence(topic) if "erased" in json.loads(row["deleted"])]


def test_a_replay_brings_no_erased_key_back_until_the_request_is_lifted(source, workshop, deny, home):
    """What is left out is reported and counted, and is not read again."""
    topic = source.topic(f"denied-{source.kind}")
    workshop.ok("ingest", topic, *source.fill(topic, 0, FIRST))
    request = deny(topic, b"gone", b"never-there")
    done = workshop.json("ingest", topic, *source.fill(topic, 3, AGAIN))
    assert done["records"] == 3
    assert values(workshop, topic)[3:] == [(4, "2"), (6, "keyless too"), (7, "3")]
    told = "partition 0: 2 records of erased keys left out (offsets 3 to 5)"
    assert told in done["warnings"], done["warnings"]
    [row] = erased_rows(workshop, topic)
    assert (row["note"], row["first_dirty_offset"], row["end_offset"]) == (told, 3, 6)
    assert totals_of([row]) == {(metrics.DROPPED, (topic, "0", "erased")): 2}
    files = [f for f in Path(home).rglob("*") if f.is_file() and topic.replace("-", "_") in str(f)]
    assert files and not [f for f in files if b"marker-2" in f.read_bytes()]

    alone = [(b"gone", b"marker"), (b"gone", None)]
    assert workshop.json("ingest", topic, *source.fill(topic, 8, alone))["records"] == 0
    assert [row["first_dirty_offset"] for row in erased_rows(workshop, topic)] == [3, 8]

    assert workshop.run("erasures", topic, "--lift", request.id)[0] in (0, 1)
    done = workshop.json("ingest", topic, *source.fill(topic, 10, AGAIN))
    assert (done["records"], done["warnings"]) == (5, [])


def test_a_replay_after_the_table_was_dropped_leaves_the_keys_out(workshop, deny, table_of, spark):
    topic = workshop.topic("denied-anew")
    file = workshop.file("a.jsonl", [record(0, "gone", "marker"), record(1, "kept", "v")])
    workshop.ok("ingest", topic, "--file", file)
    deny(topic, b"gone")
    spark.sql(f"DROP TABLE {table_of(topic).name} PURGE")
    workshop.ok("ingest", topic, "--file", file)
    assert values(workshop, topic) == [(1, "v")]


def test_records_of_erased_keys_go_to_no_side_table(workshop, deny, table_of, spark):
    topic = workshop.topic("denied-unheld", {"cleantail.unholdable.policy": "quarantine"})
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(0, "kept", "v")]))
    deny(topic, b"gone")
    beyond = 1_700_000_000_000_000_000
    lines = [record(1, "gone", "marker", ts=beyond), record(2, "kept", "w", ts=beyond), record(3, "gone", "marker")]
    done = workshop.json("ingest", topic, "--file", workshop.file("b.jsonl", lines))
    rows = spark.table(f"{table_of(topic).name[:-1]}_unholdable`").collect()
    assert [(row["offset"], row["key"]) for row in rows] == [(2, b"kept")]
    assert sum("of erased keys left out" in text for text in done["warnings"]) == 2
    assert sum(json.loads(row["deleted"])["erased"] for row in erased_rows(workshop, topic)) == 2


@pytest.mark.parametrize("there", [[b"other"], pytest.param([], marks=pytest.mark.deep)], ids=["a record", "no table"])
def test_keys_that_are_erased_while_records_go_to_a_side_table_are_not_there(
    workshop, deny, table_of, spark, monkeypatch, there
):
    topic = workshop.topic(f"denied-beside-{len(there)}", {"cleantail.unholdable.policy": "quarantine"})
    beyond = 1_700_000_000_000_000_000
    others = [record(1, "other", "v", ts=beyond)] if there else []
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(0, "kept", "v"), *others]))
    append = TopicTable.append_rows

    def slow(*arguments):
        deny(topic, b"gone")
        append(*arguments)

    file = workshop.file("b.jsonl", [record(2, "gone", "marker", ts=beyond), record(3, "kept", "w")])
    with monkeypatch.context() as patch:
        patch.setattr(TopicTable, "append_rows", slow)
        code, _, err = workshop.run("ingest", topic, "--file", file)
    assert code == 3 and "were erased while records were read" in err
    workshop.ok("ingest", topic, "--file", file)
    rows = spark.table(f"{table_of(topic).name[:-1]}_unholdable`").collect()
    assert [row["key"] for row in rows] == there
    assert values(workshop, topic) == [(0, "v"), (3, "w")]


def test_keys_that_are_erased_while_kafka_is_read_are_left_out_too(workshop, kafka, deny, monkeypatch):
    topic = FromKafka(workshop, kafka, None).topic("denied-meanwhile")
    kafka.send_batch(topic, batch(0, [(key, value, [], MS) for key, value in FIRST]))
    workshop.ok("ingest", topic)
    kafka.send_batch(topic, batch(0, [(key, value, [], MS) for key, value in AGAIN]))
    commit, tries = kafka_reading.append_and_advance, []

    def slow(*arguments):
        if not tries:
            deny(topic, b"gone")
        tries.append(arguments)
        commit(*arguments)

    monkeypatch.setattr(kafka_reading, "append_and_advance", slow)
    assert workshop.json("ingest", topic)["records"] == 3
    assert len(tries) == 2 and [value for _, value in values(workshop, topic)][3:] == ["2", "keyless too", "3"]


def test_records_that_were_left_out_are_no_holes_that_kafkas_cleaner_made(workshop, kafka, deny):
    topic = workshop.topic("denied-no-holes", source=kafka.source())
    kafka.create(topic, cleanup_policy="compact", delete_retention_ms=1)
    kafka.send_batch(topic, batch(0, [(key, value, [], MS) for key, value in FIRST if key]))
    workshop.ok("ingest", topic)
    deny(topic, b"gone")
    kafka.send_batch(topic, batch(0, [(key, value, [], MS) for key, value in AGAIN if key]))
    done = workshop.json("ingest", topic)
    assert done["warnings"] == ["partition 0: 2 records of erased keys left out (offsets 2 to 4)"]


def test_keys_that_are_erased_while_files_are_read_are_never_appended(workshop, deny, monkeypatch):
    topic = workshop.topic("denied-meanwhile-files")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(0, "kept", "v")]))
    file, commit = workshop.file("b.jsonl", [record(1, "gone", "marker"), record(2, "kept", "w")]), ingest.append_files

    def slow(*arguments):
        deny(topic, b"gone")
        commit(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(ingest, "append_files", slow)
        code, _, err = workshop.run("ingest", topic, "--file", file)
    assert code == 3 and f"keys of topic {topic} were erased while records were read" in err
    workshop.ok("ingest", topic, "--file", file)
    assert values(workshop, topic) == [(0, "v"), (2, "w")]


def test_without_the_secret_nothing_is_ingested_into_a_topic_with_erased_keys(workshop, deny, monkeypatch):
    topic = workshop.topic("denied-no-secret")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(0, "kept", "v")]))
    deny(topic, b"gone")
    workshop.ok("ingest", topic, "--file", workshop.file("b.jsonl", [record(1, "gone", "v"), record(2, "kept", "w")]))
    monkeypatch.delenv("CLEANTAIL_ERASURE_KEY")  # though this application has sent the marks
    code, _, err = workshop.run("ingest", topic, "--file", workshop.file("c.jsonl", [record(3, "gone", "marker")]))
    assert code == 2 and "CLEANTAIL_ERASURE_KEY is not set" in err
    assert values(workshop, topic) == [(0, "v"), (2, "w")]


def test_a_request_that_is_lost_after_a_restore_began_is_an_error(workshop, table_of):
    with pytest.raises(TableError, match=r"has no request lost-request of topic erased-lost: restore it"):
        denied_keys(table_of(workshop.topic("erased-lost")), ["lost-request"])


def test_without_the_events_of_requests_nothing_is_ingested_into_a_topic_with_erased_keys(workshop, deny):
    topic = workshop.topic("denied-lost")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(0, "kept", "v")]))
    deny(topic, b"gone")
    store = ErasureStore(workshop.platform())
    events = store._load(ERASURES)
    # other tests of the session need them again
    lost, moved = ".".join(events.name()), f"{events.name()[0]}.cleantail_erasures_moved"
    events.catalog.rename_table(lost, moved)
    try:
        file = workshop.file("b.jsonl", [record(1, "gone", "marker"), record(2, "kept", "w")])
        code, _, err = workshop.run("ingest", topic, "--file", file)
        assert code == 2 and f"{ERASURES} has no approved request of topic {topic}" in err
    finally:
        events.catalog.rename_table(moved, lost)
    assert values(workshop, topic) == [(0, "v")]


@pytest.mark.parametrize(
    ("keys", "reads"),
    [
        pytest.param([b"a"], [[1], [1, 2], [1, 2, 1]], id="as many as before"),
        pytest.param([b"a", *(b"absent-%d" % n for n in range(20))], [[1], [1, 1], [1, 1]], id="few"),
    ],
)
def test_an_application_reads_the_marks_of_the_same_requests_once_and_those_of_a_new_one_at_once(
    workshop, deny, table_of, monkeypatch, keys, reads
):
    """Each ingestion reads the denylist as this does."""
    topic, read = workshop.topic(f"denied-once-{len(keys)}"), []
    table_of(topic).ensure()
    keys_of = ErasureStore.keys_of

    def noted(self, requests):
        read.append(len(requests))
        return keys_of(self, requests)

    monkeypatch.setattr(ErasureStore, "keys_of", noted)

    def found():
        return Denylist.of(table_of(topic)).keys.found(pa.array([b"a", b"b", b"c"])).tolist()

    assert Denylist.of(table_of(topic)).keys is None and not read
    first = deny(topic, *keys)
    assert found() == found() == [True, False, False]
    assert read == reads[0]
    deny(topic, b"b")
    assert found() == found() == [True, True, False]
    assert read == reads[1]
    assert workshop.run("erasures", topic, "--lift", first.id)[0] in (0, 1)
    assert found() == found() == [False, True, False]
    assert read == reads[2]

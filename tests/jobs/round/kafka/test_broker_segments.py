"""Segments of a real broker's logs: the table gets the records that a plain consumer read, and none of damaged logs."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import struct
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from cleantail.errors import CleantailError
from cleantail.kafka.segment_batches import HEADER_BYTES, BatchHeader, parse_header
from cleantail.kafka.segment_files import find_logs
from cleantail.kafka.source_topic import Brokers
from cleantail.sources.kcat import Record
from differential.kafka_client import LET_GO
from tests.jobs.kafka_site import kafka_site

pytestmark = pytest.mark.integration

HEADERS = [("h", b"1"), ("h", None), ("h", b""), ("\u00e9", b"\xff")]
RECORDS = [
    (b"a", b"x", HEADERS, 1_600_000_000_000),
    (None, b"without a key", None, 1_600_000_000_001),
    (b"", b"", [], 1_600_000_000_002),
    (b"\xff\x00", None, None, 1),
    (None, None, None, 4_102_444_800_000),
    (b"long", b"the same again " * 3000, HEADERS * 5, 7),
]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
SMALL_SEGMENTS = {"segment_bytes": 1_048_576}


@dataclass(frozen=True)
class StoppedBroker:
    """A broker's log directory, and the records that a consumer read of each topic while the broker ran."""

    logs: Path
    seen: dict[str, list[Record]]
    seen_uncommitted: dict[str, list[Record]]
    last_stable: dict[str, dict[int, int]]

    def copy(self, topic: str, to: Path, *, with_checkpoints: bool = False) -> Path:
        """Copy the topic's folders into a separate directory."""
        for folder in self.logs.glob(f"{topic}-*"):
            shutil.copytree(folder, to / folder.name)
        for file in self.logs.glob("*-checkpoint") if with_checkpoints else ():
            shutil.copy(file, to)
        return to

    def segments(self, topic: str, partition: int = 0) -> list[Path]:
        return sorted((self.logs / f"{topic}-{partition}").glob("*.log"))


def batches(file: Path) -> list[tuple[int, int, int]]:
    """Return position, size and base offset of the batches of a segment."""
    data, at, found = file.read_bytes(), 0, []
    while at < len(data):
        base, length = struct.unpack_from(">qi", data, at)
        found.append((at, 12 + length, base))
        at += 12 + length
    return found


def headers_of(file: Path) -> list[BatchHeader]:
    data = file.read_bytes()
    return [parse_header(data[at : at + HEADER_BYTES]) for at, _, _ in batches(file)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    directory = tmp_path_factory.mktemp("stopped-broker")
    with kafka_site(directory) as kafka:
        topics = {
            "seg-transactions": _transactions(kafka),
            "seg-codecs": _codecs(kafka),
            "seg-recompressed": _recompressed(kafka),
            "seg-packed": _packed(kafka),
            "seg-append-time": _append_time(kafka),
            "seg-cleaned": _cleaned(kafka),
            "seg-cleaned-twice": _cleaned_twice(kafka),
            "seg-start-moved": _start_moved(kafka),
            "seg-open": _open_transaction(kafka),  # the last one: the coordinator ends a transaction after a minute
        }
        seen = {topic: kafka.consumed(topic, partitions) for topic, partitions in topics.items()}
        uncommitted = {
            topic: kafka.consumed(topic, topics[topic], committed=False) for topic in ("seg-transactions", "seg-open")
        }
        brokers = Brokers({"bootstrap.servers": kafka.address})
        logs = {topic: brokers.describe(topic).logs for topic in topics}
        last_stable = {topic: {p: log.last_stable for p, log in of_topic.items()} for topic, of_topic in logs.items()}
    return StoppedBroker(directory / "logs", seen, uncommitted, last_stable)


def _transactions(kafka):
    """Write plain records, and overlapping transactions of three producers. 30 % of the transactions are aborted."""
    topic, rng = "seg-transactions", random.Random(17)
    kafka.create(topic, 2, **SMALL_SEGMENTS)
    senders = [kafka.transactions(topic, f"{topic}-{n}") for n in range(3)]
    for round_number in range(6):
        for n, sender in enumerate(senders):
            records = [(b"k%d" % rng.randrange(50), rng.randbytes(rng.randrange(18_000)), HEADERS) for _ in range(40)]
            sender.begin(records[:20], partition=n % 2)
            _produce_more(sender, records[20:], partition=(n + round_number) % 2)
        kafka.send(topic, [(b"plain", rng.randbytes(500))], partition=round_number % 2)
        for n, sender in enumerate(senders):
            end = "abort_transaction" if (3 * round_number + n) % 10 < 3 else "commit_transaction"
            getattr(sender.producer, end)(30)
    return 2


def _produce_more(sender, records, partition):
    for key, value, headers in records:
        sender.producer.produce(sender.topic, value, key, partition, headers=headers)
    assert sender.producer.flush(30) == 0


def _open_transaction(kafka):
    topic = "seg-open"
    kafka.create(topic)
    sender = kafka.transactions(topic, topic)
    sender.commit(RECORDS)
    sender.begin([(b"open", b"x")])
    kafka.send(topic, [(b"behind", b"the open one")])
    return 1


def _codecs(kafka):
    """Write batches of all codecs into one log, as librdkafka compresses them."""
    kafka.create("seg-codecs")
    for codec in CODECS:
        kafka.send("seg-codecs", RECORDS, **{"compression.type": codec})
    return 1


def _recompressed(kafka):
    """Let the broker compress, as Java's clients do, with each codec in turn."""
    topic = "seg-recompressed"
    kafka.create(topic)
    sender = kafka.transactions(topic, topic)
    for number, codec in enumerate(CODECS):
        kafka.client.alter(topic, {"compression.type": "uncompressed" if codec == "none" else codec})
        until = time.monotonic() + 60
        while _last_codec(kafka, topic) != number:  # the broker applies the config after a while
            assert time.monotonic() < until
            kafka.send(topic, [(b"which", b"one")])
        sender.commit(RECORDS)
        sender.abort(RECORDS)
        sender.commit([(b"%d" % n, b"value of %d" % n * 20) for n in range(2000)])
    return 1


def _packed(kafka):
    kafka.create("seg-packed", compression_type="zstd")
    kafka.send("seg-packed", RECORDS)
    return 1


def _last_codec(kafka, topic):
    """Return the number of the last batch's codec in Kafka's format. CODECS has the same order."""
    headers = headers_of(sorted((kafka.broker.logs / f"{topic}-0").glob("*.log"))[-1])
    return headers[-1].codec if headers else None


def _append_time(kafka):
    kafka.create("seg-append-time", message_timestamp_type="LogAppendTime")
    kafka.send("seg-append-time", RECORDS, **{"compression.type": "lz4"})
    return 1


def _cleaned(kafka):
    """Write a log, and let the broker clean it: gaps, batches with fewer records, tombstones, aborted records."""
    topic, rng = "seg-cleaned", random.Random(5)
    kafka.create(topic, cleanup_policy="compact", min_cleanable_dirty_ratio=1.0, **SMALL_SEGMENTS)
    sender = kafka.transactions(topic, topic)
    for number in range(30):
        keys = [b"k%d" % rng.randrange(30) for _ in range(20)]
        records = [(key, None if rng.random() < 0.2 else rng.randbytes(rng.randrange(9_000)), HEADERS) for key in keys]
        (sender.abort if number % 10 < 3 else sender.commit)(records)
    active = kafka.broker.segment_bases(topic, 0)[-1]
    kafka.client.alter(topic, LET_GO)
    until = time.monotonic() + 60
    while kafka.broker.checkpoints(topic).get(0, 0) < active:
        assert time.monotonic() < until
        time.sleep(0.1)
    return 1


def _cleaned_twice(kafka):
    """Write a log from which the cleaner has also removed markers. A batch of an aborted transaction stays without records,
    because its producer still needs it."""
    topic, rng = "seg-cleaned-twice", random.Random(9)
    kafka.create(
        topic, cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, delete_retention_ms=0, **SMALL_SEGMENTS
    )
    kafka.transactions(topic, f"{topic}-once").abort([(b"never", b"x")] * 3)
    for _ in range(5):
        sender = kafka.transactions(topic, topic)
        sender.commit([(b"k%d" % rng.randrange(9), rng.randbytes(5_000), HEADERS) for _ in range(300)])
        active = kafka.broker.segment_bases(topic, 0)[-1]
        until = time.monotonic() + 60
        while kafka.broker.checkpoints(topic).get(0, 0) < active:
            assert time.monotonic() < until
            time.sleep(0.1)
    return 1


def _start_moved(kafka):
    kafka.create("seg-start-moved")
    kafka.send("seg-start-moved", [(b"%d" % n, b"x") for n in range(9)])
    kafka.delete_below("seg-start-moved", 0, 4)
    return 1


@pytest.fixture
def from_kafka(workshop):
    """Make a topic that reads a topic of the broker with another name."""

    def made(name, topic, **more):
        source = {"kafka": {"bootstrap.servers": "127.0.0.1:1", "topic": topic}}
        return workshop.topic(name, source=source | more)

    return made


@pytest.fixture
def refused(workshop):
    """Ingest segments, which must fail and append nothing. Returns stderr."""

    def ingest(topic, directory):
        code, _, err = workshop.run("ingest", topic, "--segments", directory)
        assert code == 2 and "nothing was appended" in err and "Traceback" not in err, err
        assert workshop.run("read", topic)[1] == ""
        return err

    return ingest


# ---- equal to the records of a consumer


@pytest.mark.parametrize(
    "of",
    ["seg-transactions", "seg-open", "seg-codecs", "seg-recompressed", "seg-append-time", "seg-cleaned"]
    + ["seg-cleaned-twice", "seg-start-moved"],
)
def test_what_lands_of_segments_is_what_a_plain_consumer_saw(broker, workshop, from_kafka, landed, position, of):
    topic = from_kafka(f"{of}-landed", of)
    done = workshop.json("ingest", topic, "--segments", broker.logs)
    assert landed(topic) == broker.seen[of] and done["records"] == len(broker.seen[of]) > 0
    assert position(topic).next_offsets == broker.last_stable[of]
    again = workshop.json("ingest", topic, "--segments", broker.logs)
    assert (again["records"], again["commits"]) == (0, 0)


def test_the_test_logs_have_the_batches_that_the_tests_need(broker):
    assert len(broker.segments("seg-transactions")) > 2
    assert len(broker.seen["seg-transactions"]) * 10 < len(broker.seen_uncommitted["seg-transactions"]) * 8
    cleaned = [r.offset for r in broker.seen["seg-cleaned"]]
    assert len(cleaned) < 0.8 * 21 * 20 and cleaned != list(range(cleaned[0], cleaned[-1] + 1))
    assert any(r.value is None for r in broker.seen["seg-cleaned"])
    headers = [header for file in broker.segments("seg-cleaned-twice") for header in headers_of(file)]
    assert any(h.is_transactional and h.record_count == 0 for h in headers)
    assert sum(h.is_control for h in headers) < 6
    packed = [h for file in broker.segments("seg-recompressed") for h in headers_of(file) if h.record_count > 1000]
    assert {h.codec for h in packed} == {*range(len(CODECS))}
    assert broker.seen["seg-start-moved"][0].offset == 4
    assert {r.timestamp_type for r in broker.seen["seg-append-time"]} == {1}


def test_segments_without_checkpoint_files_are_ingested_completely(broker, workshop, from_kafka, landed, tmp_path):
    copy = broker.copy("seg-transactions", tmp_path / "copy")
    topic = from_kafka("seg-copied", "seg-transactions")
    done = [workshop.json("ingest", topic, "--segments", copy / f"seg-transactions-{p}") for p in (1, 0)]
    assert [[row["partition"] for row in each["partitions"]] for each in done] == [[1], [0]]
    assert landed(topic) == broker.seen["seg-transactions"]


def test_folders_may_come_one_after_the_other_also_where_their_logs_begin_late(
    broker, workshop, from_kafka, landed, tmp_path
):
    copy = broker.copy("seg-transactions", tmp_path / "copy")
    sorted((copy / "seg-transactions-1").glob("*.log"))[0].unlink()
    begins = min(int(file.stem) for file in (copy / "seg-transactions-1").glob("*.log"))
    topic = from_kafka("seg-one-by-one", "seg-transactions", isolation="read_uncommitted")
    for partition in (0, 1):
        done = workshop.json("ingest", topic, "--segments", copy / f"seg-transactions-{partition}")
        assert done["gaps"] == []
    seen = broker.seen_uncommitted["seg-transactions"]
    assert landed(topic) == [r for r in seen if r.partition == 0 or r.offset >= begins]


def test_a_cleaned_log_is_known_by_its_own_batches(broker, workshop, from_kafka, landed, tmp_path):
    topic = from_kafka("seg-cleaned-copied", "seg-cleaned")
    workshop.ok("ingest", topic, "--segments", broker.copy("seg-cleaned", tmp_path / "copy"))
    assert landed(topic) == broker.seen["seg-cleaned"]


def test_copies_of_tiered_storage_may_overlap_and_every_record_lands_once(broker, workshop, landed, tmp_path):
    """The names and folders are those of Kafka's LocalTieredStorage. One segment is copied twice."""
    folder = tmp_path / "tiered" / "seg-transactions-0-LWgrMmVrT0a__7a4SasuPA"
    folder.mkdir(parents=True)
    for file in broker.segments("seg-transactions"):
        shutil.copy(file, folder / f"{int(file.stem)}-oAtiIQ95REujbuzNd_lkLQ.log")
    second = broker.segments("seg-transactions")[1]
    shutil.copy(second, folder / f"{int(second.stem)}-bCsrQTETTlKR5CbpaFhYGg.log")
    topic = workshop.topic("seg-tiered", source={"topic": "seg-transactions"})
    workshop.ok("ingest", topic, "--segments", tmp_path / "tiered")
    assert landed(topic) == [r for r in broker.seen["seg-transactions"] if r.partition == 0]


def test_read_uncommitted_takes_what_was_aborted_and_what_is_open(broker, workshop, from_kafka, landed, position):
    topic = from_kafka("seg-uncommitted", "seg-transactions", isolation="read_uncommitted")
    workshop.ok("ingest", topic, "--segments", broker.logs)
    assert landed(topic) == broker.seen_uncommitted["seg-transactions"]
    topic = from_kafka("seg-open-uncommitted", "seg-open", isolation="read_uncommitted")
    workshop.ok("ingest", topic, "--segments", broker.logs)
    assert landed(topic) == broker.seen_uncommitted["seg-open"]
    assert position(topic).open_from == {0: broker.seen["seg-open"][-1].offset + 2}


def test_an_open_transaction_ends_the_read_and_is_reported(broker, workshop, from_kafka, position):
    topic = from_kafka("seg-open-told", "seg-open")
    done = workshop.json("ingest", topic, "--segments", broker.logs)
    stable = len(RECORDS) + 1
    assert position(topic).next_offsets == {0: stable}
    assert done["warnings"] == [
        f"partition 0: a transaction that began at offset {stable} has no end in these segments: later records were not "
        "read"
    ]


# ---- damage: the error names file and position, and nothing is appended


@pytest.mark.parametrize(
    ("which", "with_checkpoints"),
    [
        pytest.param(0, True, id="first"),
        pytest.param(1, False, id="middle, no checkpoints"),
        pytest.param(-1, True, id="active"),
        pytest.param(-1, False, id="active, no checkpoints"),
        pytest.param(0, False, id="first, no checkpoints", marks=pytest.mark.deep),
        pytest.param(1, True, id="middle", marks=pytest.mark.deep),
    ],
)
def test_a_segment_cut_inside_a_batch_is_refused_with_its_position(
    broker, from_kafka, refused, tmp_path, which, with_checkpoints
):
    copy = broker.copy("seg-transactions", tmp_path / "copy", with_checkpoints=with_checkpoints)
    file = sorted((copy / "seg-transactions-0").glob("*.log"))[which]
    at, size, _ = batches(file)[-2]
    with file.open("r+b") as segment:
        segment.truncate(at + size // 2)
    err = refused(from_kafka(f"seg-cut-{which % 9}-{int(with_checkpoints)}", "seg-transactions"), copy)
    assert f"{file}, byte {at}: " in err and "cut off" in err


def test_a_log_cut_between_two_batches_is_refused_by_the_high_watermark(broker, from_kafka, refused, tmp_path):
    copy = broker.copy("seg-transactions", tmp_path / "copy", with_checkpoints=True)
    file = sorted((copy / "seg-transactions-0").glob("*.log"))[-1]
    at, _, base = batches(file)[-1]
    with file.open("r+b") as segment:
        segment.truncate(at)
    err = refused(from_kafka("seg-cut-between", "seg-transactions"), copy)
    assert f"{file}, byte {at}: the log ends at offset {base} here" in err


@pytest.mark.parametrize("place", [5, 8, 40, 300])
def test_a_flipped_byte_in_a_header_or_record_is_refused_with_its_position(
    broker, from_kafka, refused, tmp_path, place
):
    copy = broker.copy("seg-transactions", tmp_path / "copy")
    file = sorted((copy / "seg-transactions-1").glob("*.log"))[1]
    data = bytearray(file.read_bytes())
    known = batches(file)
    number = next(n for n, (_, size, _) in enumerate(known) if n > 3 and size > 400)
    at, size, _ = known[number]
    data[at + place] ^= 0x40
    file.write_bytes(data)
    err = refused(from_kafka(f"seg-flipped-{place}", "seg-transactions"), copy)
    found = re.search(rf"{file}, byte (\d+): ", err)
    assert found and int(found[1]) in (at, at + size), err


def test_a_missing_segment_in_the_middle_is_refused_with_its_offsets(broker, from_kafka, refused, tmp_path):
    copy = broker.copy("seg-transactions", tmp_path / "copy", with_checkpoints=True)
    _, second, third, *_ = sorted((copy / "seg-transactions-0").glob("*.log"))
    second.unlink()
    err = refused(from_kafka("seg-missing", "seg-transactions"), copy)
    assert f"{third}, byte 0: offsets {int(second.stem)} to {int(third.stem) - 1} are missing before it" in err


def test_a_missing_last_segment_is_refused_by_the_high_watermark(broker, from_kafka, refused, tmp_path):
    copy = broker.copy("seg-transactions", tmp_path / "copy", with_checkpoints=True)
    *_, before, last = sorted((copy / "seg-transactions-0").glob("*.log"))
    last.unlink()
    err = refused(from_kafka("seg-missing-last", "seg-transactions"), copy)
    assert f"{before}, byte {before.stat().st_size}: the log ends at offset {int(last.stem)} here" in err


def test_damage_that_comes_while_segments_are_read_appends_nothing(
    broker, workshop, from_kafka, spark, tmp_path, monkeypatch
):
    from spark_jobs.round.intake.segment_logs import read_segments

    copy = broker.copy("seg-transactions", tmp_path / "copy")
    file = sorted((copy / "seg-transactions-0").glob("*.log"))[-1]
    topic = from_kafka("seg-damaged-meanwhile", "seg-transactions")

    def damage(step):
        if step.startswith("reading"):
            at, size, _ = batches(file)[-2]
            data = bytearray(file.read_bytes())
            data[at + size - 1] ^= 1
            file.write_bytes(data)

    with pytest.raises(CleantailError, match=rf"{file}.*nothing was appended"):
        read_segments(spark, workshop.find(topic), copy, 5, damage)
    assert workshop.run("read", topic)[1] == ""


def test_a_batch_that_unpacks_beyond_batch_max_bytes_is_refused(broker, workshop, from_kafka, refused):
    (workshop.config / "defaults.yaml").write_text('{"platform": {"limits": {"batch.max.bytes": 20000}}}')
    err = refused(from_kafka("seg-limit", "seg-packed"), broker.logs)
    assert "seg-packed-0/" in err and "batch.max.bytes under `platform: limits:`" in err


# ---- with Kafka, and with files


# test_segments_and_brokers_take_turns_from_the_tables_end copies them from a running broker; here it writes meanwhile
@pytest.mark.deep
def test_segments_of_a_running_broker_are_read_while_it_writes(kafka, workshop, landed):
    topic = workshop.topic("seg-running", source=kafka.source())
    kafka.create(topic, 2, **SMALL_SEGMENTS)
    sender, over = kafka.transactions(topic, topic), threading.Event()

    def produce():
        rng = random.Random(3)
        while not over.wait(0.05):  # many transactions for each read, without too much work for both
            records = [(b"%d" % n, rng.randbytes(5000), HEADERS) for n in range(20)]
            (sender.abort if rng.random() < 0.3 else sender.commit)(records, partition=rng.randrange(2))

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        for _ in range(4):
            code, _, err = workshop.run("ingest", topic, "--segments", kafka.broker.logs)
            assert code == 0 or (code == 4 and "was changed while it was read" in err), err
    finally:
        over.set()
        producer.join()
    ends = {p: log.end for p, log in Brokers({"bootstrap.servers": kafka.address}).describe(topic).logs.items()}
    while {log.partition: log.high_watermark for log in find_logs(kafka.broker.logs, topic).logs} != ends:
        time.sleep(0.2)  # the broker writes its checkpoint every 5 s
    workshop.ok("ingest", topic, "--segments", kafka.broker.logs)
    assert landed(topic) == kafka.consumed(topic, 2)
    assert workshop.json("ingest", topic)["records"] == 0


def test_records_beyond_the_high_watermark_are_not_ingested_and_reported(broker, workshop, landed, tmp_path):
    """A killed broker leaves such a log."""
    copy = broker.copy("seg-codecs", tmp_path / "copy", with_checkpoints=True)
    marks, seen = copy / "replication-offset-checkpoint", broker.seen["seg-codecs"]
    known = marks.read_text()
    assert f"seg-codecs 0 {len(seen)}\n" in known
    marks.write_text(known.replace(f"seg-codecs 0 {len(seen)}\n", f"seg-codecs 0 {2 * len(RECORDS)}\n"))
    topic = workshop.topic("seg-not-replicated", source={"topic": "seg-codecs"})
    done = workshop.json("ingest", topic, "--segments", copy)
    assert landed(topic) == seen[: 2 * len(RECORDS)]
    assert "00000000000000000000.log continues beyond offset 12, the broker's high watermark" in done["warnings"][0]
    marks.unlink()
    workshop.ok("ingest", topic, "--segments", copy)
    assert landed(topic) == seen


@pytest.mark.deep
def test_a_killed_brokers_replicated_records_are_ingested_and_the_others_reported(workshop, landed, tmp_path):
    with kafka_site(tmp_path) as kafka:
        kafka.create("seg-killed")
        kafka.send("seg-killed", [(b"a", b"x")] * 5)
        while find_logs(kafka.broker.logs, "seg-killed").logs[0].high_watermark != 5:
            time.sleep(0.2)
        kafka.send("seg-killed", [(b"b", b"y")] * 3)
        seen = kafka.consumed("seg-killed")
        os.kill(kafka.broker.pid, signal.SIGKILL)
    topic = workshop.topic("seg-killed")
    done = workshop.json("ingest", topic, "--segments", kafka.broker.logs)
    assert landed(topic) == seen[:5]
    assert "00000000000000000000.log continues beyond offset 5, the broker's high watermark" in done["warnings"][0]
    shutil.copytree(kafka.broker.logs / "seg-killed-0", tmp_path / "alone" / "seg-killed-0")
    workshop.ok("ingest", topic, "--segments", tmp_path / "alone")
    assert landed(topic) == seen and len(seen) == 8


def test_segments_and_brokers_take_turns_from_the_tables_end(kafka, workshop, landed, position, tmp_path):
    """The copy is made while the broker runs. Its active segment is preallocated."""
    topic = workshop.topic("seg-turns", source=kafka.source())
    kafka.create(topic, 2, preallocate="true", **SMALL_SEGMENTS)
    sender = kafka.transactions(topic, topic)

    def produce(key):
        sender.commit([(key, b"x" * 2000, HEADERS)] * 700)
        sender.abort([(key, b"aborted")], partition=1)
        kafka.send(topic, [(key, b"y")], partition=1)

    def copy(name):
        for folder in kafka.broker.logs.glob(f"{topic}-*"):
            shutil.copytree(folder, tmp_path / name / folder.name)
        return tmp_path / name

    produce(b"1")
    assert workshop.json("ingest", topic, "--segments", copy("first"))["records"] == 701
    topic_id = position(topic).topic_id
    produce(b"2")
    assert workshop.json("ingest", topic)["records"] == 701
    assert position(topic).topic_id == topic_id != ""
    produce(b"3")
    assert workshop.json("ingest", topic, "--segments", copy("second"))["records"] == 701
    assert workshop.json("ingest", topic, "--segments", tmp_path / "first")["records"] == 0
    assert workshop.json("ingest", topic)["records"] == 0
    assert landed(topic) == kafka.consumed(topic, 2) and len(landed(topic)) == 3 * 701


def test_brokers_and_segments_spell_the_id_of_a_topic_alike(kafka):
    """Ids are in base64, which has two alphabets. Among 16 ids some have a character in which the alphabets differ."""
    topics = [f"seg-id-{n}" for n in range(16)]
    for topic in topics:
        kafka.create(topic)
    brokers = Brokers({"bootstrap.servers": kafka.address})
    asked = [(t.topic_id, t.cluster_id) for t in map(brokers.describe, topics)]
    assert asked == [(f.topic_id, f.cluster_id) for f in (find_logs(kafka.broker.logs, topic) for topic in topics)]
    assert any(set("-_") & set(topic_id) for topic_id, _ in asked)


def test_on_gap_decides_over_a_gap_before_the_first_segment(broker, workshop, from_kafka, landed, tmp_path):
    copy = broker.copy("seg-transactions", tmp_path / "copy")
    first, second, *_ = sorted((copy / "seg-transactions-0").glob("*.log"))
    early = tmp_path / "early" / "seg-transactions-0"
    early.mkdir(parents=True)
    shutil.copy(first, early)
    topic = from_kafka("seg-gap", "seg-transactions", isolation="read_uncommitted")
    workshop.ok("ingest", topic, "--segments", tmp_path / "early")
    first.unlink()
    second.unlink()
    third = sorted((copy / "seg-transactions-0").glob("*.log"))[0]
    code, _, err = workshop.run("ingest", topic, "--segments", copy / "seg-transactions-0")
    gap = f"partition 0: offsets {int(second.stem)} to {int(third.stem) - 1} were deleted in Kafka"
    assert code == 2 and gap in err and "nothing was appended" in err
    kafka_source = {"bootstrap.servers": "127.0.0.1:1", "topic": "seg-transactions", "on_gap": "continue"}
    workshop.topic("seg-gap", source={"kafka": kafka_source, "isolation": "read_uncommitted"})
    done = workshop.json("ingest", topic, "--segments", copy / "seg-transactions-0")
    assert done["gaps"] == [{"partition": 0, "from_offset": int(second.stem), "to_offset": int(third.stem)}]
    kept = [r for r in broker.seen_uncommitted["seg-transactions"] if r.partition == 0]
    assert landed(topic) == [r for r in kept if not int(second.stem) <= r.offset < int(third.stem)]
    assert [row["kind"] for row in workshop.evidence(topic)] == ["gap"]


def test_segments_of_another_topic_of_the_name_are_refused(broker, workshop, kafka):
    topic = workshop.topic("seg-other-id", source=kafka.source(topic="seg-transactions"))
    kafka.create("seg-transactions", 2)
    kafka.send("seg-transactions", [(b"a", b"x")])
    workshop.ok("ingest", topic)
    code, _, err = workshop.run("ingest", topic, "--segments", broker.logs)
    assert code == 2 and "is not the topic that the table was read from" in err and "nothing was appended" in err


def test_a_topic_of_files_takes_its_history_from_segments_and_goes_on_with_files(broker, workshop, landed):
    topic = workshop.topic("seg-then-files", source={"topic": "seg-append-time"})
    seen = broker.seen["seg-append-time"]
    workshop.ok("ingest", topic, "--segments", broker.logs)
    after = [{"partition": 0, "offset": len(seen), "ts": 8, "key": "d", "payload": "x"}]
    workshop.ok("ingest", topic, "--file", workshop.file("after.jsonl", after))
    assert len(landed(topic)) == len(seen) + 1
    assert workshop.json("ingest", topic, "--segments", broker.logs)["records"] == 0


def test_one_ingestion_takes_either_files_or_segments(broker, workshop):
    topic = workshop.topic("seg-and-files")
    file = workshop.file("none.jsonl", [])
    code, _, err = workshop.run("ingest", topic, "--file", file, "--segments", broker.logs)
    assert code == 2 and "run ingest once for each" in err
    code, _, err = workshop.run("ingest", topic, "--segments", broker.logs)
    assert code == 2 and "has no folder of topic seg-and-files" in err

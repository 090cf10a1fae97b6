"""A log, or the latest records of its keys, restored into a topic of a real broker: the same records, each once."""

from __future__ import annotations

import json
import random
import time
from functools import partial

import pytest

from cleantail.errors import TargetError
from cleantail.kafka.broker_clients import Administrator
from cleantail.kafka.restore_plan import RestoreRequest, plan_restore, target_settings
from cleantail.kafka.target_client import TargetBrokers
from cleantail.sources.kcat import parse_line
from spark_jobs.restore_topic import Restore
from tests.jobs.restored import as_restored
from tests.jobs.round.test_erasure import SECRETS, erase

pytestmark = pytest.mark.integration

NOW = 1_700_000_100_000
AT = 1_600_000_000_000


def restore(workshop, kafka, topic, target, *options):
    return workshop.json("restore", topic, "--bootstrap-server", kafka.address, "--to", target, *options)


def refused(workshop, kafka, topic, target, *options):
    """The exit code and the error of a restore, in one line."""
    code, _, err = workshop.run("restore", topic, "--bootstrap-server", kafka.address, "--to", target, *options)
    return code, " ".join(err.split())


def branches(table_of, topic):
    return set(table_of(topic).load().refs().keySet()) - {"main"}


def read(workshop, topic, command="read", *options):
    """The archive's records, as the command line shows them."""
    lines = workshop.ok(command, topic, *options).splitlines()
    return [parse_line(line.encode(), "text") for line in lines]


STRANGE = [
    (b"a", b"x", [("h", b"1"), ("h", None), ("h", b""), ("\u00e9", b"\xff"), ("", b"without a name")], AT),
    (None, b"without a key", None, AT + 1),
    (b"", b"", [], AT + 2),
    (b"\xff\x00", None, None, 1),
    (None, None, None, 4_102_444_800_000),
    (b"a", None, [("h", None)], AT + 3),
    (b"no timestamp", b"x", None, -1),
    (b"before 1970", b"x", None, -5_000),
]


def test_a_log_comes_back_as_it_was(kafka, workshop, landed, table_of):
    topic = workshop.topic("restored-log", source=kafka.source(), config={"cleantail.keyless.policy": "drop"})
    kafka.create(topic, 3)
    kafka.create("restored-log-2", 3)
    kafka.send(topic, STRANGE)
    kafka.send(topic, [(b"other", b"y", None, AT)], partition=2)
    workshop.ok("ingest", topic)
    done = restore(workshop, kafka, topic, "restored-log-2")
    assert (done["written"], done["verified"], done["found"], done["mode"], done["resumed"]) == (9, 9, 0, "log", False)
    assert [(p["verified"], p["first_offset"], p["last_offset"]) for p in done["partitions"]] == [
        (8, 0, 7),
        (0, None, None),
        (1, 0, 0),
    ]
    assert kafka.consumed("restored-log-2", 3, committed=False) == as_restored(landed(topic))
    assert branches(table_of, topic) == set()


def changes(seed, partitions=3, records=900, keys=80):
    """Rounds of a changelog: a fifth of it tombstones, some of it with headers."""
    rng = random.Random(seed)
    for n in range(records):
        value = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(60))
        headers = [(rng.choice("ab"), rng.choice([None, b"", b"\xff"])) for _ in range(rng.choice([0, 0, 1, 3]))]
        yield rng.randrange(partitions), (b"k%d" % rng.randrange(keys), value, headers, AT + n)


def send_changes(kafka, topic, seed):
    by_partition = {}
    for partition, record in changes(seed):
        by_partition.setdefault(partition, []).append(record)
    for partition, records in by_partition.items():
        kafka.send(topic, records, partition)


def test_a_compacted_log_comes_back_with_its_tombstones(kafka, workshop):
    topic = workshop.topic("restored-compacted", source=kafka.source(), config={"min.cleanable.dirty.ratio": 0.0})
    kafka.create(topic, 3)
    send_changes(kafka, topic, 1)
    workshop.ok("ingest", topic)
    workshop.ok("compact", topic, "--now", NOW)
    records = read(workshop, topic)
    assert len(records) < 900 and any(r.value is None for r in records)
    kafka.create("restored-now", 3)
    assert restore(workshop, kafka, topic, "restored-now", "--log")["verified"] == len(records)
    assert kafka.consumed("restored-now", 3, committed=False) == as_restored(records)


@pytest.mark.parametrize(
    ("strategy", "config"),
    [
        # which record wins, the tasks of a round say, here too: test_case_2_keys_keep_their_last_offset_and_their_order,
        # and test_a_timestamp_far_in_the_future_does_not_win hold these two
        pytest.param("offset", {}, marks=pytest.mark.deep),
        pytest.param("timestamp", {"compaction.strategy": "timestamp"}, marks=pytest.mark.deep),
        ("header", {"compaction.strategy": "header", "compaction.strategy.header": "v"}),
    ],
)
def test_the_latest_records_are_those_that_latest_shows(kafka, workshop, strategy, config):
    topic = workshop.topic(f"restored-latest-{strategy}", {"cleantail.keyless.policy": "drop"} | config)
    rng, records = random.Random(strategy), []
    for offset in range(600):
        version = rng.randrange(100).to_bytes(8, "big").decode("latin-1")
        key = None if offset % 50 == 0 else f"k{rng.randrange(70)}"
        line = {"partition": rng.randrange(2), "offset": offset, "ts": AT + rng.randrange(1000), "key": key}
        records.append(line | {"payload": rng.choice([None, f"v{offset}", ""]), "headers": ["v", version]})
    workshop.ok("ingest", topic, "--file", workshop.file("latest.jsonl", records))
    target = f"state-by-{strategy}"
    kafka.create(target, 2, cleanup_policy="compact")
    state = read(workshop, topic, "latest")
    assert 0 < len(state) < 140 and all(r.value is not None and r.key is not None for r in state)
    done = restore(workshop, kafka, topic, target, "--latest")
    assert (done["verified"], done["mode"]) == (len(state), "latest")
    assert kafka.consumed(target, 2, committed=False) == as_restored(state)


@pytest.fixture
def erased(workshop, monkeypatch, table_of, spark):
    """A function: makes a topic whose tag `audit` has an erased key, which its current snapshot no longer has."""
    for name, text in SECRETS.items():
        monkeypatch.setenv(name, text)

    def make(topic):
        topic = workshop.topic(topic)
        keys = ["gone", "kept", "gone", "other", "gone"]
        made = [{"partition": 0, "offset": o, "ts": AT, "key": k, "payload": f"v{o}"} for o, k in enumerate(keys)]
        workshop.ok("ingest", topic, "--file", workshop.file("erased.jsonl", made))
        spark.sql(f"ALTER TABLE {table_of(topic).name} CREATE TAG `audit`")
        code, _, err = erase(workshop, monkeypatch, topic, "gone", more=("--exclude", "audit"))
        assert code == 0, err
        return topic, workshop.json("erasures", topic)["requests"][0]["request"]

    return make


def test_erased_keys_do_not_come_back_from_a_tag_until_a_person_lifts_them(kafka, workshop, erased):
    topic, request = erased("restored-erased")
    assert len(read(workshop, topic, "read", "--as-of", "audit")) == 5
    kafka.create("restored-erased-2")
    options = ("--bootstrap-server", kafka.address, "--to", "restored-erased-2", "--as-of", "audit")
    code, out, err = workshop.run("restore", topic, *options)
    assert code == 0 and "2 records, each read back" in out and "3 records of erased keys left out" in err, err
    assert [r.key for r in kafka.consumed("restored-erased-2")] == [b"kept", b"other"]
    workshop.ok("erasures", topic, "--lift", request)
    kafka.create("restored-lifted")
    done = restore(workshop, kafka, topic, "restored-lifted", "--as-of", "audit")
    assert (done["erased"], done["verified"]) == (0, 5)


def test_a_restore_does_not_continue_or_end_well_if_keys_are_erased_after_it_began(
    kafka, workshop, table_of, monkeypatch
):
    for name, text in SECRETS.items():
        monkeypatch.setenv(name, text)
    topic = workshop.topic("restored-before-erasure")
    made = [{"partition": 0, "offset": o, "ts": AT, "key": k, "payload": k} for o, k in enumerate(["gone", "kept"])]
    workshop.ok("ingest", topic, "--file", workshop.file("early.jsonl", made))
    kafka.create("restored-early")
    settings = target_settings(kafka.address, None, None, {})
    brokers, now_ms = TargetBrokers(settings), int(time.time() * 1000)
    plan = plan_restore(workshop.find(topic), RestoreRequest("restored-early", "log"), brokers, now_ms)

    def progress(step):
        if step == "reading back":
            code, out, _ = erase(workshop, monkeypatch, topic, "gone")
            assert (code, "a restore that is not finished" in out) == (1, True)

    with pytest.raises(TargetError, match="restored-early may have keys of 2"):
        Restore(table_of(topic), brokers, settings, progress).run(plan, now_ms)
    code, error = refused(workshop, kafka, topic, "restored-early")
    [request] = workshop.json("erasures", topic)["requests"]
    assert (code, request["request"] in error) == (2, True)
    [branch] = branches(table_of, topic)
    assert branch in error


def test_files_that_overlap_and_copies_of_records_come_back_in_order_and_once(kafka, workshop):
    """In batches that are no larger than the topic takes."""
    topic = workshop.topic("restored-overlap")
    lines = [{"partition": 0, "offset": o, "ts": AT, "key": f"k{o}", "payload": "x" * (o % 400)} for o in range(500)]
    for n, some in enumerate((lines[1::2], lines[0::2], lines[100:200])):
        workshop.ok("ingest", topic, "--file", workshop.file(f"{n}.jsonl", some))
    kafka.create("restored-overlap-2", 1, max_message_bytes=2_000)
    assert restore(workshop, kafka, topic, "restored-overlap-2")["verified"] == 500
    assert [r.key for r in kafka.consumed("restored-overlap-2")] == [b"k%d" % o for o in range(500)]


def test_records_that_retention_has_hidden_do_not_come_back(kafka, workshop):
    configs = {"cleanup.policy": "compact,delete", "retention.ms": 1000, "segment.bytes": 1 << 20}
    topic = workshop.topic("restored-retained", configs)
    old = [{"partition": 0, "offset": o, "ts": AT, "key": f"old{o}", "payload": "x"} for o in range(50)]
    new = [{"partition": 0, "offset": 50 + o, "ts": NOW - 10, "key": f"new{o}", "payload": "x"} for o in range(50)]
    for n, some in enumerate((old[:-1], new)):
        workshop.ok("ingest", topic, "--file", workshop.file(f"{n}.jsonl", some))
    workshop.ok("compact", topic, "--now", NOW)
    workshop.ok("ingest", topic, "--file", workshop.file("late.jsonl", old[-1:]))
    shown = read(workshop, topic)
    assert {r.key[:3] for r in shown} == {b"new"}
    kafka.create("restored-retained-2")
    assert restore(workshop, kafka, topic, "restored-retained-2")["verified"] == len(shown)
    assert kafka.consumed("restored-retained-2") == as_restored(shown)


def test_a_table_that_a_sink_fills_comes_back(kafka, adopted, workshop):
    records = [(p, o, AT + o, f"k{o % 7}", None if o % 5 == 0 else f"v{o}") for p in (0, 1) for o in range(60)]
    topic, _ = adopted("restored-sink", records)
    kafka.create("restored-sink-2", 2)
    assert restore(workshop, kafka, topic, "restored-sink-2")["verified"] == 120
    assert kafka.consumed("restored-sink-2", 2) == as_restored(read(workshop, topic))


@pytest.fixture
def archive(workshop, table_of):
    """A topic of two partitions; of all tests that ask for it the same table."""
    topic = workshop.topic("restored-small")
    if not table_of(topic).exists():
        lines = [
            {"partition": p, "offset": o, "ts": AT, "key": f"k{o}", "payload": "x"} for p in (0, 1) for o in (0, 3)
        ]
        workshop.ok("ingest", topic, "--file", workshop.file("small.jsonl", lines))
    return topic


def test_a_missing_topic_is_reported_with_the_command_that_creates_it(kafka, workshop, archive):
    code, error = refused(workshop, kafka, archive, "target-not-there")
    assert code == 2 and "there is no topic target-not-there" in error and "nothing was written" in error
    configs = dict(word.split("=") for word in error.split("--partitions 2 ")[1].split() if "=" in word)
    kafka.client.create("target-not-there", 2, configs)
    assert restore(workshop, kafka, archive, "target-not-there")["verified"] == 4


@pytest.mark.parametrize(
    ("name", "partitions", "configs", "options", "words"),
    [
        ("too-few", 1, {}, [], "too-few has 1 partition, the archive 2"),
        ("too-many", 3, {}, [], "too-many has 3 partitions, the archive 2"),
        ("append", 2, {"message_timestamp_type": "LogAppendTime"}, [], "message.timestamp.type=LogAppendTime"),
        ("compacted", 2, {"cleanup_policy": "compact"}, ["--log"], "cleanup.policy=compact"),
        ("ages", 2, {"retention_ms": 60_000}, [], "retention.ms=60000: the broker would delete the restored records"),
        (
            "young",
            2,
            {"message_timestamp_before_max_ms": 60_000},
            ["--latest"],
            "message.timestamp.before.max.ms=60000",
        ),
    ],
)
def test_a_topic_that_would_not_hold_the_records_is_refused(
    kafka, workshop, archive, table_of, name, partitions, configs, options, words
):
    kafka.create(f"refused-{name}", partitions, **configs)
    code, error = refused(workshop, kafka, archive, f"refused-{name}", *options)
    assert code == 2 and words in error and "nothing was written" in error
    assert kafka.consumed(f"refused-{name}", partitions) == []
    assert branches(table_of, archive) == set()


def test_a_topic_that_ever_had_a_record_is_refused(kafka, workshop, archive, table_of):
    kafka.create("refused-used", 2)
    kafka.send("refused-used", [(b"k", b"another's")], partition=1)
    assert (
        "refused-used is not empty: partition 1 ends at offset 1"
        in refused(workshop, kafka, archive, "refused-used")[1]
    )
    kafka.delete_below("refused-used", 1, 1)
    code, error = refused(workshop, kafka, archive, "refused-used")
    assert code == 2 and "is not empty" in error and branches(table_of, archive) == set()


def test_the_number_of_partitions_may_be_given_if_the_last_ones_are_empty(kafka, workshop, archive):
    kafka.create("empty-ends", 4)
    assert refused(workshop, kafka, archive, "empty-ends", "--partitions", 1) == (
        2,
        "error: --partitions 1 is not allowed: the archive has 2",
    )
    done = restore(workshop, kafka, archive, "empty-ends", "--partitions", 4)
    assert [p["verified"] for p in done["partitions"]] == [2, 2, 0, 0]


@pytest.mark.deep
@pytest.mark.parametrize(("name", "filled"), [("last", (0, 1)), ("all-but-one", (1,))])
def test_partitions_that_are_empty_in_kafka_count_as_the_archives(kafka, workshop, name, filled):
    """test_the_archive_of_a_topic_without_a_record_has_its_partitions holds the rule."""
    topic = workshop.topic(f"restored-empty-{name}", source=kafka.source())
    kafka.create(topic, 4)
    for partition in filled:
        kafka.send(topic, [(b"k", b"v", None, AT)], partition=partition)
    workshop.ok("ingest", topic)
    kafka.create(f"{topic}-fewer", 2)
    code, error = refused(workshop, kafka, topic, f"{topic}-fewer")
    assert code == 2 and "has 2 partitions, the archive 4" in error
    kafka.create(f"{topic}-same", 4)
    done = restore(workshop, kafka, topic, f"{topic}-same")
    assert [p["verified"] for p in done["partitions"]] == [int(p in filled) for p in range(4)]


def test_the_archive_of_a_topic_without_a_record_has_its_partitions(kafka, workshop):
    topic = workshop.topic("restored-nothing", source=kafka.source())
    kafka.create(topic, 2)
    workshop.ok("ingest", topic)
    kafka.create(f"{topic}-2", 2)
    assert [p["verified"] for p in restore(workshop, kafka, topic, f"{topic}-2")["partitions"]] == [0, 0]


def test_a_record_too_large_for_the_topic_is_reported_and_the_restore_continues_once_it_fits(kafka, workshop, table_of):
    topic = workshop.topic("restored-large")
    payloads = ["x", "y" * 200_000, "z"]
    lines = [{"partition": 0, "offset": o, "ts": AT, "key": f"k{o}", "payload": p} for o, p in enumerate(payloads)]
    workshop.ok("ingest", topic, "--file", workshop.file("large.jsonl", lines))
    kafka.create("small-batches", 1, max_message_bytes=100_000)
    code, error = refused(workshop, kafka, topic, "small-batches")
    assert code == 2 and "max.message.bytes" in error and "offset 1" in error
    assert len(branches(table_of, topic)) == 1
    kafka.client.alter("small-batches", {"max.message.bytes": 300_000})
    done = restore(workshop, kafka, topic, "small-batches")
    assert (done["resumed"], done["verified"]) == (True, 3)
    assert [r.value for r in kafka.consumed("small-batches")] == [p.encode() for p in payloads]


def test_a_login_is_read_from_a_file_and_its_missing_rights_are_reported(kafka, workshop, archive, tmp_path):
    from confluent_kafka.admin import AclOperation

    from tests.jobs.kafka_site import LOGIN, PASSWORD

    file = tmp_path / "target.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in (LOGIN | {"sasl.password": PASSWORD}).items()))
    kafka.create("guarded-target", 2)
    options = ["--bootstrap-server", kafka.login_address, "--command-config", file, "--to", "guarded-target"]
    kafka.allow("guarded-target", AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.READ)
    code, out, err = workshop.run("restore", archive, *options)
    assert code == 2 and "this login has no right to WRITE topic guarded" in err and PASSWORD not in out + err
    kafka.allow("guarded-target", AclOperation.WRITE)
    until = time.monotonic() + 30
    while "no right to WRITE" in err and time.monotonic() < until:  # rights take a moment
        code, _, err = workshop.run("restore", archive, *options)
    assert code == 0, err
    assert len(kafka.consumed("guarded-target", 2)) == 4


def test_brokers_that_do_not_answer_are_reported_and_nothing_is_written(workshop, archive, monkeypatch):
    quick = partial(Administrator, within_s=2)  # rather than 20
    monkeypatch.setattr("cleantail.kafka.target_client.Administrator", quick)
    code, _, err = workshop.run("restore", archive, "--bootstrap-server", "127.0.0.1:1", "--to", "anything")
    assert code == 4 and "do not answer" in err and "nothing was written" in err


def test_an_invalid_topic_name_is_refused(kafka, workshop, archive):
    code, error = refused(workshop, kafka, archive, "no name")
    assert code == 2 and "no name is not a topic name" in error


def test_the_report_says_which_offsets_of_the_archive_they_are(kafka, workshop, archive):
    kafka.create("told", 2)
    out = workshop.ok("restore", archive, "--bootstrap-server", kafka.address, "--to", "told")
    assert "partition 1: 2 records, 2 written now; offset 0 is the archive's 0, offset 1 its 3" in out
    assert "4 records, each read back and equal to the archive's" in out
    code, error = refused(workshop, kafka, archive, "told")  # which has ended, and is not done again
    assert code == 2 and "told is not empty" in error


@pytest.mark.deep
def test_timestamps_that_the_broker_had_set_are_counted_in_a_warning(kafka, workshop):
    """test_a_log_comes_back_as_it_was holds that each timestamp comes back."""
    topic = workshop.topic("restored-append")
    line = {"partition": 0, "offset": 0, "ts": AT, "tstype": "logappend", "key": "k", "payload": "x"}
    workshop.ok("ingest", topic, "--file", workshop.file("append.jsonl", [line]))
    kafka.create("restored-append-2")
    code, out, err = workshop.run("restore", topic, "--bootstrap-server", kafka.address, "--to", "restored-append-2")
    assert code == 0 and "1 record had a timestamp set by the broker (LogAppendTime)" in err
    assert [r.timestamp_ms for r in kafka.consumed("restored-append-2")] == [AT]


@pytest.mark.deep
def test_a_position_in_the_archive_becomes_one_in_kafka_by_counting(kafka, workshop):
    """Runs the recipe of docs/restore.md. test_a_compacted_log_comes_back_with_its_tombstones holds its rules."""
    topic = workshop.topic("restored-positions", config={"min.cleanable.dirty.ratio": 0.0})
    lines = [{"partition": 0, "offset": o, "ts": AT, "key": f"k{o % 9}", "payload": f"{o}"} for o in range(100)]
    workshop.ok("ingest", topic, "--file", workshop.file("positions.jsonl", lines))
    workshop.ok("compact", topic, "--now", NOW)
    kafka.create("restored-positions-2")
    snapshot = restore(workshop, kafka, topic, "restored-positions-2")["snapshot_id"]
    shown = [json.loads(line) for line in workshop.ok("read", topic, "--as-of", snapshot).splitlines()]
    position = 95
    in_kafka = sum(record["offset"] < position for record in shown)
    assert kafka.consumed("restored-positions-2")[in_kafka].value == b"95"

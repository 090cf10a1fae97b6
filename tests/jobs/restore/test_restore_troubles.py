"""A killed restore, and a topic into which another producer writes meanwhile: each record once, or an error."""

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
from pyspark.sql import functions as F

from cleantail.errors import CleantailError, ConflictError, RestoreMismatchError
from cleantail.kafka.restore_plan import RestoreRequest, plan_restore, target_settings
from cleantail.kafka.restore_target import pin_stem
from cleantail.kafka.target_client import TargetBrokers
from cleantail.lake.spark_settings import SMALL_RUN
from cleantail.sources.kcat import parse_line
from spark_jobs import restore_topic
from spark_jobs.iceberg.tables import branch_name, created_at_s
from spark_jobs.restore_topic import Restore
from tests.jobs.kafka_site import WITHIN_S
from tests.jobs.restored import as_restored

pytestmark = pytest.mark.integration

KILLS = int(os.environ.get("CLEANTAIL_KILLS", "2"))
RECORDS, PARTITIONS = 45_000, 2
AT = 1_600_000_000_000


@pytest.fixture(autouse=True)
def quiet(request, monkeypatch):
    """No task of a killed run still writes, except in the test that kills one."""
    if "large" not in request.fixturenames:
        monkeypatch.setattr(restore_topic, "QUIET_S", 0.1)


@pytest.fixture
def large(workshop, table_of, spark):
    """An archive that takes seconds to restore."""
    topic = workshop.topic("restored-large-archive")
    table = table_of(topic)
    if not table.exists():
        table.ensure()
        n = F.col("id")
        headers = F.expr("IF(id % 3 = 0, array(named_struct('key', 'h', 'value', X'01')), array())")
        frame = spark.range(0, RECORDS, 1, 4).select(
            (n % PARTITIONS).cast("int").alias("partition"),
            n.alias("offset"),
            F.timestamp_millis(n + AT).alias("timestamp"),
            F.lit(0).alias("timestamp_type"),
            F.concat(F.lit("k"), n.cast("string")).cast("binary").alias("key"),
            F.expr("IF(id % 7 = 0, NULL, CAST(repeat(sha2(CAST(id AS STRING), 256), 4) AS BINARY))").alias("value"),
            headers.cast("array<struct<key: string, value: binary>>").alias("headers"),
            F.expr("id % 7 = 0").alias("tombstone"),
        )
        frame.writeTo(table.name).append()
    return topic


def brokers_of(kafka):
    return TargetBrokers({"bootstrap.servers": kafka.address})


def ends(brokers, target):
    return brokers.describe(target).ends


def archived(workshop, topic):
    return as_restored(parse_line(line.encode(), "text") for line in workshop.ok("read", topic).splitlines())


def restored(workshop, topic, kafka, target):
    """What a restore says that is tried again, as a scheduler tries it, while workers of a killed driver still write."""
    until = time.monotonic() + WITHIN_S
    while True:
        code, out, err = workshop.run("restore", topic, "--bootstrap-server", kafka.address, "--to", target, "--json")
        if code != ConflictError.exit_code or time.monotonic() > until:
            assert code == 0, err
            return out
        assert "Try again when it has ended" in err


@pytest.mark.deep
def test_a_restore_that_is_killed_goes_on_until_each_record_is_there_once(kafka, workshop, large):
    """The driver alone, whose workers then end by themselves, or, as every second kill, all of them at once.

    test_a_record_too_large_for_the_topic_is_reported_and_the_restore_continues_once_it_fits holds the rule for a
    restore that ends in the middle, test_a_resumed_restore_ignores_records_that_the_archive_got_since at its end."""
    target, rng = "restored-killed", random.Random(7)
    kafka.create(target, PARTITIONS)
    spark = {"master": "local[2]", "conf": SMALL_RUN}
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": {"spark": spark}}))
    command = [sys.executable, "-m", "cleantail_cli", "restore", large, "--bootstrap-server", kafka.address]
    command += ["--to", target, "--json", "--config", str(workshop.config)]
    killed, brokers = 0, brokers_of(kafka)  # one client: it is asked often
    for number in range(KILLS):
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        goal = sum(ends(brokers, target).values()) + rng.randrange(1, RECORDS // (KILLS + 1))
        while run.poll() is None and sum(ends(brokers, target).values()) < goal:
            time.sleep(0.05)
        if run.poll() is None:
            killed += 1
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if number % 2 else os.kill)(run.pid, signal.SIGKILL)
        run.wait()
    assert killed == KILLS
    done = json.loads(restored(workshop, large, kafka, target))
    assert done["resumed"] and done["found"] > 0 and done["found"] + done["written"] == done["verified"] == RECORDS
    assert kafka.consumed(target, PARTITIONS, committed=False) == archived(workshop, large)


@pytest.fixture
def small(workshop, table_of):
    topic = workshop.topic("restored-disturbed")
    if not table_of(topic).exists():
        lines = [
            {"partition": p, "offset": o, "ts": AT, "key": f"k{o}", "payload": "x"} for p in (0, 1) for o in range(9)
        ]
        workshop.ok("ingest", topic, "--file", workshop.file("small.jsonl", lines))
    return topic


def run(kafka, workshop, table_of, topic, target, progress=lambda step: None, **request):
    """A restore as the command line does it, with a callback for each step."""
    settings = target_settings(kafka.address, None, None, {})
    brokers, _platform, now_ms = TargetBrokers(settings), workshop.platform(), int(time.time() * 1000)
    asked = RestoreRequest(target, **{"mode": "log", **request})
    plan = plan_restore(workshop.find(topic), asked, brokers, now_ms)
    return Restore(table_of(topic), brokers, settings, progress).run(plan, now_ms)


def at_step(name, do):
    return lambda step: do() if step == name else None


@pytest.mark.parametrize(
    ("step", "message"),
    [
        pytest.param("reading back", r"partition 1 has 1 record more than the archive, from offset 9 on", id="behind"),
        pytest.param(
            "writing", r"partition 1: the record at offset 0 is not the archive's of offset 0: its value", id="before"
        ),
    ],
)
def test_a_record_of_another_producer_fails_the_restore(kafka, workshop, table_of, small, step, message):
    target = f"disturbed-{step.split()[0]}"
    kafka.create(target, 2)
    intrude = at_step(step, lambda: kafka.send(target, [(b"k0", b"another's", None, AT)], partition=1))
    with pytest.raises(RestoreMismatchError, match=message) as raised:
        run(kafka, workshop, table_of, small, target, intrude)
    assert "another's" not in str(raised.value) and raised.value.exit_code == 1
    with pytest.raises(RestoreMismatchError, match=message):  # and it stays so
        run(kafka, workshop, table_of, small, target)


def test_an_aborted_transaction_of_another_producer_fails_the_restore(kafka, workshop, table_of, small):
    kafka.create("disturbed-aborted", 2)
    sender = kafka.transactions("disturbed-aborted", "disturbed")
    intrude = at_step("reading back", lambda: sender.abort([(b"k", b"x")]))
    with pytest.raises(RestoreMismatchError, match=r"partition 0 has [12] records? more|has no record at offset"):
        run(kafka, workshop, table_of, small, "disturbed-aborted", intrude)


def test_a_topic_recreated_during_a_restore_fails_it_and_the_next_one_begins_again(kafka, workshop, table_of, small):
    kafka.create("disturbed-anew", 2)
    with pytest.raises(RestoreMismatchError, match="disturbed-anew|recreated|ends at offset 0"):
        run(
            kafka,
            workshop,
            table_of,
            small,
            "disturbed-anew",
            at_step("reading back", lambda: kafka.recreate("disturbed-anew", 2)),
        )
    result = run(kafka, workshop, table_of, small, "disturbed-anew")
    assert (result.resumed, result.verified) == (False, 18)


def test_a_partition_added_during_a_restore_fails_it(kafka, workshop, table_of, small):
    kafka.create("disturbed-added", 2)
    with pytest.raises(RestoreMismatchError, match="had 2 partitions when it was restored, and has 3"):
        run(
            kafka,
            workshop,
            table_of,
            small,
            "disturbed-added",
            at_step("reading back", lambda: kafka.add_partitions("disturbed-added", 3)),
        )


def interrupted(kafka, workshop, table_of, topic, target, **request):
    """A restore that has written all, and ended before it was read back."""

    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(kafka, workshop, table_of, topic, target, at_step("reading back", stop), **request)


def test_a_resumed_restore_ignores_records_that_the_archive_got_since(kafka, workshop, table_of):
    topic = workshop.topic("restored-grown")
    line = {"partition": 0, "offset": 0, "ts": AT, "key": "k", "payload": "first"}
    workshop.ok("ingest", topic, "--file", workshop.file("1.jsonl", [line]))
    kafka.create("grown", 1)
    interrupted(kafka, workshop, table_of, topic, "grown")
    workshop.ok("ingest", topic, "--file", workshop.file("2.jsonl", [line | {"offset": 1, "payload": "second"}]))
    result = run(kafka, workshop, table_of, topic, "grown")
    counts = [(p.already_written, p.written, p.verified) for p in result.partitions]
    assert (result.resumed, counts) == (True, [(1, 0, 1)])
    assert [r.value for r in kafka.consumed("grown")] == [b"first"]


def test_another_restore_than_the_one_that_was_begun_is_refused(kafka, workshop, small, table_of):
    kafka.create("begun", 2)
    interrupted(kafka, workshop, table_of, small, "begun")
    base = ["restore", small, "--bootstrap-server", kafka.address, "--to", "begun"]
    older = table_of(small).load().refs().get("main").snapshotId()
    for options, words in (
        (["--latest"], "an unfinished restore with --log of snapshot"),
        (["--as-of", 12345], "--as-of 12345 is another snapshot"),
    ):
        code, _, err = workshop.run(*base, *options)
        assert code == 2 and words in " ".join(err.split())
    assert workshop.json(*base, "--as-of", older)["verified"] == 18


def test_the_pinned_records_stay_though_snapshots_expire(kafka, workshop, table_of):
    topic = workshop.topic("restored-expired", {"cleantail.snapshot.retention.ms": 1, "min.cleanable.dirty.ratio": 0.0})
    lines = [{"partition": 0, "offset": o, "ts": AT, "key": f"k{o % 3}", "payload": f"{o}"} for o in range(30)]
    workshop.ok("ingest", topic, "--file", workshop.file("1.jsonl", lines))
    kafka.create("expired", 1)
    interrupted(kafka, workshop, table_of, topic, "expired")
    workshop.ok("compact", topic, "--now", AT + 10_000_000)
    workshop.ok("reclaim", topic)
    assert len(workshop.read(topic)) == 3
    assert run(kafka, workshop, table_of, topic, "expired").verified == 30


def test_the_branch_of_an_abandoned_restore_is_deleted_after_a_week():
    day_s, stem = 86_400, pin_stem("cluster", "topic", "id")
    assert created_at_s(f"{stem}_1700000000000000000") == 1_700_000_000 + 6 * day_s  # others go after a day
    assert created_at_s("ct_round_u0_1700000000000000000") == 1_700_000_000


@pytest.mark.parametrize("name", ["main", "in_20240101", "ct_7", "re_x_202401011200", "audit_1700000000000000000"])
def test_a_branch_of_another_program_is_never_stale(name):
    assert created_at_s(name) == float("inf")


def test_branches_that_are_made_in_one_second_have_names_of_their_own():
    """Of the same table at the same clock two rounds have the same name and unit."""
    first, second = branch_name("ct_round_u0"), branch_name("ct_round_u0")
    assert first < second
    assert abs(created_at_s(second) - time.time()) < 60


def test_a_topic_that_grows_before_a_restore_goes_on_is_left_alone(kafka, workshop, table_of, small, monkeypatch):
    kafka.create("growing", 2)
    interrupted(kafka, workshop, table_of, small, "growing")
    monkeypatch.setattr("spark_jobs.restore_topic.time.sleep", lambda _: kafka.send("growing", [(b"k", b"x")]))
    with pytest.raises(ConflictError, match="growing: partition 0 grows"):
        run(kafka, workshop, table_of, small, "growing")


def test_two_tries_of_a_task_at_a_time_are_refused(kafka, workshop, table_of, small):
    kafka.create("speculated", 2)
    conf = {"spark.speculation": True}
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": {"spark": {"conf": conf}}}))
    with pytest.raises(CleantailError, match="spark.speculation is true: .* nothing was written"):
        run(kafka, workshop, table_of, small, "speculated")
    assert set(ends(brokers_of(kafka), "speculated").values()) == {0}

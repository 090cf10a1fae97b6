"""What the broker has forgotten: its cleaner removes deletions before they are read, and a reconciliation mends it."""

from __future__ import annotations

import json
import random
import shutil
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import AclOperation
from pyroaring import BitMap64

from cleantail.kafka import read_plan
from cleantail.log.source_position import PROPERTY_POSITION
from spark_jobs.engine import gone_keys, source_keys
from spark_jobs.iceberg.java_calls import texts
from spark_jobs.round import make, publish
from tests.jobs.engine.test_compared_readers import RULE, null_keys
from tests.jobs.kafka_site import LOGIN, PASSWORD

pytestmark = pytest.mark.integration

SOON = {"cleanup_policy": "compact", "segment_ms": 100, "delete_retention_ms": 100, "min_cleanable_dirty_ratio": 0.01}
"""A topic whose cleaner removes tombstones within a second or two."""
WITHIN_S = 90


def forget(kafka, topic, partitions=1):
    """Writes on until the broker's cleaner has removed every tombstone."""
    until = time.monotonic() + WITHIN_S
    while any(r.value is None for r in kafka.consumed(topic, partitions)):
        assert time.monotonic() < until, "the broker's cleaner has left a tombstone"
        for partition in range(partitions):
            kafka.send(topic, [(b"roll", b"x" * 100)], partition=partition)
        time.sleep(0.3)


def state_of(records):
    state = {}
    for r in sorted(records, key=lambda r: (r.partition, r.offset)):
        state[r.partition, r.key] = r.value
    return {name: value for name, value in state.items() if value is not None}


@pytest.fixture
def forgotten(kafka, workshop, position):
    """Makes a topic and its table of two partitions. The broker forgets its deletions before a run reads them."""

    def make(name):
        topic = workshop.topic(name, source=kafka.source())
        kafka.create(topic, 2, **SOON)
        for partition in (0, 1):
            kafka.send(topic, [(b"k%d" % n, b"v%d" % n) for n in range(10)], partition=partition)
        workshop.ok("ingest", topic)
        kafka.send(topic, [(b"k%d" % n, None) for n in range(4)])
        kafka.send(topic, [(b"k7", None), (b"", None)], partition=1)
        forget(kafka, topic, 2)
        kafka.send(topic, [(b"k3", b"again")])
        done = workshop.json("ingest", topic)
        assert len([w for w in done["warnings"] if "deletions may be among them" in w]) == 2
        assert [entry.partition for entry in position(topic).forgotten] == [0, 1]
        return topic

    return make


def test_a_reconciliation_removes_exactly_the_keys_gone_at_the_source_and_a_rollback_restores_them(
    kafka, workshop, landed, forgotten, monkeypatch
):
    topic = forgotten("forgotten")
    before, at_source = landed(topic), state_of(kafka.consumed(topic, 2))
    assert state_of(before).keys() - at_source.keys() == {(0, b"k0"), (0, b"k1"), (0, b"k2"), (1, b"k7")}
    told = workshop.json("reconcile", topic, "--dry-run")
    assert [(log["partition"], log["keys"], log["records"]) for log in told["partitions"]] == [(0, 3, 3), (1, 1, 1)]
    # a round that removes anything but what is gone: a key of the source goes too (of log 0), or one that is gone
    # stays (of log 1); none can have gone since the comparison
    kafka.client.alter(topic, {"delete.retention.ms": 86_400_000})
    with monkeypatch.context() as patched:
        patched.setattr(make, "compare", compared_wrongly(make.compare, {0: 10, 1: 0}))
        code, out, _ = workshop.run("reconcile", topic, "--json")
    done = json.loads(out)
    assert (code, done["published"], done["held_back"]) == (1, [], [0, 1])
    rules = {log["partition"]: {failure["expectation"] for failure in log["failures"]} for log in done["verdicts"]}
    assert rules == {0: {"missing_winners"}, 1: {"gone_at_source_left"}}
    shown = workshop.ok("status", topic)
    assert "blocked      since" in shown and "reconcile needed" in shown and landed(topic) == before
    with monkeypatch.context() as patched:  # many tasks and many buckets, as for a large log
        patched.setattr(read_plan, "RANGE_OFFSETS_MIN", 4)
        patched.setattr(source_keys, "bucket_count", lambda *_: 3)
        done = workshop.json("reconcile", topic)
    assert [m["deleted"]["gone_at_source"] for m in done["measures"]] == [3, 1]
    assert state_of(landed(topic)) == at_source
    shown = workshop.ok("status", topic)
    assert "blocked      since" not in shown and "reconcile needed" not in shown
    workshop.ok("rollback", topic, "--to", "last")
    assert landed(topic) == before and "reconcile needed" in workshop.ok("status", topic)


# the test above holds the rule; here of a round that crashes, that waits for approval, and that starts over
@pytest.mark.deep
def test_a_reconciliation_removes_all_keys_gone_at_the_source_or_none(
    kafka, workshop, landed, forgotten, monkeypatch, table_of
):
    topic = forgotten("forgotten-in-between")
    before, at_source = landed(topic), state_of(kafka.consumed(topic, 2))
    with monkeypatch.context() as patched, pytest.raises(Crash, match="before the commit"):
        patched.setattr(publish, "publish_deletes", crash)
        workshop.run("reconcile", topic)
    assert landed(topic) == before
    workshop.topic(topic, source=kafka.source(), publish="approve")
    code, _, err = workshop.run("reconcile", topic)
    assert code == 5 and f"cleantail reconcile {topic} --approve makes the round again" in err
    assert landed(topic) == before
    # keys may have gone since the first comparison: it starts over
    as_found, tries, branches = make.compare, [], {*texts(table_of(topic).load().refs())}

    def compared_too_early(*arguments):
        found = as_found(*arguments)
        tries.append(found)
        return found if len(tries) > 1 else replace(found, gone=gone_keys.GoneKeys())

    with monkeypatch.context() as patched:
        patched.setattr(make, "compare", compared_too_early)
        done = workshop.json("reconcile", topic, "--approve")
    assert (len(tries), done["ok"], done["kind"], done["published"]) == (2, True, "reconcile", [0, 1])
    assert [m["deleted"]["gone_at_source"] for m in done["measures"]] == [3, 1]
    assert state_of(landed(topic)) == at_source
    assert {*texts(table_of(topic).load().refs())} <= branches  # its first try has left none
    rows = [row for row in workshop.evidence(topic) if row["kind"] == "reconcile" and row["outcome"] == "published"]
    assert [json.loads(row["deleted"]) for row in rows] == [{"gone_at_source": 3}, {"gone_at_source": 1}]


class Crash(BaseException):
    pass


def crash(*_, **__):
    raise Crash("before the commit")


def compared_wrongly(compare, records):
    """A comparison that finds so many records gone, by log: those at the first places of each of its files."""

    def compared(*arguments):
        found = compare(*arguments)
        positions = {name: BitMap64(range(records[name[0]])).serialize() for name in found.gone.positions}
        return replace(found, gone=replace(found.gone, positions=positions))

    return compared


def test_a_reconciliation_removes_nothing_from_a_log_that_two_readers_read_differently(
    kafka, workshop, landed, misreading
):
    topic = workshop.topic("misread-and-gone", source=kafka.source())
    kafka.create(topic, 1, **SOON)
    kafka.send(topic, [(b"a", b"1"), (b"b", b"2")])
    workshop.ok("ingest", topic)
    misreading(null_keys)
    code, _, err = workshop.run("reconcile", topic)
    assert code == 1 and f"partition 0: {RULE}" in err and "sees other values of key" in " ".join(err.split())
    assert len(landed(topic)) == 2


def test_a_reconciliation_refuses_a_source_with_delete_in_its_cleanup_policy(kafka, workshop, landed):
    topic = workshop.topic("deletes-by-age", source=kafka.source())
    kafka.create(topic)
    kafka.send(topic, [(b"a", b"1")])
    workshop.ok("ingest", topic)
    for policy in ("compact,delete", "delete"):
        kafka.client.alter(topic, {"cleanup.policy": policy})
        for more in ([], ["--dry-run"]):
            code, _, err = workshop.run("reconcile", topic, *more)
            assert code == 2 and f"topic {topic} has delete in its cleanup.policy ({policy})" in err, err
    assert len(landed(topic)) == 1


def test_a_key_that_is_written_again_while_the_source_is_read_survives(kafka, workshop, landed, monkeypatch):
    topic = workshop.topic("written-meanwhile", source=kafka.source())
    kafka.create(topic, **SOON)
    kafka.send(topic, [(b"a", b"1"), (b"b", b"1")])
    workshop.ok("ingest", topic)
    read, passes = source_keys._one_pass, []

    def after_a_cleaning(*arguments):
        if not passes:
            kafka.send(topic, [(b"a", b"2")])
            until = time.monotonic() + WITHIN_S
            while (0, b"a", b"1") in {(r.offset, r.key, r.value) for r in kafka.consumed(topic)}:
                assert time.monotonic() < until, "the broker's cleaner has left the superseded record"
                kafka.send(topic, [(b"roll", b"x")])
                time.sleep(0.3)
        passes.append(arguments[2])
        return read(*arguments)

    monkeypatch.setattr(source_keys, "_one_pass", after_a_cleaning)
    told = workshop.json("reconcile", topic, "--dry-run")
    assert [log["keys"] for log in told["partitions"]] == [0]
    assert [plan.starts[0] for plan in passes[:2]] == [0, 2] and len(passes) == 2


# test_a_log_is_as_of_when_... in tests/cleantail/kafka/test_forgotten.py holds the rule; here with a broker
@pytest.mark.deep
def test_a_read_without_new_records_still_renews_the_time_that_the_table_is_as_of(kafka, workshop, position, table_of):
    topic = workshop.topic("idle", source=kafka.source())
    kafka.create(topic, **SOON | {"delete_retention_ms": 3_600_000})
    kafka.send(topic, [(b"a", b"1")])
    workshop.ok("ingest", topic)
    long_ago = replace(position(topic), as_of_ms={0: 1})
    table_of(topic).set_properties({PROPERTY_POSITION: long_ago.as_json()})
    assert workshop.json("ingest", topic)["records"] == 0
    sent = 0
    while len(kafka.consumed(topic)) >= sent:  # until the broker's cleaner has made a hole
        kafka.send(topic, [(b"a", b"2"), (b"roll", b"x")])
        sent += 2
        time.sleep(0.2)
    done = workshop.json("ingest", topic)
    assert done["records"] < sent and done["warnings"] == [] and position(topic).forgotten == ()


def test_transactions_keyless_records_and_empty_keys_are_compared_as_the_source_is_read(kafka, workshop, landed):
    topic = workshop.topic("reconciled-transactions", {"cleantail.keyless.policy": "drop"}, source=kafka.source())
    kafka.create(topic, **SOON)
    sender = kafka.transactions(topic, "reconciled-transactions")
    sender.commit([(b"a", b"1"), (b"b", b"1"), (b"", b"empty"), (b"c", b"")])
    sender.abort([(b"d", b"aborted")])
    workshop.ok("ingest", topic)
    sender.commit([(b"a", None)])
    sender.abort([(b"b", None)])
    forget(kafka, topic)
    sender.begin([(b"c", None)])
    kafka.send(topic, [(b"roll", b"behind the open one")])
    workshop.ok("ingest", topic)
    done = workshop.json("reconcile", topic)
    assert [m["deleted"] for m in done["measures"]] == [{"gone_at_source": 1}]
    assert state_of(landed(topic)) == state_of(kafka.consumed(topic))
    assert (0, b"") in state_of(landed(topic)) and (0, b"c") in state_of(landed(topic))
    sender.producer.abort_transaction(60)


def test_keys_cut_off_at_the_log_start_of_the_source_are_kept_and_counted(kafka, workshop, landed):
    topic = workshop.topic("cut-off", source=kafka.source())
    kafka.create(topic, **SOON | {"cleanup_policy": "compact,delete"})
    kafka.send(topic, [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")])
    workshop.ok("ingest", topic)
    kafka.delete_below(topic, 0, 2)
    kafka.client.alter(topic, {"cleanup.policy": "compact"})
    told = workshop.json("reconcile", topic, "--dry-run")
    assert [(log["keys"], log["cut_off_keys"]) for log in told["partitions"]] == [(0, 2)]
    assert len(landed(topic)) == 3


def test_a_login_that_may_not_see_configs_reads_by_the_yaml_and_reconciles_nothing(
    kafka, workshop, monkeypatch, landed
):
    topic = workshop.topic("no-configs", source={"kafka": {"connection": "kafka_no_configs"}})
    kafka.create(topic, **SOON)
    kafka.send(topic, [(b"a", b"1")])
    kafka.allow(topic, AclOperation.DESCRIBE, AclOperation.READ)
    extra = {**LOGIN, "bootstrap.servers": kafka.login_address, "sasl.password": PASSWORD}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_NO_CONFIGS", json.dumps({"conn_type": "kafka", "extra": extra}))
    workshop.ok("ingest", topic)
    code, _, err = workshop.run("reconcile", topic)
    assert code == 2 and "(Kafka's ACL: DescribeConfigs)" in err and len(landed(topic)) == 1


def test_a_read_warns_of_missing_deletions_that_a_delete_policy_keeps_from_being_reconciled(kafka, workshop, position):
    topic = workshop.topic("forgotten-and-deleting", source=kafka.source())
    kafka.create(topic, **SOON | {"cleanup_policy": "compact,delete"})
    kafka.send(topic, [(b"a", b"1")])
    workshop.ok("ingest", topic)
    kafka.send(topic, [(b"a", None)])
    forget(kafka, topic)
    [told] = workshop.json("ingest", topic)["warnings"]
    assert "deletions may be missing" in told and "has delete in its cleanup.policy" in told
    assert "has delete in its cleanup.policy" in position(topic).forgotten[0].hindrance


# test_a_reconciliation_removes_exactly_the_keys_gone_at_the_source_and_a_rollback_restores_them holds the rule; here
# once more with random records
@pytest.mark.parametrize("seed", [pytest.param(17, marks=pytest.mark.deep)])
def test_after_a_reconciliation_the_table_has_the_state_of_the_broker(kafka, workshop, landed, seed):
    topic = workshop.topic(f"random-{seed}", source=kafka.source())
    kafka.create(topic, 2, **SOON)
    rng = random.Random(seed)
    for phase in range(3):
        for partition in (0, 1):
            writes = [(b"%d" % rng.randrange(40), rng.choice([None, b"", b"v%d" % phase])) for _ in range(60)]
            kafka.send(topic, writes, partition=partition)
        if phase == 1:
            workshop.ok("compact", topic, "--force")
            forget(kafka, topic, 2)
        workshop.ok("ingest", topic)
    forget(kafka, topic, 2)
    assert workshop.json("reconcile", topic)["ok"]
    assert state_of(landed(topic)) == state_of(kafka.consumed(topic, 2))
    workshop.ok("compact", topic, "--force")
    workshop.ok("check", topic)
    assert state_of(landed(topic)) == state_of(kafka.consumed(topic, 2))


def test_a_topic_recreated_during_a_reconciliation_removes_nothing(kafka, workshop, landed, monkeypatch):
    topic = workshop.topic("anew-while-compared", source=kafka.source())
    kafka.create(topic, **SOON)
    kafka.send(topic, [(b"a", b"1"), (b"b", b"1")])
    workshop.ok("ingest", topic)
    nothing = SimpleNamespace(unpersist=lambda: None)
    monkeypatch.setattr(source_keys, "_one_pass", lambda *_: kafka.recreate(topic) or nothing)
    code, _, err = workshop.run("reconcile", topic)
    assert code == 2 and "was recreated while it was read" in err and "nothing removed" in err
    monkeypatch.undo()
    code, _, err = workshop.run("reconcile", topic, "--dry-run")
    assert code == 2 and "was recreated" in err and "nothing was compared, and nothing removed" in err
    assert len(landed(topic)) == 2


# test_a_deletion_may_be_missing_... in tests/cleantail/kafka/test_forgotten.py holds the rule; here after segments
@pytest.mark.deep
def test_the_lateness_of_a_read_is_unknown_after_copies_of_segments(kafka, workshop, position, tmp_path):
    topic = workshop.topic("copied-then-read", source=kafka.source())
    kafka.create(topic, **SOON)
    kafka.send(topic, [(b"k%d" % n, b"v%d" % n) for n in range(10)])
    shutil.copytree(kafka.broker.logs / f"{topic}-0", tmp_path / f"{topic}-0")
    workshop.ok("ingest", topic, "--segments", tmp_path)
    assert position(topic).forgotten == () and position(topic).as_of_ms == {}
    kafka.send(topic, [(b"k0", None)])
    forget(kafka, topic)
    kafka.client.alter(topic, {"delete.retention.ms": 7 * 86_400_000})
    # within the time that the configs give, if the copies were new
    done = workshop.json("ingest", topic)
    assert any("reconcile needed, partition 0" in warning for warning in done["warnings"])
    workshop.ok("reconcile", topic)
    assert position(topic).as_of_ms.keys() == {0}


# test_transactions_keyless_records_... has aborted records; here there are no others
@pytest.mark.deep
def test_a_reconciliation_of_a_table_without_records_removes_nothing(kafka, workshop):
    topic = workshop.topic("nothing-to-reconcile", source=kafka.source())
    kafka.create(topic, **SOON)
    workshop.ok("ingest", topic)
    assert workshop.json("reconcile", topic, "--dry-run")["partitions"] == []
    sender = kafka.transactions(topic, topic)
    sender.abort([(b"a", b"1")], 0)
    workshop.ok("ingest", topic)
    assert workshop.json("reconcile", topic)["ok"]

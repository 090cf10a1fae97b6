"""What a source still has of erased keys, and tombstones for those that are alive there."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from cleantail.erasure.erased_keys import ErasedKeys, ErasureSecret
from cleantail.errors import CleantailError
from cleantail.kafka.client_settings import settings_of_environment
from spark_jobs.round import erasure_steps
from spark_jobs.round.erasure_steps import source_state, write_tombstones
from tests.jobs.round.test_erasure import AFTER, SECRETS, Killed, after_kills, erase

ERASED = [b"alive", b"again", b"deleted", b"absent", b"both", b""]


@pytest.fixture
def of_topic(workshop, spark):
    """Returns a function: the state of a topic's source for ERASED, and the settings of its client."""

    def state(name, before=None):
        topic = workshop.find(name)
        keys = ErasedKeys.of(name, ErasureSecret(bytes(32)), pa.array(ERASED, pa.binary()))
        settings = settings_of_environment(topic.source.kafka, {}) if topic.source.kafka else None
        return source_state(spark.sparkContext, topic, settings, keys, before), topic, settings

    return state


@pytest.fixture
def filled(workshop, kafka, request):
    topic = workshop.topic(f"erased-source-{len(request.node.name)}", source=kafka.source())
    kafka.create(topic, 3)
    kafka.send(topic, [(b"alive", b"1"), (b"kept", b"2"), (b"alive", b"3"), (None, b"4")], partition=2)
    kafka.send(topic, [(b"deleted", b"5"), (b"deleted", None)], partition=0)
    kafka.send(topic, [(b"again", None), (b"again", b"6"), (b"", b"7")], partition=0)
    for partition in (0, 1):  # a producer whose partitioner was changed
        kafka.send(topic, [(b"both", b"8")], partition=partition)
    return topic


def test_the_source_state_lists_living_keys_and_counts_those_with_a_tombstone(filled, of_topic, kafka):
    state, _, _ = of_topic(filled)
    facts = dict(state.facts)
    assert facts.pop("cluster") and facts == {
        "kind": "kafka", "topic": filled, "read_to": {"0": 6, "1": 1, "2": 4}, "keys_alive": 4, "keys_with_tombstone": 1,
        "records_with_value": 7,
    }  # fmt: skip
    assert state.alive == ((0, b""), (0, b"again"), (0, b"both"), (1, b"both"), (2, b"alive"))
    assert state.problem == f"topic {filled} in Kafka has 7 records of these keys (4 keys alive)"
    assert "again" not in repr(state)


def test_tombstones_go_to_the_partitions_that_have_the_records_and_only_once(filled, of_topic, kafka):
    state, topic, settings = of_topic(filled)
    write_tombstones(topic, settings, state.alive)
    written = [(r.partition, r.key) for r in kafka.consumed(filled, 3) if r.value is None]
    assert sorted(written) == sorted([(0, b"again"), (0, b"deleted"), *state.alive])
    after, _, _ = of_topic(filled)
    assert after.alive == () and after.problem.endswith("7 records of these keys (all with a tombstone)")
    assert after.facts["keys_with_tombstone"] == 5


# test_a_certificate_has_the_state_after_its_tombstones_... reads on; here with keys that came meanwhile
@pytest.mark.deep
def test_a_state_is_read_on_from_where_an_earlier_one_ended(filled, of_topic, kafka):
    first, topic, settings = of_topic(filled)
    write_tombstones(topic, settings, first.alive)
    kafka.send(filled, [(b"again", b"9")], partition=0)
    whole, (after, _, _) = of_topic(filled)[0], of_topic(filled, first)
    assert (after.facts, after.problem, after.alive) == (whole.facts, whole.problem, ((0, b"again"),))
    assert (after.facts["keys_alive"], after.facts["keys_with_tombstone"]) == (1, 4)


def test_a_source_without_these_keys_has_no_problem(workshop, kafka, of_topic):
    topic = workshop.topic("erased-source-clean", source=kafka.source())
    kafka.create(topic)
    assert of_topic(topic)[0].problem == ""  # and no record
    kafka.send(topic, [(b"kept", b"1"), (b"deleted", None)])
    state, _, _ = of_topic(topic)
    assert state.problem == "" and state.facts["keys_with_tombstone"] == 1


def test_other_sources_are_named(workshop, sink, of_topic):
    lake = sink("erased-source-table")
    state, _, _ = of_topic(workshop.topic("erased-source-table", source={"table": lake.source}))
    assert state.facts["kind"] == "table" and "does not own" in state.problem
    assert of_topic(workshop.topic("erased-source-files"))[0].facts == {"kind": "files"}


def test_a_tombstone_that_the_brokers_refuse_is_an_error_without_its_key(workshop, kafka, of_topic):
    name = workshop.topic("erased-source-refused", source=kafka.source())
    kafka.create(name, max_message_bytes=10)
    _, topic, settings = of_topic(name)
    with pytest.raises(CleantailError, match=r"1 tombstone of 1 not written") as error:
        write_tombstones(topic, settings, [(0, b"marker")])
    assert "marker" not in str(error.value)


def test_a_certificate_has_the_state_after_its_tombstones_and_the_tombstones_do_not_come_back(
    workshop, kafka, monkeypatch
):
    for name, text in SECRETS.items():
        monkeypatch.setenv(name, text)
    topic = workshop.topic("erased-with-tombstones", source=kafka.source())
    kafka.create(topic)
    kafka.send(topic, [(b"gone", b"1"), (b"kept", b"2")])
    workshop.ok("ingest", topic)
    code, out, err = erase(workshop, monkeypatch, topic, "gone")
    assert (code, "1 key alive" in out) == (1, True), err
    # killed after the tombstone was written: the next run finds no key alive, and the certificate still has the count
    write = erasure_steps.write_tombstones

    def then_die(*arguments):
        write(*arguments)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(erasure_steps, "write_tombstones", then_die)
        workshop.run("erase", topic, "--tombstone", "--json")
    [request] = json.loads(workshop.ok("erase", topic, "--tombstone", "--json"))["requests"]
    content = json.loads(request["certificate"])["certificate"]
    state = {name: content["source"][name] for name in ("keys_alive", "keys_with_tombstone", "records_with_value")}
    assert state == {"keys_alive": 0, "keys_with_tombstone": 1, "records_with_value": 1}
    assert content["source"]["read_to"] == {"0": 3}
    assert [(of_run["alive"], of_run["partitions"]) for of_run in content["tombstones"]] == [(1, [0])]
    assert [name for name in content["exclusions"] if "all with a tombstone" in name]
    workshop.ok("ingest", topic)
    assert [r["key"] for r in workshop.read(topic)] == ["kept"]


@pytest.mark.deep
@AFTER
def test_with_a_source_in_kafka_a_run_that_is_killed_at_any_commit_is_ended_by_the_next(
    workshop, kafka, monkeypatch, after
):
    """In make test it is killed after its tombstones (the test above). test_erasure.py has it without a source in Kafka."""
    for name, text in SECRETS.items():
        monkeypatch.setenv(name, text)
    topic = workshop.topic(f"erased-killed-of-kafka-{after}".lower(), source=kafka.source())
    kafka.create(topic)
    kafka.send(topic, [(b"gone", b"1"), (b"kept", b"2"), (b"gone", b"3")])
    workshop.ok("ingest", topic)
    code, out, err = after_kills(
        monkeypatch, after, lambda: erase(workshop, monkeypatch, topic, "gone", more=("--tombstone",))
    )
    assert code == 0, err + out
    assert [r.key for r in kafka.consumed(topic) if r.value is None] == [b"gone"]  # once
    content = json.loads(json.loads(out)["requests"][0]["certificate"])["certificate"]
    assert [of_run["alive"] for of_run in content["tombstones"]] == [1]
    assert (content["source"]["keys_alive"], content["source"]["keys_with_tombstone"]) == (0, 1)
    workshop.ok("ingest", topic)
    assert [r["key"] for r in workshop.read(topic)] == ["kept"]

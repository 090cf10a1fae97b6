"""Problems between a table and its topic in Kafka are reported, and nothing is appended."""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation

from cleantail.config.alert_channels import Event
from cleantail.errors import SourceError
from cleantail.kafka.broker_clients import Administrator
from cleantail.kafka.client_settings import DEFAULTS, settings_of_environment
from cleantail.kafka.source_topic import Brokers
from cleantail.lake.evaluate import log_states, read_facts
from cleantail.log.source_position import PROPERTY_POSITION
from cleantail.watch.alarms import log_alarms
from spark_jobs.iceberg.commits import Advance, append_and_advance
from spark_jobs.round.intake.kafka_reading import BrokerLogs, TopicRead
from tests.jobs.iceberg.answers import FAULTS
from tests.jobs.kafka_site import LOGIN, PASSWORD, set_codec

pytestmark = pytest.mark.integration


@pytest.fixture
def refused(workshop):
    """A read that must fail: gives what is said on stderr."""

    def read(topic, code=2):
        exit_code, _, err = workshop.run("ingest", topic)
        assert exit_code == code, err
        assert "nothing was appended" in err and "Traceback" not in err
        return err

    return read


@pytest.fixture
def reading(workshop, spark, table_of):
    """A read of a topic as tasks do it, in which a test may meddle: at(step, what happens then)."""

    def made(topic, **meddle):
        kafka = workshop.find(topic).source.kafka
        settings = settings_of_environment(kafka, {})
        workshop.ok("ingest", topic)
        logs = BrokerLogs(workshop.find(topic), Brokers(settings, kafka.stall_timeout_ms), settings)
        read = TopicRead(table_of(topic), logs, 5)

        def progress(step):
            for word, happens in list(meddle.items()):
                if step.startswith(word):
                    del meddle[word]
                    happens()

        return lambda: read.run(progress)

    return made


def test_ingesting_a_missing_topic_creates_no_table(kafka, workshop, refused):
    topic = workshop.topic("not-there", source=kafka.source())
    assert "there is no topic not-there" in refused(topic)
    assert workshop.run("read", topic)[0] == 2


@pytest.mark.parametrize(
    "fault", [pytest.param(f, marks=() if f == "unknown after" else pytest.mark.deep) for f in FAULTS]
)
def test_a_faulty_answer_of_the_catalog_neither_loses_nor_doubles_a_record(
    kafka, workshop, spark, landed, position, fault
):
    topic = workshop.topic(f"answered-{fault.replace(' ', '-')}", source=kafka.source())
    kafka.create(topic)
    for brought, of in ((0, "first"), (2, "later")):
        kafka.send(topic, [(b"a", of.encode()), (b"b", b"y")])
        with FAULTS[fault](spark) as wrong:
            done = workshop.json("ingest", topic)
        assert wrong, "no commit went wrong"
        assert done["records"] == 2 and done["partitions"][0]["from_offset"] == brought
        assert landed(topic) == kafka.consumed(topic, 1) and position(topic).next_offsets == {0: brought + 2}
    assert workshop.json("ingest", topic)["records"] == 0


def test_brokers_that_do_not_answer_are_reported_by_their_address(workshop, refused):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        source = {"kafka": {"bootstrap.servers": address, "stall.timeout.ms": 1000}}
        topic = workshop.topic("away", source=source)
        assert f"{address}: the brokers do not answer for topic away" in refused(topic, code=4)


def test_a_login_needs_the_right_to_read_and_no_output_shows_its_password(kafka, workshop, monkeypatch, landed):
    kafka.create("guarded")
    kafka.send("guarded", [(b"a", b"x")])
    source = {"connection": "kafka_guarded"}
    topic = workshop.topic("guarded", source={"kafka": source | {"stall.timeout.ms": 3000}})

    def login(password):
        extra = {**LOGIN, "bootstrap.servers": kafka.login_address, "sasl.password": password}
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_GUARDED", json.dumps({"conn_type": "kafka", "extra": extra}))

    login("wrong-secret")
    code, out, err = workshop.run("ingest", topic)
    assert code in (2, 4) and "uthentication" in err and "secret" not in out + err
    login(PASSWORD)
    workshop.topic(topic, source={"kafka": source})
    code, out, err = workshop.run("ingest", topic)
    assert code == 2 and "topic guarded" in err and "nothing was appended" in err and "secret" not in out + err
    kafka.allow("guarded", AclOperation.DESCRIBE)
    code, out, err = workshop.run("ingest", topic)
    assert code == 2 and "may describe topic guarded but not read it" in err
    kafka.allow("guarded", AclOperation.READ)
    workshop.ok("ingest", topic)
    assert landed(topic) == kafka.consumed(topic)


def test_a_login_goes_encrypted_to_brokers_whose_certificate_is_of_the_authority_that_was_named(
    kafka, workshop, monkeypatch, landed
):
    kafka.create("encrypted")
    kafka.send("encrypted", [(b"a", b"x")])
    kafka.allow("encrypted", AclOperation.READ, AclOperation.DESCRIBE)
    source = {"connection": "kafka_tls"}
    topic = workshop.topic("encrypted", source={"kafka": source | {"stall.timeout.ms": 3000}})
    login = {**LOGIN, "security.protocol": "SASL_SSL", "sasl.password": PASSWORD}

    def connect(**more):
        extra = {**login, "bootstrap.servers": kafka.tls_address, **more}
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_TLS", json.dumps({"conn_type": "kafka", "extra": extra}))

    connect()
    code, out, err = workshop.run("ingest", topic)
    assert code == 4 and "certificate verify failed" in err and "secret" not in out + err
    connect(**{"ssl.ca.location": str(kafka.authority)})
    workshop.topic(topic, source={"kafka": source})
    workshop.ok("ingest", topic)
    assert landed(topic) == kafka.consumed(topic)


def test_a_recreated_topic_is_refused_even_if_it_has_more_records(kafka, workshop, refused, landed):
    topic = workshop.topic("anew", source=kafka.source())
    kafka.create(topic)
    kafka.send(topic, [(b"a", b"x")])
    workshop.ok("ingest", topic)
    kafka.recreate(topic)
    kafka.send(topic, [(b"b", b"y"), (b"c", b"z")])
    assert "topic anew was recreated" in refused(topic)
    assert [r.key for r in landed(topic)] == [b"a"]


def test_a_topic_of_another_cluster_is_refused_also_with_the_same_topic_id(
    kafka, workshop, refused, landed, position, table_of
):
    """As in a copy of a cluster. It is read into another table, like a recreated topic."""
    topic = workshop.topic("moved", source=kafka.source())
    kafka.create(topic)
    kafka.send(topic, [(b"a", b"x")])
    workshop.ok("ingest", topic)
    cluster_id = kafka.admin.describe_cluster().result(10).cluster_id
    assert position(topic).cluster_id == cluster_id != ""
    table_of(topic).set_properties({PROPERTY_POSITION: replace(position(topic), cluster_id="before").as_json()})
    kafka.send(topic, [(b"b", b"y")])
    said = refused(topic)
    assert (
        f"topic moved of cluster {cluster_id} is not the topic that the table was read from, moved of cluster before"
        in said
    )
    assert [r.key for r in landed(topic)] == [b"a"]


def test_a_topic_that_two_clusters_answer_for_during_a_read_is_refused(kafka, workshop, reading, landed, monkeypatch):
    topic = workshop.topic("two-clusters", source=kafka.source())
    kafka.create(topic)
    read = reading(topic, reading=lambda: monkeypatch.setattr(Administrator, "cluster_id", lambda _: "another"))
    kafka.send(topic, [(b"a", b"x")])
    with pytest.raises(SourceError, match="topic two-clusters was read from two clusters, .* and another.*nothing was"):
        read()
    assert landed(topic) == []


def test_a_topic_recreated_during_a_read_is_refused(kafka, workshop, reading, landed, position):
    topic = workshop.topic("anew-meanwhile", source=kafka.source())
    kafka.create(topic)
    read = reading(topic, reading=lambda: kafka.recreate(topic) or kafka.send(topic, [(b"z", b"z")] * 5))
    kafka.send(topic, [(b"a", b"x")] * 3)
    before = position(topic)
    with pytest.raises(Exception, match="topic anew-meanwhile was recreated.*nothing was appended"):
        read()
    assert (landed(topic), position(topic)) == ([], before)


def test_a_gap_fails_or_is_noted_in_evidence_and_alert(kafka, workshop, refused, landed, monkeypatch):
    topic = workshop.topic("gap", source=kafka.source())
    kafka.create(topic)
    kafka.send(topic, [(b"a", b"x"), (b"b", b"x")])
    workshop.ok("ingest", topic)
    kafka.send(topic, [(b"c", b"x"), (b"d", b"x"), (b"e", b"x")])
    kafka.delete_below(topic, 0, 4)
    assert "partition 0: offsets 2 to 3 were deleted in Kafka before they were read" in refused(topic)
    workshop.topic("gap", source=kafka.source(on_gap="continue"))
    done = workshop.json("ingest", topic)
    assert done["gaps"] == [{"partition": 0, "from_offset": 2, "to_offset": 4}]
    assert [r.offset for r in landed(topic)] == [0, 1, 4]
    [row] = workshop.evidence(topic)
    assert (row["kind"], row["partition"], row["first_dirty_offset"], row["end_offset"]) == ("gap", 0, 2, 4)
    facts = read_facts(workshop.find(topic))
    at_ms = facts.source.gaps[0].at_ms
    configs = workshop.find(topic).config
    told = [log_alarms(log_states(workshop.find(topic), facts, t), (), configs, t) for t in (at_ms, at_ms + 86_400_000)]
    assert [[c.event for c in conditions] for conditions in told] == [[Event.GAP], []]
    assert "offsets 2 to 3 were deleted in Kafka" in told[0][0].text
    # a gap whose row a crash has left out is in the evidence after the next read, once
    kafka.send(topic, [(b"f", b"x"), (b"g", b"x")])
    kafka.delete_below(topic, 0, 6)
    with monkeypatch.context() as crash:
        crash.setattr("spark_jobs.round.intake.kafka_reading.record_gaps", lambda *_: None)
        workshop.ok("ingest", topic)
    assert workshop.evidence(topic) == [row]
    kafka.send(topic, [(b"h", b"x")])
    workshop.ok("ingest", topic)
    told = [(row["first_dirty_offset"], row["end_offset"]) for row in workshop.evidence(topic)]
    assert told == [(2, 4), (5, 6)]


def test_added_partitions_are_followed_and_a_group_may_see_the_progress(kafka, workshop, landed):
    topic = workshop.topic("added", source=kafka.source(**{"group.id": "seen-by-tools"}))
    kafka.create(topic)
    kafka.send(topic, [(b"a", b"x")])
    workshop.ok("ingest", topic)
    kafka.add_partitions(topic, 3)
    kafka.send(topic, [(b"b", b"x"), (b"c", b"x")], partition=2)
    workshop.ok("ingest", topic)
    assert landed(topic) == kafka.consumed(topic, 3) and len(landed(topic)) == 3
    assert kafka.committed_offsets("seen-by-tools", topic, 3) == {0: 1, 1: 0, 2: 2}


def test_offsets_of_a_group_that_cleantail_did_not_commit_stay(kafka, workshop, caplog):
    from confluent_kafka import Consumer, TopicPartition

    kafka.create("billed")
    kafka.send("billed", [(b"a", b"x"), (b"b", b"x")])
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("billed", 0, 1, "x")], asynchronous=False)
    consumer.close()
    topic = workshop.topic("billed", source=kafka.source(**{"group.id": "billing"}))
    workshop.ok("ingest", topic)
    assert kafka.committed_offsets("billing", topic, 1) == {0: 1}
    assert "the group billing has offsets that Cleantail did not commit" in caplog.text
    workshop.topic("billed", source=kafka.source(**{"group.id": "its-own"}))
    for _ in range(2):
        kafka.send("billed", [(b"d", b"x")])
        workshop.ok("ingest", topic)
    assert kafka.committed_offsets("its-own", topic, 1) == {0: 4}


# test_offsets_of_a_group_that_cleantail_did_not_commit_stay holds the rule; here they are of another topic
@pytest.mark.deep
def test_offsets_of_a_group_for_another_topic_stay(kafka, workshop, caplog):
    from confluent_kafka import Consumer, TopicPartition

    kafka.create("billed-too")
    kafka.create("of-others")
    kafka.send("billed-too", [(b"a", b"x")])
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": "third"})
    consumer.commit(offsets=[TopicPartition("of-others", 0, 1)], asynchronous=False)
    consumer.close()
    workshop.ok("ingest", workshop.topic("billed-too", source=kafka.source(**{"group.id": "third"})))
    assert kafka.committed_offsets("third", "of-others", 1) == {0: 1}
    assert kafka.committed_offsets("third", "billed-too", 1) == {0: -1001}
    assert "the group third has offsets that Cleantail did not commit" in caplog.text


# test_offsets_of_a_group_that_cleantail_did_not_commit_stay holds the rule; here its application runs
@pytest.mark.deep
def test_a_group_with_members_gets_no_offset(kafka, workshop, caplog):
    from confluent_kafka import Consumer

    kafka.create("joined")
    kafka.create("waited-for")
    kafka.send("joined", [(b"a", b"x")])
    member = Consumer({"bootstrap.servers": kafka.address, "group.id": "members", "enable.auto.commit": False})
    member.subscribe(["waited-for"])
    until = time.monotonic() + 60
    while not member.assignment() and time.monotonic() < until:
        member.poll(0.2)
    try:
        workshop.ok("ingest", workshop.topic("joined", source=kafka.source(**{"group.id": "members"})))
    finally:
        member.close()
    assert "the progress was not written to the group members" in caplog.text
    assert kafka.committed_offsets("members", "joined", 1) == {0: -1001}


def test_a_record_beyond_the_fetch_size_is_named(kafka, workshop, refused):
    small = {"receive.message.max.bytes": 1_100_000, "fetch.max.bytes": 1_000_000, "fetch.message.max.bytes": 100_000}
    topic = workshop.topic("large", source=kafka.source(properties=small))
    kafka.create(topic, max_message_bytes=4_000_000)
    kafka.send(topic, [(b"a", b"x")])
    kafka.send(topic, [(b"b", os.urandom(3_000_000))], **{"message.max.bytes": 4_000_000})
    err = refused(topic)
    assert "partition 0, from offset 1 on: a record beyond the fetch size" in err and "receive.message.max.bytes" in err


def test_an_unknown_codec_is_reported_with_partition_and_offset(kafka, workshop, refused, landed):
    topic = workshop.topic("codec", source=kafka.source())
    kafka.create(topic)
    kafka.send(topic, [(b"a", b"x")], **{"compression.type": "gzip"})
    workshop.ok("ingest", topic)
    (workshop.config / "defaults.yaml").write_text("platform: {shared_sources: ['kafka:codec']}\n")
    other = workshop.topic("codec-2", source=kafka.source(topic="codec"))
    set_codec(kafka.first_segment(topic), 6)
    assert "topic codec: partition 0, offset 0: the records there" in refused(other)
    assert len(landed(topic)) == 1


def test_a_read_that_stands_still_ends_with_partition_and_offset(kafka, workshop, reading, landed):
    topic = workshop.topic(
        "stalled", source=kafka.source(**{"stall.timeout.ms": 3000, "properties": {"socket.timeout.ms": 3000}})
    )
    kafka.create(topic)
    read = reading(topic, reading=lambda: frozen.__enter__())
    kafka.send(topic, [(b"a", b"x")] * 3)
    frozen = kafka.frozen()
    try:
        with pytest.raises(
            Exception, match=r"no record of partition 0 arrived from offset 0 on within 3 s.*nothing was appended"
        ):
            read()
    finally:
        frozen.__exit__(None, None, None)
    assert landed(topic) == []


def test_two_reads_of_kafka_at_once_append_each_record_once(kafka, workshop, reading, landed, position):
    topic = workshop.topic("two-at-once", source=kafka.source())
    kafka.create(topic, 2)
    read = reading(topic, committing=lambda: workshop.ok("ingest", topic) and kafka.send(topic, [(b"late", b"x")]))
    kafka.send(topic, [(b"a", b"x")] * 30)
    kafka.send(topic, [(b"b", b"x")] * 20, partition=1)
    portions = read()
    assert sum(portion.records for portion in portions) == 0
    workshop.ok("ingest", topic)
    assert landed(topic) == kafka.consumed(topic, 2) and len(landed(topic)) == 51


def test_a_commit_whose_answer_was_lost_is_not_done_twice_nor_onto_another_position(
    kafka, workshop, table_of, position, landed
):
    topic = workshop.topic("answer-lost", source=kafka.source())
    kafka.create(topic)
    kafka.send(topic, [(b"a", b"x")])
    workshop.ok("ingest", topic)
    table, now = table_of(topic), position(topic).as_json()
    files = list(table.load().currentSnapshot().addedDataFiles(table.load().io()))
    with pytest.raises(Exception, match="another ingestion into .* was faster"):
        append_and_advance(table, files, Advance(None, "{}", {}))
    assert len(landed(topic)) == 1 and table.load().properties().get(PROPERTY_POSITION) == now


def test_files_may_precede_a_read_of_kafka_but_not_bring_later_offsets(kafka, workshop, landed, table_of):
    topic = workshop.topic("files-first", source=kafka.source())
    kafka.create(topic)
    kafka.send(topic, [(b"a", b"x", None, 5), (b"b", b"x", None, 6), (b"c", b"x", None, 7)])
    lines = [{"partition": 0, "offset": n, "ts": 5 + n, "key": k, "payload": "x"} for n, k in enumerate("ab")]
    workshop.ok("ingest", topic, "--file", workshop.file("first.jsonl", lines))
    assert workshop.json("ingest", topic)["partitions"] == [{"partition": 0, "from_offset": 2, "to_offset": 3}]
    assert landed(topic) == kafka.consumed(topic)
    data = Path(str(table_of(topic).load().location()).removeprefix("file:")) / "data"
    files, refs = {*data.rglob("*")}, {*table_of(topic).load().refs()}
    beyond = [{"partition": 0, "offset": 3, "ts": 8, "key": "d", "payload": "x"}]
    code, _, err = workshop.run("ingest", topic, "--file", workshop.file("beyond.jsonl", beyond))
    assert code == 2 and "would come a second time; nothing was appended" in err
    assert {*data.rglob("*")} == files and {*table_of(topic).load().refs()} == refs == {"main"}


def test_files_that_come_while_a_first_read_is_under_way_are_not_read_a_second_time(kafka, workshop, table_of, landed):
    topic = workshop.topic("files-meanwhile", source=kafka.source())
    kafka.create(topic)
    kafka.send(topic, [(b"a", b"x", None, 5), (b"b", b"x", None, 6), (b"c", b"x", None, 7)])
    table_of(topic).ensure()
    lines = [{"partition": 0, "offset": n, "ts": 5 + n, "key": k, "payload": "x"} for n, k in enumerate("ab")]
    file = workshop.file("meanwhile.jsonl", lines)
    settings, came = {**DEFAULTS, "bootstrap.servers": kafka.address}, []

    def progress(step):
        if step == "committing" and not came:
            came.append(workshop.ok("ingest", topic, "--file", file))

    source = BrokerLogs(workshop.find(topic), Brokers(settings), settings)
    portions = TopicRead(table_of(topic), source, 5).run(progress)
    assert [portion.records for portion in portions] == [1]
    assert landed(topic) == kafka.consumed(topic)


def test_a_read_is_taken_back_with_its_position_the_newest_first(kafka, workshop, landed, position):
    topic = workshop.topic("taken-back-kafka", source=kafka.source())
    kafka.create(topic)
    for key in (b"a", b"b"):
        kafka.send(topic, [(key, b"x")])
        workshop.ok("ingest", topic)
    dry = workshop.ok("rollback", topic, "--ingestion", "last", "--dry-run")
    assert (
        "offsets from Kafka, by partition 0: 1 to 1" in dry and "not now: the topic was read further from Kafka" in dry
    )
    workshop.ok("rollback", topic, "--ingestion", "last")
    assert (position(topic).next_offsets, [r.key for r in landed(topic)]) == ({0: 1}, [b"a"])
    workshop.ok("rollback", topic, "--ingestion", "last")
    assert (position(topic), landed(topic)) == (None, [])
    workshop.ok("ingest", topic)
    assert landed(topic) == kafka.consumed(topic)


def test_without_files_a_topic_without_a_source_in_kafka_says_what_to_give(workshop):
    topic = workshop.topic("no-source")
    code, _, err = workshop.run("ingest", topic)
    assert code == 2 and "add one of them, or give files" in err


@pytest.mark.parametrize(("limit", "headers"), [(1000, 1001), (3, 4)], ids=["by-default", "as-the-platform-says"])
def test_a_record_with_more_headers_than_the_limit_is_refused_by_its_offset(kafka, workshop, refused, limit, headers):
    if limit != 1000:
        text = {"platform": {"limits": {"record.max.headers": limit}}}
        (workshop.config / "defaults.yaml").write_text(json.dumps(text))
    topic = workshop.topic(f"kafka-headers-{headers}", source=kafka.source())
    kafka.create(topic)
    kafka.send(topic, [(b"a", b"x"), (b"a", b"y", [("h", b"1")] * headers)])
    told = refused(topic)
    assert f"partition 0, offset 1: the record has {headers} headers, and at most {limit} are allowed" in told
    assert "record.max.headers" in told

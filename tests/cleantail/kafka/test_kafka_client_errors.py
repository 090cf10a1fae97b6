"""What a client of Kafka says of its settings, and never of their values."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError

from cleantail.errors import CleantailError, SourceError
from cleantail.kafka.broker_clients import Complaint, passes, without_values
from cleantail.kafka.read_plan import Range
from cleantail.kafka.source_topic import Brokers, Deadline, RangeReader
from cleantail.kafka.target_client import TargetBrokers, lasting, problem
from cleantail.kafka.target_log import TargetLog

HERE = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"security.protocol": "hunter2"}, 'Invalid value "…" for configuration property "security.protocol"'),
        ({"socket.timeout.ms": "hunter2"}, 'Invalid value for configuration property "socket.timeout.ms"'),
        ({"no.such": "hunter2"}, 'No such configuration property: "no.such"'),
        ({"security.protocol": "SSL", "ssl.ca.location": "/no/hunter2.pem"}, "ssl.ca.location failed"),
    ],
    ids=["value", "number", "name", "file"],
)
def test_a_setting_that_is_not_taken_is_named_without_its_value(settings, says):
    given = HERE | settings
    clients = (
        lambda: Brokers(given),
        lambda: RangeReader(given, "t", "read_committed", 1),
        lambda: TargetBrokers(given),
        lambda: TargetLog(given, "t", 0),
    )
    for client in clients:
        with pytest.raises(CleantailError, match="a setting of the Kafka client is wrong") as caught:
            client()
        assert says in str(caught.value) and "hunter2" not in str(caught.value)


def test_what_librdkafka_says_later_is_shown_without_values_as_well():
    settings = HERE | {"sasl.password": "hunter2", "sasl.username": "hunter22", "client.id": "me"}
    assert without_values("login hunter22 by hunter2 of me at 127.0.0.1:1\nmore", settings) == (
        "login … by … of me at 127.0.0.1:1"
    )
    text = "Failed to acquire SASL OAUTHBEARER token: Unrecognized sasl.oauthbearer.config beginning at: nter2"
    assert without_values(text, settings) == "sasl.oauthbearer.config cannot be parsed"


def test_a_restore_shows_no_values_of_what_brokers_say():
    settings = HERE | {"sasl.password": "hunter2", "sasl.username": "hunter22"}
    for code in (KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.INVALID_RECORD, KafkaError._TRANSPORT):
        error = KafkaError(code, "login hunter22 with hunter2 failed")
        said = [str(problem("here", "t", error, settings)), str(lasting("here", "t", error, settings))]
        complaint = Complaint(settings)
        complaint.note(error)
        assert all("hunter2" not in text for text in (*said, complaint.text)) and "login … with … failed" in said[0]


def test_that_no_broker_is_there_does_not_hide_why():
    complaint = Complaint(HERE)
    assert complaint.text == ""
    complaint.note(KafkaError(KafkaError._TRANSPORT, "connection refused"))
    complaint.note(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert complaint.text == "connection refused"


def test_what_a_broker_says_while_it_comes_up_again_is_asked_again():
    coming_up = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.LEADER_NOT_AVAILABLE)
    assert all(passes(KafkaError(code)) for code in coming_up)
    assert not any(
        passes(KafkaError(code)) for code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.INVALID_RECORD)
    )


def test_a_read_for_which_others_wait_ends_in_time_whatever_the_brokers_do():
    settings = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    reader = RangeReader(settings, "t", "read_committed", stall_ms=3_600_000, deadline=Deadline.after(1))
    with pytest.raises(SourceError, match=r"partition 3 was read up to offset 5 within 1 ms, .*ingest\.max\.ms"):
        list(reader.batches(Range(3, 5, 9)))
    reader.close()


def test_tasks_of_one_read_share_its_time_whenever_they_begin():
    """Also a task whose host has a clock that is behind has no more than the whole of it."""
    over, behind = Deadline(60_000, int(time.time() * 1000) - 1), Deadline(1, int(time.time() * 1000) + 3_600_000)
    for deadline in (over, behind):
        reader = RangeReader({"bootstrap.servers": "127.0.0.1:1"}, "t", "read_committed", 3_600_000, deadline)
        time.sleep(0.002)
        with pytest.raises(SourceError, match=r"up to offset 5 within \d+ ms, .*ingest\.max\.ms"):
            next(reader.batches(Range(3, 5, 9)))
        reader.close()

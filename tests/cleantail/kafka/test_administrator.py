"""A broker's answer that may change is requested again. A final answer and silence are reported as such."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError, KafkaException

from cleantail.errors import CleantailError
from cleantail.kafka.broker_clients import PAUSE_S, Administrator
from cleantail.kafka.target_client import KNOWN_WITHIN_S, TargetBrokers

NOBODY = {"bootstrap.servers": "127.0.0.1:1"}
COMING_UP = KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
UNKNOWN = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
REFUSED = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))


@pytest.fixture
def slept(monkeypatch):
    """The pauses. Only they move the clock."""
    seconds = []
    monkeypatch.setattr(time, "sleep", seconds.append)
    monkeypatch.setattr(time, "monotonic", lambda: sum(seconds))
    return seconds


def asking(*answers):
    """What asks, and gets these answers one after another, the last one for ever."""
    left = list(answers)

    def ask(*_):
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def problem(error):
    return CleantailError("refused") if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED else None


def silence(why):
    return CleantailError(f"silence: {why}")


def test_brokers_that_come_up_are_asked_again(slept):
    assert Administrator(NOBODY).answer(asking(COMING_UP, COMING_UP, "here"), problem, silence) == "here"
    assert slept == [PAUSE_S] * 2


def test_an_answer_that_stays_the_same_is_an_error_at_once(slept):
    with pytest.raises(CleantailError, match="^refused$"):
        Administrator(NOBODY).answer(asking(COMING_UP, REFUSED), problem, silence)
    assert slept == [PAUSE_S]


def test_brokers_that_do_not_come_up_in_time_are_silent(slept):
    with pytest.raises(CleantailError, match="^silence: "):
        Administrator(NOBODY, within_s=1).answer(asking(COMING_UP), problem, silence)
    assert sum(slept) == pytest.approx(1, abs=PAUSE_S)


def test_silence_is_not_waited_for_twice(slept):
    with pytest.raises(CleantailError, match="^silence: "):
        Administrator(NOBODY).answer(asking(TimeoutError()), problem, silence)
    assert slept == []


def test_a_topic_that_was_made_just_now_is_waited_for(slept, monkeypatch):
    brokers = TargetBrokers(NOBODY)
    monkeypatch.setattr(brokers, "_ask", asking(UNKNOWN, UNKNOWN, "there"))
    assert brokers.describe("orders") == "there"
    assert slept == [PAUSE_S] * 2


def test_describe_returns_none_if_no_broker_knows_the_topic_in_time(slept, monkeypatch):
    brokers = TargetBrokers(NOBODY)
    monkeypatch.setattr(brokers, "_ask", asking(UNKNOWN))
    assert brokers.describe("orders") is None
    assert sum(slept) == pytest.approx(KNOWN_WITHIN_S, abs=PAUSE_S)

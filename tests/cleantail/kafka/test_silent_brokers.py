"""Brokers that have answered nothing are waited for once a minute, by each login."""

import pytest

from cleantail.errors import SilentBrokersError, SourceUnreachableError
from cleantail.kafka.broker_clients import REMEMBERED_S, SilentBrokers

ADDRESS = {"bootstrap.servers": "broker:9092"}


class Clock:
    now_s = 100.0


def ask(silent, error=None, settings=ADDRESS, timeout_ms=20_000):
    """Whether the brokers were asked at all; what was raised instead of an answer."""
    asked = False
    try:
        with silent.asked(settings, timeout_ms):
            asked = True
            if error is not None:
                raise error
    except SourceUnreachableError as raised:
        return asked, str(raised)
    return asked, None


def test_brokers_that_answered_nothing_are_not_asked_again_within_a_minute():
    silent = SilentBrokers(lambda: Clock.now_s)
    assert ask(silent, SilentBrokersError("nobody answers for topic orders")) == (
        True,
        "nobody answers for topic orders",
    )
    at_once = (False, "broker:9092: the brokers did not answer within the last minute; nothing was appended")
    assert ask(silent) == at_once
    Clock.now_s += REMEMBERED_S - 1
    assert ask(silent) == at_once
    Clock.now_s += 1
    assert ask(silent) == (True, None)


@pytest.mark.parametrize(
    "other", [{"settings": {**ADDRESS, "sasl.username": "b"}}, {"timeout_ms": 1_000}], ids=["login", "wait"]
)
def test_silent_brokers_are_asked_again_for_another_login_or_a_longer_wait(other):
    silent = SilentBrokers(lambda: Clock.now_s)
    ask(silent, SilentBrokersError("silence"))
    assert ask(silent, **other) == (True, None)


def test_brokers_that_answer_with_an_error_are_asked_again():
    silent = SilentBrokers(lambda: Clock.now_s)
    assert ask(silent, SourceUnreachableError("one partition has no leader"))[0]
    assert ask(silent) == (True, None)

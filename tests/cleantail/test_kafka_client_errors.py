"""What a client of Kafka says of its settings, and never of their values."""

from __future__ import annotations

import pytest

from cleantail.errors import CleantailError
from cleantail.kafka.broker_topic import Brokers, without_values
from cleantail.kafka.range_reader import RangeReader

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
    for client in (lambda: Brokers(HERE | settings), lambda: RangeReader(HERE | settings, "t", "read_committed", 1)):
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

"""Holds what librdkafka says, in words that show no setting's value, and whether it is worth asking again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from cleantail.config.topic_source import ADDRESS, TUNING
from cleantail.errors import CleantailError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

SHORTEST_MASKED = 3
"""A shorter value is no secret, and may be part of any word."""
_SHOWN = TUNING | {ADDRESS, "log_level"}
"""Settings whose values are no secrets."""


Headers = Sequence[tuple[str, Any]]
_headers_of = methodcaller("headers")


def headers_of(message: Message) -> Headers | None:
    """Returns the headers of a record; None if the name of one is not UTF-8. Call it once for a message.

    For such a name the client answers with a list that has holes, and leaves its error pending. `methodcaller` raises
    that at once; a call of the method by its name may not, and the process dies of a hole. A second answer has the
    holes, too. The client cuts a name at its first NUL, and does not say so.
    """
    try:
        headers: Headers = _headers_of(message) or ()
    except (UnicodeDecodeError, SystemError):
        return None
    return headers


class Complaint:
    """Keeps what a client's connections last complained of: its `error_cb` is `note`."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self.error: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """Keeps the error, but not one that says no more than that no broker is there."""
        from confluent_kafka import KafkaError as Codes

        if self.error is None or error.code() != Codes._ALL_BROKERS_DOWN:
            self.error = error

    @property
    def text(self) -> str:
        """Returns what it is, without values of settings; empty where there was none."""
        return without_values(self.error.str(), self._settings) if self.error else ""


def passes(error: KafkaError) -> bool:
    """Returns whether brokers give another answer in a moment, as while they choose a leader or come up again."""
    from confluent_kafka import KafkaError as Codes

    return error.retriable() or error.code() in (
        Codes.NOT_LEADER_FOR_PARTITION,
        Codes.LEADER_NOT_AVAILABLE,
        Codes.FENCED_LEADER_EPOCH,
        Codes.UNKNOWN_LEADER_EPOCH,
        Codes.BROKER_NOT_AVAILABLE,
        Codes.KAFKA_STORAGE_ERROR,
        Codes.REPLICA_NOT_AVAILABLE,
        Codes.REQUEST_TIMED_OUT,
        Codes.NETWORK_EXCEPTION,
        Codes._TRANSPORT,
        Codes._TIMED_OUT,
        Codes._ALL_BROKERS_DOWN,
    )


def wrong_setting(error: Exception, settings: Mapping[str, str]) -> CleantailError:
    """Returns the error for a setting that librdkafka does not take, without its value."""
    cause = error.args[0] if error.args else error
    text = cause.str() if hasattr(cause, "str") else str(cause)
    return CleantailError(f"a setting of the Kafka client is wrong: {without_values(text, settings)}")


def without_values(text: str, settings: Mapping[str, str]) -> str:
    """Returns the first line of what librdkafka says, without a setting's value, which may be a secret: it may quote
    the whole of one, and of `sasl.oauthbearer.config` its end."""
    line = text.partition("\n")[0]
    if "oauthbearer.config" in line:
        return "sasl.oauthbearer.config cannot be parsed"
    values = (value for name, value in settings.items() if name not in _SHOWN and len(value) >= SHORTEST_MASKED)
    for value in sorted(values, key=len, reverse=True):
        line = line.replace(value, "…")
    return line

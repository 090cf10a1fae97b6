"""What brokers and librdkafka say, as errors of a restore: those that stay, and those that pass."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cleantail.errors import CleantailError, TargetError, TargetUnreachableError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

AGAIN = "the same command goes on where it stopped"
_VALUE = re.compile(r'Invalid value ".*" for')


def lasting(where: str, topic: str, error: KafkaError) -> TargetError | None:
    """Returns the error for an answer that stays the same when it is asked for again; None where it is none."""
    from confluent_kafka import KafkaError as Codes

    texts = {
        Codes.TOPIC_AUTHORIZATION_FAILED: f"this login may not do this with topic {topic} (Kafka's ACL: Read, Write, "
        "Describe, DescribeConfigs)",
        Codes.TOPIC_EXCEPTION: f"{topic} is no name of a topic in Kafka: 1 to 249 of the characters a-z A-Z 0-9 . _ -",
        Codes.CLUSTER_AUTHORIZATION_FAILED: f"this login may not do this with topic {topic}, or with the cluster "
        "(Kafka's ACL: Write on the topic)",
        Codes.SASL_AUTHENTICATION_FAILED: f"the login was refused: {error.str()}",
        Codes._AUTHENTICATION: f"the login was refused: {error.str()}",
        Codes.UNSUPPORTED_VERSION: "the brokers are too old: topic ids need Kafka 2.8 or newer",
        Codes._UNSUPPORTED_FEATURE: "the brokers are too old: topic ids need Kafka 2.8 or newer",
        Codes.MSG_SIZE_TOO_LARGE: "a record is larger than the topic takes: raise its max.message.bytes (and "
        "replica.fetch.max.bytes of the brokers); then the same command goes on",
        Codes.INVALID_TIMESTAMP: "the broker refuses a timestamp: message.timestamp.before.max.ms and "
        "message.timestamp.after.max.ms of the topic",
        Codes.INVALID_RECORD: f"the broker refuses a record: {error.str()}",
        Codes.POLICY_VIOLATION: f"the broker refuses a record: {error.str()}",
    }
    text = texts.get(error.code())
    return TargetError(f"{where}: {text}") if text else None


def passes(error: KafkaError) -> bool:
    """Returns whether brokers give another answer in a moment, as while they choose a leader."""
    from confluent_kafka import KafkaError as Codes

    return error.retriable() or error.code() in (
        Codes.NOT_LEADER_FOR_PARTITION,
        Codes.LEADER_NOT_AVAILABLE,
        Codes.REPLICA_NOT_AVAILABLE,
        Codes.REQUEST_TIMED_OUT,
        Codes.NETWORK_EXCEPTION,
        Codes._TRANSPORT,
        Codes._TIMED_OUT,
        Codes._ALL_BROKERS_DOWN,
    )


def problem(where: str, topic: str, error: KafkaError) -> CleantailError:
    """Returns the error for what ended a restore."""
    return lasting(where, topic, error) or TargetUnreachableError(f"{where}: {error.str()}; {AGAIN}")


def wrong_setting(error: Exception) -> CleantailError:
    """Returns the error for a setting that librdkafka refuses, without its value, which may be a secret."""
    cause = error.args[0] if error.args else error
    text = cause.str() if hasattr(cause, "str") else str(cause)
    text = _VALUE.sub("an invalid value for", text.splitlines()[0])
    return CleantailError(f"a setting of the Kafka client is wrong: {text}")

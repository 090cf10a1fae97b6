"""Holds what brokers and librdkafka say, as errors of a restore, without values of settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cleantail.errors import CleantailError, TargetError, TargetUnreachableError
from cleantail.kafka.client_messages import without_values

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

AGAIN = "the same command goes on where it stopped"


def lasting(where: str, topic: str, error: KafkaError, settings: Mapping[str, str]) -> TargetError | None:
    """Returns the error for an answer that stays the same when it is asked for again; None where it is none."""
    from confluent_kafka import KafkaError as Codes

    said = without_values(error.str(), settings)
    texts = {
        Codes.TOPIC_AUTHORIZATION_FAILED: f"this login may not do this with topic {topic} (Kafka's ACL: Read, Write, "
        "Describe, DescribeConfigs)",
        Codes.TOPIC_EXCEPTION: f"{topic} is no name of a topic in Kafka: 1 to 249 of the characters a-z A-Z 0-9 . _ -",
        Codes.CLUSTER_AUTHORIZATION_FAILED: f"this login may not do this with topic {topic}, or with the cluster "
        "(Kafka's ACL: Write on the topic)",
        Codes.SASL_AUTHENTICATION_FAILED: f"the login was refused: {said}",
        Codes._AUTHENTICATION: f"the login was refused: {said}",
        Codes.UNSUPPORTED_VERSION: "the brokers are too old: topic ids need Kafka 2.8 or newer",
        Codes._UNSUPPORTED_FEATURE: "the brokers are too old: topic ids need Kafka 2.8 or newer",
        Codes.MSG_SIZE_TOO_LARGE: "a record is larger than the topic takes: raise its max.message.bytes (and "
        "replica.fetch.max.bytes of the brokers); then the same command goes on",
        Codes.INVALID_TIMESTAMP: "the broker refuses a timestamp: message.timestamp.before.max.ms and "
        "message.timestamp.after.max.ms of the topic",
        Codes.INVALID_RECORD: f"the broker refuses a record: {said}",
        Codes.POLICY_VIOLATION: f"the broker refuses a record: {said}",
    }
    text = texts.get(error.code())
    return TargetError(f"{where}: {text}") if text else None


def problem(where: str, topic: str, error: KafkaError, settings: Mapping[str, str]) -> CleantailError:
    """Returns the error for what ended a restore."""
    said = without_values(error.str(), settings)
    return lasting(where, topic, error, settings) or TargetUnreachableError(f"{where}: {said}; {AGAIN}")

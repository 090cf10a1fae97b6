"""Says what the clients of a restore are given: librdkafka's settings. Nothing of them is shown. Pure.

Producer, consumer and administrator of a restore have the same settings, each without those that it does not know. What
makes a restore exact is not theirs to say, and is left out of what was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cleantail.kafka.administrator import OF_CONSUMERS

OF_PRODUCERS = frozenset(
    {
        "batch.num.messages",
        "batch.size",
        "compression.codec",
        "compression.level",
        "compression.type",
        "linger.ms",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queue.buffering.max.ms",
        "sticky.partitioning.linger.ms",
    }
)
OURS = frozenset(
    {
        "acks",
        "auto.offset.reset",
        "delivery.report.only.error",
        "delivery.timeout.ms",
        "dr_cb",
        "dr_msg_cb",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "isolation.level",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "message.max.bytes",
        "message.send.max.retries",
        "message.timeout.ms",
        "on_delivery",
        "partition.assignment.strategy",
        "partitioner",
        "queuing.strategy",
        "request.required.acks",
        "retries",
        "transactional.id",
        "transaction.timeout.ms",
    }
)
"""Decided by how a restore works."""
TIMEOUT_MS = 60_000
"""So long a client waits for brokers that do not answer, before the restore ends with an error."""
BATCH_BYTES, QUEUE_KBYTES, LINGER_MS = 1_000_000, 65_536, 20
"""A batch that is sent, what waits to be sent, and how long a batch waits to become full. The queue bounds what a task
holds."""
FEWEST_MESSAGE_BYTES, MOST_MESSAGE_BYTES = 1000, 1_000_000_000
"""What librdkafka takes for message.max.bytes."""
GROUP = "cleantail-restore"
"""A consumer has to have the name of a group; nothing is committed for it."""


def administrator(settings: Mapping[str, str]) -> dict[str, Any]:
    """Returns the settings of a client that asks."""
    return _without(settings, OURS | OF_CONSUMERS | OF_PRODUCERS)


def consumer(settings: Mapping[str, str]) -> dict[str, Any]:
    """Returns the settings of a client that reads everything back, also what was not committed."""
    return _without(settings, OURS | OF_PRODUCERS) | {
        "group.id": GROUP,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": "read_uncommitted",
    }


def producer(settings: Mapping[str, str], max_message_bytes: int) -> dict[str, Any]:
    """Returns the settings of a client that writes each record once, in its order. `max_message_bytes`: the topic's
    max.message.bytes, beyond which it takes no batch."""
    bytes_ = min(max(max_message_bytes, FEWEST_MESSAGE_BYTES), MOST_MESSAGE_BYTES)
    tuned = {
        "batch.size": min(BATCH_BYTES, bytes_),
        "linger.ms": LINGER_MS,
        "queue.buffering.max.kbytes": QUEUE_KBYTES,
    }
    allowed = _without(settings, OURS | OF_CONSUMERS)
    if int(allowed.get("batch.size", 0)) > bytes_:
        del allowed["batch.size"]
    return {
        **tuned,
        **allowed,
        "enable.idempotence": True,
        "acks": "all",
        "max.in.flight.requests.per.connection": 5,
        "message.max.bytes": bytes_,
        "message.timeout.ms": TIMEOUT_MS,
        "delivery.report.only.error": True,
    }


def _without(settings: Mapping[str, str], names: frozenset[str]) -> dict[str, Any]:
    return {"log_level": "2", **{name: value for name, value in settings.items() if name not in names}}

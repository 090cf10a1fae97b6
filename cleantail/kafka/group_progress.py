"""Adapter: tells a consumer group how far the table was read, for tools that show lag by group. It decides nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from cleantail.config.topic import Topic

logger = logging.getLogger("cleantail.kafka")

ANSWERED_WITHIN_S = 10


def tell_group(settings: Mapping[str, str], topic: Topic, next_offsets: Mapping[int, int]) -> None:
    """Commits the offsets for source.kafka.group.id, if there is one. A failure is a warning: the table has them."""
    group = topic.source.kafka.group_id if topic.source.kafka else None
    if not group:
        return
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    offsets = [TopicPartition(topic.kafka_topic, p, offset) for p, offset in sorted(next_offsets.items())]
    consumer = Consumer({**settings, "group.id": group, "enable.auto.commit": False})
    try:
        consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as e:
        logger.warning("the progress was not written to the group %s: %s", group, e.args[0])
    finally:
        consumer.close()

"""Adapter: tells a consumer group how far the table was read, for tools that show lag by group. It decides nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, OutsideError
from cleantail.kafka.broker_clients import Administrator

logger = logging.getLogger("cleantail.kafka")

ANSWERED_WITHIN_S = 10


OURS = "cleantail "
"""What the metadata of each offset begins with that Cleantail commits; then comes the topic."""


def tell_group(settings: Mapping[str, str], topic: Topic, next_offsets: Mapping[int, int]) -> None:
    """Commit the offsets for source.kafka.group.id, if there is one. A failure is a warning: the table has them.

    A group that has an offset of any topic without the metadata of Cleantail is another application's. It gets none:
    that application would skip records. The brokers refuse an offset for a group that has members.
    """
    group = topic.source.kafka.group_id if topic.source.kafka else None
    if not group:
        return
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    name, mark = topic.kafka_topic, f"{OURS}{topic.topic}"
    consumer = Consumer({**settings, "group.id": group, "enable.auto.commit": False})
    try:
        admin = Administrator(settings, ANSWERED_WITHIN_S)
        logs = admin.answer(lambda: admin.logs_of(group), lambda _: None, OutsideError)
        there = consumer.committed([TopicPartition(log.topic, log.partition) for log in logs], ANSWERED_WITHIN_S)
        if any(one.offset >= 0 and not (one.metadata or "").startswith(OURS) for one in there):
            logger.warning(
                "the group %s has offsets that Cleantail did not commit: they stay as they are, and the progress is "
                "not written. Name a group of its own in source.kafka.group.id",
                group,
            )
            return
        offsets = [TopicPartition(name, p, offset, mark) for p, offset in sorted(next_offsets.items())]
        consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as e:
        logger.warning("the progress was not written to the group %s: %s", group, e.args[0])
    except CleantailError as e:
        logger.warning("the progress was not written to the group %s: %s", group, e)
    finally:
        consumer.close()

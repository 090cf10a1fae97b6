"""The way of each topic through the demonstration. The topics run side by side; the pool bounds their Spark tasks.

1. The first batch lands (as a file, or as transactions in Kafka); a round ingests, compacts, checks and publishes it.
2. The second batch lands. One topic has a damaged round first: it is red, and nothing is published.
3. A round ingests (or has already) and compacts the second batch, expires the first one's tombstones, and heals.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial

from cleantail.config.platform import Platform
from demo.corrupted import CorruptedRound, run_corrupted
from demo.home import Home
from demo.inputs import SENSORS, Expected
from demo.kafka_topic import KafkaTopic
from demo.records import TopicInput, land
from demo.rounds import Round, Scheduler

CORRUPTED = SENSORS


@dataclass(frozen=True, slots=True)
class TopicResult:
    """Describes a topic that went the whole way. Of the topic in Kafka is expected what a consumer saw in the end."""

    expected: Expected
    rounds: tuple[Round, ...]
    corrupted: CorruptedRound | None


def run_topics(
    scheduler: Scheduler, home: Home, platform: Platform, inputs: Sequence[Expected], kafka: KafkaTopic
) -> list[TopicResult]:
    """Runs all topics at once, and returns their results. Raises the first error; the others then give up."""
    scheduler.wait_for([*(expected.input.topic for expected in inputs), f"{CORRUPTED}-corrupted"])
    with ThreadPoolExecutor(len(inputs)) as threads:
        try:
            futures = [threads.submit(_topic, scheduler, home, platform, expected, kafka) for expected in inputs]
            wait(futures, return_when=FIRST_EXCEPTION)
            errors = [error for future in futures if future.done() and (error := future.exception())]
            if errors:
                raise errors[0]
            return [future.result() for future in futures]
        finally:
            scheduler.stop()


def _topic(scheduler: Scheduler, home: Home, platform: Platform, expected: Expected, kafka: KafkaTopic) -> TopicResult:
    topic = expected.input
    in_kafka = topic.topic == kafka.topic
    bring = kafka.send if in_kafka else partial(_land, home, topic)
    bring(0)
    first = scheduler.run_green(topic.topic, "round 1")
    bring(1)
    corrupted = run_corrupted(scheduler, home, platform, topic) if topic.topic == CORRUPTED else None
    second = scheduler.run_green(topic.topic, "round 2")
    return TopicResult(kafka.as_consumed() if in_kafka else expected, (first, second), corrupted)


def _land(home: Home, topic: TopicInput, batch: int) -> None:
    if topic.batches[batch]:
        file = home.path / "landing" / topic.topic / f"batch-{batch + 1}.jsonl.gz"
        land(topic.topic, topic.batches[batch], file)

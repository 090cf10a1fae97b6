"""Take the topics through the demonstration. One topic has its own DAG. The others share the DAG of a group.

The DAGs run side by side. The pool bounds their Spark tasks.

1. The first batches arrive (as files, or as transactions in Kafka). A round ingests, compacts, checks and publishes
   them.
2. The second batches arrive. The topic with its own DAG has a damaged round first, which fails its check and is not
   published.
3. A round ingests and compacts the second batch, expires tombstones of the first batch, and unblocks the partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from cleantail.config.platform import Platform
from demo.corrupted import CorruptedRound, run_corrupted
from demo.home import Home
from demo.inputs import SENSORS, Expected
from demo.kafka_topic import KafkaTopic
from demo.records import TopicInput, land
from demo.rounds import Round, Scheduler

CORRUPTED = SENSORS
GROUP = "changelogs"
"""The DAG of all topics but CORRUPTED."""


@dataclass(frozen=True, slots=True)
class TopicResult:
    """The results of a topic. For the topic in Kafka, `expected` has the records that a consumer reads at the end."""

    expected: Expected
    rounds: tuple[Round, ...]
    corrupted: CorruptedRound | None


def run_topics(
    scheduler: Scheduler, home: Home, platform: Platform, inputs: Sequence[Expected], kafka: KafkaTopic
) -> list[TopicResult]:
    """Run all topics, and return their results in the order of `inputs`. Raises the first error after the other topics
    have ended."""
    scheduler.wait_for([GROUP, CORRUPTED, f"{CORRUPTED}-corrupted"])
    [alone] = [expected for expected in inputs if expected.input.topic == CORRUPTED]
    grouped = [expected for expected in inputs if expected is not alone]
    with ThreadPoolExecutor(2) as threads:
        try:
            ways: list[Future[list[TopicResult]]] = [
                threads.submit(_group, scheduler, home, grouped, kafka),
                threads.submit(_alone, scheduler, home, platform, alone),
            ]
            wait(ways, return_when=FIRST_EXCEPTION)
            errors = [error for way in ways if way.done() and (error := way.exception())]
            if errors:
                raise errors[0]
            results = {result.expected.input.topic: result for way in ways for result in way.result()}
            return [results[expected.input.topic] for expected in inputs]
        finally:
            scheduler.stop()


def _alone(scheduler: Scheduler, home: Home, platform: Platform, expected: Expected) -> list[TopicResult]:
    topic = expected.input
    _land(home, topic, 0)
    first = scheduler.run_green(topic.topic, "round 1")
    _land(home, topic, 1)
    corrupted = run_corrupted(scheduler, home, platform, topic)
    second = scheduler.run_green(topic.topic, "round 2")
    return [TopicResult(expected, (first, second), corrupted)]


def _group(scheduler: Scheduler, home: Home, topics: Sequence[Expected], kafka: KafkaTopic) -> list[TopicResult]:
    rounds = []
    for batch in (0, 1):
        for expected in topics:
            if expected.input.topic == kafka.topic:
                kafka.send(batch)
            else:
                _land(home, expected.input, batch)
        rounds.append(scheduler.run_green(GROUP, f"round {batch + 1}"))
    seen = {kafka.topic: kafka.as_consumed()}
    return [TopicResult(seen.get(expected.input.topic, expected), tuple(rounds), None) for expected in topics]


def _land(home: Home, topic: TopicInput, batch: int) -> None:
    if topic.batches[batch]:
        file = home.path / "landing" / topic.topic / f"batch-{batch + 1}.jsonl.gz"
        land(topic.topic, topic.batches[batch], file)

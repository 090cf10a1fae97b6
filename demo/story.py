"""The way of each topic through the demonstration; the topics go side by side, the pool bounds their Spark tasks.

1. The first batch lands; a round ingests, compacts, checks and publishes it.
2. The second batch lands. One topic has a round with a damage in it first: red, nothing published.
3. A round ingests (or has already) and compacts the second batch, expires the first one's tombstones, and heals.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass

from cleantail.config.platform import Platform
from demo.corrupted import CorruptedRound, run_corrupted
from demo.home import Home
from demo.inputs import SENSORS, Expected
from demo.records import TopicInput, land
from demo.rounds import Round, Scheduler

CORRUPTED = SENSORS


@dataclass(frozen=True, slots=True)
class Told:
    """A topic that went the whole way."""

    expected: Expected
    rounds: tuple[Round, ...]
    corrupted: CorruptedRound | None


def tell(scheduler: Scheduler, home: Home, platform: Platform, inputs: Sequence[Expected]) -> list[Told]:
    """All topics at once. Raises the first error; the others then give up."""
    scheduler.wait_for([*(expected.given.topic for expected in inputs), f"{CORRUPTED}-corrupted"])
    with ThreadPoolExecutor(len(inputs)) as threads:
        try:
            futures = [threads.submit(_topic, scheduler, home, platform, expected) for expected in inputs]
            wait(futures, return_when=FIRST_EXCEPTION)
            errors = [error for future in futures if future.done() and (error := future.exception())]
            if errors:
                raise errors[0]
            return [future.result() for future in futures]
        finally:
            scheduler.stop()


def _topic(scheduler: Scheduler, home: Home, platform: Platform, expected: Expected) -> Told:
    given = expected.given
    _land(home, given, 0)
    first = scheduler.run_green(given.topic, "round 1")
    _land(home, given, 1)
    corrupted = run_corrupted(scheduler, home, platform, given) if given.topic == CORRUPTED else None
    second = scheduler.run_green(given.topic, "round 2")
    return Told(expected, (first, second), corrupted)


def _land(home: Home, given: TopicInput, batch: int) -> None:
    if given.batches[batch]:
        file = home.path / "landing" / given.topic / f"batch-{batch + 1}.jsonl.gz"
        land(given.topic, given.batches[batch], file)

"""The evaluation of a group's topics alone, as in the task `evaluate`: new input, and due work."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass

from benchmarks.harness.lake import Lake
from cleantail.config.loading import load_platform, scan_topics
from cleantail.config.topic import Topic
from cleantail.intake import Poll, feed_of
from cleantail.kafka.client_settings import settings_of_topic
from cleantail.lake.evaluate import evaluate_topic
from cleantail.lake.facts_cache import FactsCache
from cleantail.rounds.run_plan import due_topic


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Two evaluations of all topics in one fresh process. `peak_mib`: its peak memory. `begun_mib`: its memory before
    the first topic."""

    cold_s: float
    warm_s: float
    due: int
    begun_mib: int
    peak_mib: int


def evaluate_twice(lake: Lake) -> Evaluated:
    """Evaluate all topics of the lake's configuration twice. Call it in a fresh process."""
    os.environ["CLEANTAIL_HOME"] = str(lake.home)
    begun = _peak_mib()
    times = []
    for _ in range(2):
        began = time.perf_counter()
        due = _evaluate(lake)
        times.append(time.perf_counter() - began)
    return Evaluated(times[0], times[1], due, begun, _peak_mib())


def _evaluate(lake: Lake) -> int:
    """Return the number of due topics. Keep only the few facts that packing needs."""
    platform, now_ms, due = load_platform(lake.config), int(time.time() * 1000), 0
    kept = FactsCache(platform)
    for _, topic in scan_topics(lake.config):
        assert isinstance(topic, Topic), topic
        new = feed_of(topic).new_input(Poll(topic, settings_of_topic, now_ms, kept))
        plan = evaluate_topic(topic, now_ms=now_ms, kept=kept)
        due += due_topic(plan, new, topic.config) is not None
    return due


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

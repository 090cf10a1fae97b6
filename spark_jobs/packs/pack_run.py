"""The rounds of many topics in one Spark application, each topic by the one loop of a round (spark_jobs.round.run).

1. A topic is evaluated when its turn comes. So a pack that is run again after a crash finds nothing due where it has
   published already, and goes on with the rest.
2. What is wrong with one topic (its YAML, its table, its records, another writer) is its own outcome: the next topic
   goes on. Where the application itself is gone nothing goes on, and the pack fails as a whole.
3. A topic whose rounds may wait for a person is passed over: nobody else waits with it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from cleantail.config.loading import find_topic
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.lake.catalogs import require_usable
from cleantail.lake.foreign_errors import explained, stack_of
from cleantail.lake.runs.evaluate import evaluate_topic
from cleantail.rounds.approval import can_be_held
from cleantail.rounds.checked.round_results import RunResult
from cleantail.rounds.pack_results import NOTHING_DUE, PASSED_OVER, PackResult, TopicOutcome
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.round_kinds import write_back
from spark_jobs.round.run import Run, compact_round, expire_round

logger = logging.getLogger("cleantail.packs")


def run_pack(spark: SparkSession, platform: Platform, topics: Iterable[str], now_ms: int) -> PackResult:
    """Does the due rounds of these topics, in their order. Raises only what ends the application."""
    return PackResult.of(tuple(_outcome(spark, platform, topic, now_ms) for topic in topics))


def _outcome(spark: SparkSession, platform: Platform, name: str, now_ms: int) -> TopicOutcome:
    try:
        outcome = _run_topic(spark, platform, find_topic(name, platform.config_dir, os.environ), now_ms)
    except CleantailError as e:
        logger.error("%s: %s", name, e)
        return TopicOutcome(name, ok=False, error=str(e))
    except Py4JNetworkError:  # the JVM is gone, and with it the application
        raise
    except Exception as e:
        error = explained(e)  # without what may quote a record
        logger.error("%s: %s\n%s", name, error or "a defect of Cleantail", stack_of(e))
        return TopicOutcome(name, ok=False, error=str(error or f"a defect of Cleantail: {type(e).__name__}"))
    logger.info("%s: published %s, held back %s", name, list(outcome.published), list(outcome.held_back))
    return outcome


def _run_topic(spark: SparkSession, platform: Platform, topic: Topic, now_ms: int) -> TopicOutcome:
    """Does the rounds of one topic. A pause of a quarantine counts, since no person has called the run."""
    if can_be_held(topic):
        return TopicOutcome(topic.topic, reason=PASSED_OVER)
    require_usable(topic, platform, os.environ)
    plan = evaluate_topic(topic, platform, now_ms=now_ms)
    if not (plan.due or plan.repairs):
        return TopicOutcome(topic.topic, reason=NOTHING_DUE)
    run = Run(TopicTable.of(spark, topic, platform), platform)
    write_back(run.table, plan)
    compacted = compact_round(run, plan)
    expired = expire_round(run, now_ms, [p for p in plan.sweep if p not in compacted.held_back], plan.fresh_from)
    run.table.drop_stale_branches()
    return TopicOutcome.of_run(topic.topic, RunResult(compacted.ok and expired.ok, compacted, expired))

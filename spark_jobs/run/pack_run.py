"""Do the due work of many topics in one Spark application, each topic by its own stations (topic_run).

1. Topics are processed in batches, in their order. Some topics of a batch run in parallel, because a single topic
   seldom keeps all cores busy. Their rounds are checked at once, and one commit appends all their rows to the
   evidence.
2. A topic is evaluated when its turn comes. If a pack runs again after a crash, topics that are already published
   have nothing due, and the pack continues with the rest.
3. An error of one topic (its YAML, its table, its records, another writer) is that topic's outcome, and the other
   topics continue. If the application itself is lost, the pack fails as a whole.
4. The outcome of each topic is stored at each change (cleantail.rounds.pack_results), and added to the outcome of an
   earlier try. Topics that were in progress when the try ended are retried last, one at a time.
5. A topic whose rounds may wait for a person is skipped, so that no other topic waits with it.
6. If a topic's own check does not end, it is cancelled, but keeps its cores (evaluation). Then the pack publishes the
   rounds that need no core, and ends the application with an error. The next try continues with the other topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession

from cleantail.config.loading import find_topics
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import ConfigError
from cleantail.human import be, counted
from cleantail.kafka.broker_clients import SilentBrokers
from cleantail.log.task_shares import one_of, parallelism
from cleantail.rounds.pack_results import PASSED_OVER, PackOutcomes, PackRequest, PackResult
from cleantail.rounds.stations import EVALUATE, TopicOutcome
from spark_jobs.iceberg.session import make_active
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.quality.time_limit import IN_PACKS_MS, LostCoresError
from spark_jobs.round.evidence import append_left
from spark_jobs.run.next_try import record_publications
from spark_jobs.run.topic_batch import run_batch
from spark_jobs.run.topic_run import Settings, TopicRun

NO_CLIENTS: Mapping[str, Settings] = {}
SIDE_BY_SIDE = 4
"""Maximum number of topics that run in parallel. The number of cores is another limit, because each topic takes time of
the driver."""
BATCH = 20
"""Number of topics that are checked together. Larger batches delay publication by more than they save."""


def run_pack(
    spark: SparkSession, platform: Platform, request: PackRequest, clients: Mapping[str, Settings] = NO_CLIENTS
) -> PackResult:
    """Do the due work of these topics, in their order. `clients`: topic -> settings of its Kafka client. Raises only
    errors that end the application."""
    outcomes = PackOutcomes(platform.home, request.outcomes)
    configured = find_topics(request.topics, platform.config_dir)
    append_left(platform)
    for outcome in outcomes.published_last(BATCH):
        if isinstance(topic := configured.get(outcome.topic), Topic):
            record_publications(TopicTable.of(spark, topic), request.now_ms)
    most, silent = min(parallelism(platform.spark), SIDE_BY_SIDE), SilentBrokers()
    shared = _for_several(platform) if len(request.topics) > 1 else platform
    # the same threads until the end, because each creates its own Great Expectations context, and a thread in the JVM
    with ThreadPoolExecutor(most, thread_name_prefix="topic", initializer=make_active, initargs=(spark,)) as pool:
        batches = outcomes.batches(request.topics, BATCH)
        for number, names in enumerate(batches):
            threads = min(most, len(names))
            of_each = shared.model_copy(update={"spark": one_of(platform.spark, threads)})
            topics = [
                TopicRun(
                    spark, topic.on(of_each), request, clients.get(name), outcomes.begun, outcomes.died_at(name), silent
                )
                for name in names
                if (topic := _to_do(name, configured[name], outcomes)) is not None
            ]
            left = run_batch(shared, topics, outcomes, pool if threads > 1 else None)
            if left is not None and (left := left + sum(map(len, batches[number + 1 :]))):
                raise LostCoresError(
                    "a stopped check keeps its cores until this application ends: "
                    f"{counted(left, 'topic')} {be(left)} left to its next try"
                )
    return PackResult.of(outcomes[name] for name in request.topics)


def _for_several(platform: Platform) -> Platform:
    """Return the platform with less time for a topic's own checks, because other topics wait for them."""
    limits = platform.limits
    checks_max_ms = min(limits.checks_max_ms, IN_PACKS_MS)
    return platform.model_copy(update={"limits": limits.model_copy(update={"checks_max_ms": checks_max_ms})})


def _to_do(name: str, topic: Topic | ConfigError, outcomes: PackOutcomes) -> Topic | None:
    """Return the topic. For a wrong YAML, or rounds that may wait for a person, record the outcome: None."""
    if isinstance(topic, ConfigError):
        outcomes.ended(TopicOutcome(name).failed_at(EVALUATE, str(topic), topic.exit_code))
        return None
    if topic.waits_for_people:
        outcomes.ended(TopicOutcome(name, reason=PASSED_OVER))
        return None
    return topic

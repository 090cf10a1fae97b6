"""Send metrics of tasks through Airflow's stats to StatsD, Datadog or OpenTelemetry, as Airflow's [metrics] configures.

Names are `<prefix>.cleantail.<metric>`, with topic and partition as tags. Plain StatsD has no tags: topic and partition
are appended to the name (`airflow.cleantail.max-dirty-percent.orders`). Dots in a topic's name become two underscores.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from cleantail.config.topic import Topic
from cleantail.rounds.checked_round import RoundResult
from cleantail.rounds.job_report import EndedJob
from cleantail.rounds.station_results import ReclaimResult
from cleantail.rounds.stations import BY_NAME, RECLAIM, STATIONS, TopicOutcome
from cleantail.watch.log_metrics import job_samples, log_samples
from cleantail.watch.metrics import TIME_SINCE_LAST_RUN, Sample

if TYPE_CHECKING:
    from cleantail.rounds.run_plan import EvaluatedTopic


try:
    from airflow.sdk.configuration import conf
    from airflow.sdk.observability import stats
except ImportError:  # until Airflow 3.1
    from airflow.configuration import conf
    from airflow.stats import Stats as stats  # type: ignore[no-redef]


PREFIX = "cleantail"

logger = logging.getLogger(__name__)


def send_plan(topic: Topic, run: EvaluatedTopic) -> None:
    _send(lambda: [s for s in log_samples(topic.topic, run.logs, topic.config, run.now_ms) if s.metric.sent_by])


def send_since_last_run(topics: Iterable[str], ti: Any) -> None:
    """Send the time between the starts of the previous run of these topics' DAG and of this run.

    A first run has no previous run, and neither has a run without a logical date. For these nothing is sent.
    """

    def samples() -> list[Sample]:
        this, last = ti.get_template_context()["dag_run"], ti.get_previous_dagrun()
        if not (last and last.start_date):
            return []
        since_ms = max(int((this.start_date - last.start_date).total_seconds() * 1000), 0)
        return [Sample(TIME_SINCE_LAST_RUN, (topic,), since_ms) for topic in topics]

    _send(samples)


def send_result(topic: str, ended: EndedJob) -> None:
    _send(lambda: job_samples(ended.job, topic, ended.report))


def send_outcome(outcome: TopicOutcome, earlier: TopicOutcome | None = None) -> None:
    """Send the metrics of one topic of a pack, without those that an `earlier` try has sent.

    Gauges of the last compaction are only at /metrics, because the table stores them.
    """
    for job, result in _station_results(outcome, earlier or TopicOutcome(outcome.topic)):
        _send(partial(job_samples, job, outcome.topic, result))


def _station_results(outcome: TopicOutcome, sent: TopicOutcome) -> Iterator[tuple[str, RoundResult | ReclaimResult]]:
    for name, result in outcome.rounds.items():
        if result != sent.rounds.get(name):
            of_kind = (station for station in STATIONS if station.kind == BY_NAME[name].kind)
            yield from ((station.name, result) for station in of_kind if station.checks or station.publishes)
    if outcome.reclaimed is not None and outcome.reclaimed != sent.reclaimed:
        yield RECLAIM, outcome.reclaimed


def _send(samples: Callable[[], Iterable[Sample]]) -> None:
    """Send the samples. An error is logged and never fails the task."""
    try:
        names_only = _names_only()
        for sample in samples():
            _send_one(sample, names_only)
    except Exception as error:
        logger.warning("metrics were not sent: %s: %s", type(error).__name__, error)


def _send_one(sample: Sample, names_only: bool) -> None:
    name, tags = f"{PREFIX}.{sample.metric.name}", dict(zip(sample.metric.labels, sample.labels, strict=True))
    if names_only:
        name, tags = ".".join([name, *(label.replace(".", "__") for label in sample.labels)]), {}
    if sample.metric.kind == "counter":
        stats.incr(name, int(sample.value), tags=tags)
    else:
        stats.gauge(name, sample.value, tags=tags)


def _names_only() -> bool:
    """Return whether the backend is StatsD without tags of InfluxDB or Datadog, checked in Airflow's order."""
    if conf.getboolean("metrics", "statsd_datadog_enabled", fallback=False):
        return False
    plain = conf.getboolean("metrics", "statsd_on", fallback=False)
    return plain and not conf.getboolean("metrics", "statsd_influxdb_enabled", fallback=False)

"""Exposes the metrics in Prometheus' text format, or in OpenMetrics where the scraper asks for it.

Each scrape computes them from YAML and table metadata, through the summaries of the page. No counter lives in the
process, so a restarted or second API server says the same.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from airflow.api.common.airflow_health import UNHEALTHY, get_airflow_health
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from sqlalchemy import func, select

from cleantail.config.topic import by_topic
from cleantail.watch.metrics import DEAD_THREADS, TIME_SINCE_LAST_RUN, Metric, Sample, by_metric
from cleantail_airflow.metrics.scrape_samples import samples_of
from cleantail_airflow.page.page_content import Content
from cleantail_airflow.page.topic_dags import approvals_of, dags_of

COMPONENTS = ("scheduler", "triggerer", "dag_processor")
_FAMILIES = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}


def exposition(content: Content, readable: Collection[str], accept: str) -> tuple[bytes, str]:
    """Returns body and content type for the topics that the scraper may see.

    Raises CleantailError as the page does.
    """
    now_ms, configured = int(time.time() * 1000), content.configured
    runs = {topic: configured.dag_ids[topic] for topic in readable}
    waiting, states = approvals_of(configured, runs), dags_of(configured, runs)
    of_topics = samples_of(content, runs, now_ms, waiting, states)
    last_ms = by_topic(last_runs_ms(set(runs.values())), runs)
    samples = [*of_topics, *_since_last_run(last_ms, now_ms), _dead()]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(samples))
    encoder, content_type = choose_encoder(accept)
    return encoder(registry), content_type


class _Samples:
    """Hands the samples to prometheus_client, which escapes the labels."""

    def __init__(self, samples: Collection[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Any]:
        for metric, samples in by_metric(self._samples):
            yield _family(metric, samples)


def _family(metric: Metric, samples: Collection[Sample]) -> Any:
    family = _FAMILIES[metric.kind](metric.exposed, metric.meaning, labels=metric.labels)
    for sample in samples:
        family.add_metric(sample.labels, sample.value)
    return family


def _since_last_run(last_ms: Mapping[str, int], now_ms: int) -> Iterator[Sample]:
    for name, began_ms in sorted(last_ms.items()):
        yield Sample(TIME_SINCE_LAST_RUN, (name,), max(now_ms - began_ms, 0))


def _dead() -> Sample:
    """Counts the components that Airflow calls unhealthy; one that never was there has no status, and is not dead."""
    health = get_airflow_health()
    return Sample(DEAD_THREADS, (), sum(health[name]["status"] == UNHEALTHY for name in COMPONENTS))


def last_runs_ms(dag_ids: Collection[str]) -> dict[str, int]:
    """Asks the scheduler's database when each DAG last began a run (Unix ms)."""
    began = func.max(DagRun.start_date)
    query = select(DagRun.dag_id, began).where(DagRun.dag_id.in_(list(dag_ids))).group_by(DagRun.dag_id)
    with create_session() as session:
        return {dag_id: int(at.timestamp() * 1000) for dag_id, at in session.execute(query) if at is not None}

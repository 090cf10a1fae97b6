"""The endpoint /metrics: check the scraper's token or login, and return the metrics for Prometheus.

The format is Prometheus' text, or OpenMetrics if the scraper accepts it. Each scrape computes the metrics from YAML and
table metadata. The process stores no counters, so a restarted or second API server returns the same values.

Users of Airflow see the topics that they may read. The bearer of the token in the API server's environment variable
CLEANTAIL_METRICS_TOKEN sees all topics. This token gives access only to the metrics. It exists because Airflow's own
tokens expire after a day.
"""

from __future__ import annotations

import hmac
import os
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Annotated, Any

from airflow.api.common.airflow_health import UNHEALTHY, get_airflow_health
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import bearer_scheme, get_user
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from sqlalchemy import func, select

from cleantail.config.topic import Topic, by_topic
from cleantail.home.driver_process import TOKEN_VARIABLE
from cleantail.watch.dag_state import DagState
from cleantail.watch.log_metrics import (
    compaction_samples,
    erasure_samples,
    lag_samples,
    log_samples,
    saved_samples,
    stored_samples,
    total_samples,
)
from cleantail.watch.metrics import (
    DEAD_THREADS,
    LAST_RUN_FAILED,
    TIME_SINCE_LAST_RUN,
    TOPICS,
    UP,
    Sample,
    by_metric,
)
from cleantail.watch.observed_table import TableSummary
from cleantail.watch.topic_states import State
from cleantail_airflow.outcomes.dag_states import approvals_of, dags_of
from cleantail_airflow.page.page_content import PageContent
from cleantail_airflow.page.page_values import row_of


async def scraper(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer_scheme)]
) -> BaseUser | None:
    """Return the user, or None for the bearer of the token. Raises HTTPException 401 or 403."""
    if credentials is not None and is_token(credentials.credentials, os.environ):
        return None
    return await get_user(request, None, credentials)


def is_token(credentials: str, env: Mapping[str, str]) -> bool:
    """Compare the credentials with the token in constant time. An empty variable is not a token."""
    token = env.get(TOKEN_VARIABLE, "").strip()
    return bool(token) and hmac.compare_digest(credentials.encode(), token.encode())


Scraper = Annotated[BaseUser | None, Depends(scraper)]
SCRAPER = Depends(scraper)


TABLES_WITHIN_S = 2.0
EVIDENCE_WITHIN_S = 2.0
"""Maximum wait of a scrape for the evidence. Values that are not read in this time are absent. Prometheus' default
timeout is ten seconds."""
DOWN = (State.BROKEN, State.UNREADABLE)


def samples_of(
    content: PageContent,
    readable: Collection[str],
    now_ms: int,
    approval_tasks: Mapping[str, str],
    dags: Mapping[str, DagState],
) -> list[Sample]:
    """Return the samples of the topics that the scraper may read.

    `approval_tasks` and `dags`: as for the page. If the catalog cannot be reached, all topics are down.
    """
    files = {name: topic for name, (_, topic) in content.configured.topics.items() if name in readable}
    topics = {name: topic for name, topic in files.items() if isinstance(topic, Topic)}
    tables = content.summaries(list(topics.values()), TABLES_WITHIN_S)
    states = {
        name: row_of(name, topic, tables.get(name), now_ms, approval_tasks.get(name, ""), dag=dags.get(name)).state
        for name, topic in files.items()
    }
    read = {name: None for name in topics if states[name] not in (*DOWN, State.READING)}
    totals = content.totals(EVIDENCE_WITHIN_S) if topics else None
    gauges = chain.from_iterable(_of_topic(topics[name], tables[name] or TableSummary(), now_ms) for name in read)
    lags = content.lags(topics.values(), tables, now_ms)
    behind = chain.from_iterable(lag_samples(n, lag, now_ms) for n, lag in lags.items() if not isinstance(lag, str))
    # a deadline passes even while a topic's file is broken
    requests = content.erasures() if files else {}
    erasures = chain.from_iterable(erasure_samples(name, requests.get(name, ()), now_ms) for name in files)
    # a DAG has no sample before its first run has ended
    ended = [(name, dags[name]) for name in files if name in dags and dags[name].last]
    runs = [Sample(LAST_RUN_FAILED, (name,), int(dag.failed)) for name, dag in ended]
    # the evidence also has topics whose file was deleted
    counted = Counter({key: n for key, n in (totals or {}).items() if key[1][0] in read})
    stored = {name: table.stored for name in read if (table := tables[name]) is not None and table.stored is not None}
    return [*gauges, *stored_samples(stored), *behind, *erasures, *_of_states(states), *runs, *total_samples(counted)]


def _of_topic(topic: Topic, table: TableSummary, now_ms: int) -> Iterator[Sample]:
    yield from log_samples(topic.topic, table.states(topic, now_ms), topic.config, now_ms)
    if table.exists:
        yield from saved_samples(topic.topic, table.saved)
        yield from compaction_samples(topic.topic, table.last_compaction)


def _of_states(states: dict[str, State]) -> Iterator[Sample]:
    """Yield a sample for every state. A state without topics has the value 0."""
    counted = Counter(states.values())
    yield from (Sample(TOPICS, (state.value,), counted[state]) for state in State)
    yield from (Sample(UP, (n,), int(s not in DOWN)) for n, s in states.items() if s is not State.READING)


COMPONENTS = ("scheduler", "triggerer", "dag_processor")
_FAMILIES = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}


def exposition(content: PageContent, readable: Collection[str], accept: str) -> tuple[bytes, str]:
    """Return body and content type for the topics that the scraper may see.

    Raises CleantailError if the configuration cannot be read.
    """
    now_ms, configured = int(time.time() * 1000), content.configured
    runs = {topic: configured.dag_ids[topic] for topic in readable}
    waiting, states = approvals_of(configured, runs), dags_of(configured, runs)
    of_topics = samples_of(content, runs, now_ms, waiting, states)
    last_ms = by_topic(last_runs_ms(set(runs.values())), runs)
    since = [Sample(TIME_SINCE_LAST_RUN, (name,), max(now_ms - ms, 0)) for name, ms in sorted(last_ms.items())]
    # a component that never ran has no status, and is not dead
    health = get_airflow_health()
    dead = sum(health[name]["status"] == UNHEALTHY for name in COMPONENTS)
    samples = [*of_topics, *since, Sample(DEAD_THREADS, (), dead)]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(samples))
    encoder, content_type = choose_encoder(accept)
    return encoder(registry), content_type


class _Samples:
    """Collector for prometheus_client, which escapes the labels."""

    def __init__(self, samples: Collection[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Any]:
        for metric, samples in by_metric(self._samples):
            family = _FAMILIES[metric.kind](metric.exposed, metric.meaning, labels=metric.labels)
            for sample in samples:
                family.add_metric(sample.labels, sample.value)
            yield family


def last_runs_ms(dag_ids: Collection[str]) -> dict[str, int]:
    """Return DAG -> when its last run began (Unix ms)."""
    began = func.max(DagRun.start_date)
    query = select(DagRun.dag_id, began).where(DagRun.dag_id.in_(list(dag_ids))).group_by(DagRun.dag_id)
    with create_session() as session:
        return {dag_id: int(at.timestamp() * 1000) for dag_id, at in session.execute(query) if at is not None}

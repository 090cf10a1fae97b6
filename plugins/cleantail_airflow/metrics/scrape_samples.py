"""Makes the samples that a scrape of the metrics gets, from YAML and table metadata. It needs no Airflow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

from cleantail.config.topic import Topic
from cleantail.watch.dag_state import DagState
from cleantail.watch.log_metrics import Totals, compaction_samples, log_samples, saved_samples, total_samples
from cleantail.watch.metrics import LAST_RUN_FAILED, TOPICS, UP, Sample
from cleantail.watch.observed_table import TableSummary
from cleantail.watch.topic_states import State
from cleantail_airflow.page.page_content import Content
from cleantail_airflow.page.page_rows import row_of

TABLES_WITHIN_S = 2.0
EVIDENCE_WITHIN_S = 2.0
"""A scrape waits so long, of the ten seconds that Prometheus gives it. What was not read by then has no sample, and is
there at the next scrape."""
DOWN = (State.BROKEN, State.UNREADABLE)


def samples_of(
    content: Content,
    readable: Collection[str],
    now_ms: int,
    approval_tasks: Mapping[str, str],
    dags: Mapping[str, DagState],
) -> list[Sample]:
    """Makes the samples of the topics that the scraper may read.

    `approval_tasks` and `dags` are as for the page. Raises CleantailError where the catalog is out of reach.
    """
    files = {name: topic for name, (_, topic) in content.topics().items() if name in readable}
    topics = {name: topic for name, topic in files.items() if isinstance(topic, Topic)}
    tables = content.summaries(list(topics.values()), TABLES_WITHIN_S)
    states = {
        name: row_of(name, topic, tables.get(name), now_ms, approval_tasks.get(name, ""), dag=dags.get(name)).state
        for name, topic in files.items()
    }
    read = [name for name in topics if states[name] not in (*DOWN, State.READING)]
    totals = content.cache.totals(EVIDENCE_WITHIN_S) if topics else None
    gauges = chain.from_iterable(_of_topic(topics[name], tables[name] or TableSummary(), now_ms) for name in read)
    return [*gauges, *_of_states(states), *_of_runs(dags, files), *_counted(totals, read)]


def _of_runs(dags: Mapping[str, DagState], names: Iterable[str]) -> Iterator[Sample]:
    """Yields whether the last run failed; a DAG has no sample before its first run has ended."""
    yield from (
        Sample(LAST_RUN_FAILED, (name,), int(dag.failed)) for name in names if (dag := dags.get(name)) and dag.last
    )


def _of_topic(topic: Topic, table: TableSummary, now_ms: int) -> Iterator[Sample]:
    yield from log_samples(topic.topic, table.states(topic, now_ms), topic.config, now_ms)
    if table.exists:
        yield from saved_samples(topic.topic, table.saved)
        yield from compaction_samples(topic.topic, table.last_compaction)


def _of_states(states: dict[str, State]) -> Iterator[Sample]:
    """Yields a sample for every state, so that one that no topic is in is 0 and not absent."""
    counted = Counter(states.values())
    yield from (Sample(TOPICS, (state.value,), counted[state]) for state in State)
    yield from (Sample(UP, (n,), int(s not in DOWN)) for n, s in states.items() if s is not State.READING)


def _counted(totals: Totals | None, names: Iterable[str]) -> list[Sample]:
    """Makes the counters of these topics; the evidence also has topics whose file has gone."""
    topics = set(names)
    return total_samples(Counter({key: n for key, n in (totals or {}).items() if key[1][0] in topics}))

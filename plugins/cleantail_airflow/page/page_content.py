"""Compute the content of the pages from YAML and table metadata, as values for the templates. Needs no Airflow."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from cleantail.config.loading import load_platform
from cleantail.config.platform import Platform
from cleantail.config.settings_in_force import settings_in_force
from cleantail.config.topic import Topic
from cleantail.erasure.requests import ErasureRequest
from cleantail.errors import CleantailError, ConfigError, OutsideError, Problem
from cleantail.home.home_folder import site_of
from cleantail.intake import feed_of
from cleantail.kafka.client_settings import SettingsOf, settings_of_topic
from cleantail.lake.evaluate import plan_run
from cleantail.log.source_position import SnapshotPosition
from cleantail.rounds.past_rounds import with_undone
from cleantail.watch.dag_state import DagState
from cleantail.watch.log_metrics import Totals
from cleantail.watch.metadata_cache import MetadataCache
from cleantail.watch.observed_table import ObservedTable, TableSummary, summary_of
from cleantail.watch.source_watch import Lag, SourceWatch, TableEnds
from cleantail.watch.topic_list import Selection, TopicRow, lag_limits, listing
from cleantail.watch.topic_states import MEANING, State
from cleantail_airflow.catalog_login import with_login
from cleantail_airflow.installation import NO_CONFIG, WITHOUT_CONFIG
from cleantail_airflow.outcomes.configured_topics import ConfigurationCache, Configured
from cleantail_airflow.page.page_values import (
    PARTITIONS_SHOWN,
    Charts,
    GroupPage,
    RowCache,
    SavedBytes,
    TopicPage,
    TopicsPage,
    log_views,
    row_of,
    saved_bytes,
)
from cleantail_airflow.page.records_and_docs import pages_of

logger = logging.getLogger(__name__)

ALL_WITHIN_S, MANY_WITHIN_S, MANY = 0.7, 0.2, 100
"""Maximum wait of the page of all topics for metadata. The next load shows metadata that were not read in this time.

The wait is shorter for many topics, because most of them could not be read in the longer time either.
"""
FREED_WITHIN_S = 0.2
"""Maximum wait for the evidence to be read. Until then the freed bytes come from the kept snapshots."""
ONE_WITHIN_S = 30.0
SOURCE_WITHIN_S = 2.0
"""Maximum wait for a topic's source. Until it answers, the lag is shown as unknown."""
LAGS_WITHIN_S = 0.3
"""Maximum wait of the page of all topics, and of a scrape, for the sources."""
ROUNDS_SHOWN = 30

EVERYTHING = Selection()
NO_DAGS: Mapping[str, DagState] = {}


class NoConfigurationError(ConfigError):
    """CLEANTAIL_CONFIG is not set in the environment of the API server."""

    def __init__(self) -> None:
        super().__init__(NO_CONFIG, [Problem("", WITHOUT_CONFIG, "")])

    def __str__(self) -> str:
        return WITHOUT_CONFIG


class PageContent:
    """The content of the pages for one configuration. Changed files are read again."""

    def __init__(self, config_dir: Path, kafka_settings: SettingsOf | None = None) -> None:
        """`kafka_settings` returns the login of a topic's brokers. The default reads it from the environment."""
        self._sources = SourceWatch(kafka_settings or settings_of_topic)
        self._config_dir = config_dir
        self._lock = threading.RLock()
        self._configuration = ConfigurationCache(config_dir)
        self._defaults: Any = None
        self._platform: Platform | None = None
        self._cache: MetadataCache | None = None
        self._rows = RowCache()

    @property
    def configured(self) -> Configured:
        """Return the topics and groups. Raises ConfigError if there is no configuration."""
        if self._config_dir == NO_CONFIG:
            raise NoConfigurationError
        configured, defaults = self._configuration.now()
        with self._lock:
            if defaults != self._defaults:
                self._platform = self._cache = None
                self._defaults = defaults
        return configured

    @property
    def platform(self) -> Platform:
        """Return the platform of the configuration. Raises ConfigError if defaults.yaml is broken."""
        _ = self.configured
        with self._lock:
            if self._platform is None:
                self._platform = load_platform(self._config_dir)
            return self._platform

    @property
    def cache(self) -> MetadataCache:
        """Return the cache of the tables' metadata. A change of defaults.yaml discards it."""
        platform = self.platform
        with self._lock:
            if self._cache is None:
                with_login(platform)
                self._cache = MetadataCache(platform)
            return self._cache

    def warm(self) -> None:
        """Start to read all tables, so that the first viewer does not wait."""
        try:
            usable = [t for _, t in self.configured.topics.values() if isinstance(t, Topic)]
            self.cache.summaries(usable, 0)
        except Exception as e:  # the page shows the error
            logger.info("metadata was not read ahead: %s", e)

    def summaries(self, topics: Sequence[Topic], within_s: float) -> dict[str, TableSummary | None]:
        """Return the cached summaries of the tables, with current positions of readers and current releases.

        If the catalog cannot be reached, each summary has that error.
        """
        return _summaries(self.cache, topics, within_s)[0] if topics else {}

    def totals(self, within_s: float) -> Totals | None:
        """Return the counters of the evidence; None until it is read, or if the catalog cannot be reached."""
        return _totals(self.cache, within_s)

    def erasures(self) -> Mapping[str, Sequence[ErasureRequest]]:
        """Return topic -> its requests to erase keys; empty if they cannot be read."""
        try:
            return self.cache.erasures()
        except CleantailError as e:
            logger.info("the requests to erase keys cannot be read: %s", type(e).__name__)
            return {}

    def lags(
        self, topics: Iterable[Topic], seen: Mapping[str, TableSummary | None], now_ms: int
    ) -> dict[str, Lag | str]:
        """Return how far each readable table is behind its source, or why that is unknown."""
        cache = self.cache
        readable = ((topic, table) for topic in topics if (table := seen.get(topic.topic)) and not table.error)
        ends = [(t, TableEnds.of_summary(table, cache.last_caught_up_ms(t, table.source))) for t, table in readable]
        return self._sources.lags(ends, now_ms, LAGS_WITHIN_S)

    def all_topics(
        self,
        readable: Collection[str],
        now_ms: int,
        waiting: Mapping[str, str],
        dags: Mapping[str, DagState] = NO_DAGS,
        selection: Selection = EVERYTHING,
        group: GroupPage | None = None,
    ) -> TopicsPage:
        """Return the page of the topics that the user may read, or of one `group`.

        `waiting`: topic -> the task that waits for a person's answer; `dags`: topic -> the state of its DAG.
        """
        configured = self.configured
        files = {name: topic for name, (_, topic) in configured.topics.items() if name in readable}
        topics = [topic for topic in files.values() if isinstance(topic, Topic)]
        cache = self.cache if topics else None  # read once: each access checks all files of the configuration
        seen: Mapping[str, TableSummary | None] = {}
        saved: Mapping[str, SavedBytes] = {}
        lags: Mapping[str, Lag | str] = {}
        catalog_error = ""
        if cache is not None:
            _totals(cache, 0)  # starts to read the evidence in parallel with the tables
            within_s = ALL_WITHIN_S if len(topics) < MANY else MANY_WITHIN_S
            seen, catalog_error = _summaries(cache, topics, within_s)
            saved = _saved_bytes(cache, configured)
            lags = self.lags(topics, seen, now_ms)

        def row(name: str, topic: Topic | ConfigError) -> TopicRow:
            of_airflow = waiting.get(name, ""), saved.get(name), dags.get(name)
            group, lag = configured.group_of.get(name), lags.get(name)
            return self._rows.row(name, topic, seen.get(name), now_ms, *of_airflow, group, lag)

        # pause the reading of tables while the rows are made, so that viewers wait less
        with cache.at_rest() if cache is not None else nullcontext():
            rows = [row(name, topic) for name, topic in files.items()]
        groups = sorted({row.group for row in rows if row.group})
        reading = any(row.state is State.READING for row in rows)
        return TopicsPage(listing(rows, selection), selection, groups, MEANING, reading, now_ms, group, catalog_error)

    def group_page(self, name: str, dag: DagState) -> GroupPage:
        """Return the head of a group's page. Raises ConfigError if its file is broken, KeyError for an unknown name."""
        group = self.configured.groups[name]
        if isinstance(group, ConfigError):
            raise group
        return GroupPage(name, group, dag)

    def one_topic(self, name: str, now_ms: int, approval_task: str = "", dag: DagState | None = None) -> TopicPage:
        """Return the page of one topic.

        If its table cannot be read, the page has the facts from YAML, Airflow and the brokers. Raises KeyError for an
        unknown topic, ConfigError if its file is broken.
        """
        configured = self.configured
        topic = configured.topic(name)
        owner, schedule = configured.run_by(topic)
        cache = self.cache
        observed = _observed(cache, topic)
        try:
            rounds, rounds_error = with_undone(cache.rounds(topic), observed.undone), ""
        except CleantailError as e:  # the evidence is unreadable: show the topic without rounds
            rounds, rounds_error = [], str(e)
        facts = observed.facts
        plan, error = None, observed.error
        try:
            plan = None if error else plan_run(topic, facts, now_ms=now_ms)
        except CleantailError as e:
            error = str(e)
        summary = summary_of(topic, facts, observed.sizes) if facts and plan else TableSummary(error=error)
        summary = replace(summary, readers=facts.readers if facts else ())
        newest_rounds = rounds[:ROUNDS_SHOWN]
        ends = None if error else TableEnds.of_summary(summary, cache.last_caught_up_ms(topic, summary.source))
        source = self._sources.view(topic, ends, now_ms, SOURCE_WITHIN_S)
        lag: Lag | str | None = source.lag if source and source.is_known else None
        if topic.source.table is not None and ends is not None:
            lag = self._sources.lags([(topic, ends)], now_ms, SOURCE_WITHIN_S).get(name)
        saved = _saved_bytes(cache, configured).get(name)
        return TopicPage(
            topic=topic,
            row=row_of(name, topic, summary, now_ms, approval_task, saved, dag, source_lag=lag),
            owner=owner,
            schedule=schedule,
            ingestion=feed_of(topic).first(topic),
            dag=dag or DagState(dag_id=configured.dag_ids[name]),
            approval_task=approval_task,
            waiting_round=next((r for r in rounds if r.open), None) if approval_task else None,
            meaning=MEANING,
            limits=lag_limits(topic),
            plan=plan,
            logs=log_views(plan, topic, facts.branches if facts else ()) if plan else (),
            charts=Charts.of(observed.sizes, newest_rounds),
            charts_shown=PARTITIONS_SHOWN,
            rounds=newest_rounds,
            rounds_error=rounds_error,
            docs=pages_of(site_of(self.platform.home, topic.topic), [r.name for r in newest_rounds]),
            more_rounds=len(rounds) - len(newest_rounds),
            undoable={(u.round, u.kind): u for u in observed.undoable},
            newest=observed.undoable[0] if observed.undoable else None,
            settings=settings_in_force(topic),
            now_ms=now_ms,
            source=source,
            erasures=list(reversed(self.erasures().get(name, ()))),
            source_table=facts.position if facts and isinstance(facts.position, SnapshotPosition) else None,
        )


def _summaries(
    cache: MetadataCache, topics: Sequence[Topic], within_s: float
) -> tuple[dict[str, TableSummary | None], str]:
    """Return the cached summaries of the tables, with current positions of readers and current releases.

    The text is empty, or the reason why the catalog cannot be reached. Then it is also the error of each summary.
    """
    try:
        return cache.with_namespaces(topics, cache.summaries(topics, within_s)), ""
    except OutsideError as e:
        return {topic.topic: TableSummary(error=str(e)) for topic in topics}, str(e)


def _observed(cache: MetadataCache, topic: Topic) -> ObservedTable:
    try:
        observed = cache.with_namespaces([topic], cache.observe([topic], ONE_WITHIN_S))[topic.topic]
    except OutsideError as e:
        return ObservedTable(error=str(e))
    return observed or ObservedTable(error=f"the metadata of {topic.table} is not read yet")


def _totals(cache: MetadataCache, within_s: float) -> Totals | None:
    """Return the counters of the evidence; None until it is read, or if the catalog cannot be reached."""
    try:
        return cache.totals(within_s)
    except OutsideError:
        return None


def _saved_bytes(cache: MetadataCache, configured: Configured) -> dict[str, SavedBytes]:
    """Return topic -> its saved bytes. Empty until the evidence is read."""
    return saved_bytes(_totals(cache, FREED_WITHIN_S), configured.topics)

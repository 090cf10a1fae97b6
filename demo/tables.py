"""Numbers and records of the topic tables and the evidence, read by the code of `cleantail read` and `status`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cleantail.config.loading import find_topic
from cleantail.config.platform import Platform
from cleantail.config.topic_table import EVIDENCE
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.evaluate import log_states, read_facts
from cleantail.lake.recorded_rounds import read_evidence
from cleantail.lake.records.shown_records import read_records
from cleantail.lake.table_metadata import live_partitions
from cleantail.rounds.commit_summaries import OPERATION
from cleantail.rounds.past_ingestions import INGEST
from cleantail.rounds.past_rounds import PUBLISHED
from cleantail.sources.kcat import Record


@dataclass(frozen=True, slots=True)
class Size:
    """The numbers of records, keys, tombstones and bytes of a topic. Bytes are data-file bytes x live fraction."""

    records: int
    keys: int
    tombstones: int
    bytes: int

    @classmethod
    def of(cls, records: Iterable[Record], live_bytes: int) -> Size:
        all_records = list(records)
        tombstones = sum(record.value is None for record in all_records)
        return cls(len(all_records), len({record.key for record in all_records}), tombstones, live_bytes)


@dataclass(frozen=True, slots=True)
class Ingested:
    """The sums of a topic's ingestions: records, and bytes of data files."""

    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Audit:
    """The evidence of a topic: checks of published rounds, and the records that the rounds removed, by reason."""

    passed: int
    total: int
    removed: Counter[str]
    red_rounds: int


def live_records(platform: Platform, topic: str) -> list[Record]:
    """Return all records of `main`, in offset order, partition by partition."""
    table = load_table(open_catalog(platform), find_topic(topic, platform.config_dir).on(platform))
    return [] if table is None else list(read_records(table, live_partitions(table, None)))


def log_starts(platform: Platform, topic: str) -> dict[int, int]:
    """Return partition -> the first offset that a reader may see."""
    facts = read_facts(find_topic(topic, platform.config_dir).on(platform))
    return {p: state.log_start_offset or 0 for p, state in facts.states.items()} if facts else {}


def live_bytes(platform: Platform, topic: str, now_ms: int) -> int:
    return sum(log.total_bytes for log in _logs(platform, topic, now_ms))


def is_clean(platform: Platform, topic: str, now_ms: int) -> bool:
    """Return whether the first dirty offset of every log is its end."""
    return all(log.first_dirty_offset == log.log_end_offset for log in _logs(platform, topic, now_ms))


def _logs(platform: Platform, topic: str, now_ms: int) -> Any:
    named = find_topic(topic, platform.config_dir).on(platform)
    return log_states(named, read_facts(named), now_ms)


def ingested(platform: Platform, topic: str) -> Ingested:
    """Return the number of records and bytes that all ingestions have appended."""
    table = load_table(open_catalog(platform), find_topic(topic, platform.config_dir).on(platform))
    snapshots = table.metadata.snapshots if table else []
    summaries = [s.summary for s in snapshots if s.summary and s.summary[OPERATION] == INGEST]
    return Ingested(*(sum(int(s[name] or 0) for s in summaries) for name in ("added-records", "added-files-size")))


def audit(platform: Platform, topic: str) -> Audit:
    """Return the evidence of a topic."""
    evidence = open_catalog(platform).load_table(f"{platform.catalog.namespace}.{EVIDENCE}")
    rounds = read_evidence(evidence, topic)
    checks = [check for r in rounds for log in r.logs if log.outcome == PUBLISHED for check in log.checks]
    removed = sum((Counter(r.deleted) for r in rounds), Counter[str]())
    return Audit(sum(c.passed for c in checks), len(checks), removed, len({r.name for r in rounds if not r.passed}))

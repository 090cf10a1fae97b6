"""The metrics: Kafka's names and meanings (semantics.md 1.7) where they have one here, and our own. One table.

The same table gives the Prometheus endpoint, what tasks send through Airflow's stats, and docs/metrics.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter"]


@dataclass(frozen=True, slots=True)
class Metric:
    """Describes one metric. `labels` are in the order of a sample's; `sent_by` names the tasks that send it."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    kafka: bool = False
    sent_by: str = ""

    @property
    def exposed(self) -> str:
        """Returns its name in a query: Prometheus asks for `_total` at the end of counters."""
        return f"cleantail_{hyphened(self.name).replace('-', '_')}{'_total' if self.kind == 'counter' else ''}"


def hyphened(name: str) -> str:
    """Returns a name with hyphens where Kafka writes bytesRead or DeadThreadCount: bytes-read, dead-thread-count."""
    return re.sub("(?<=[a-z])[A-Z]", lambda capital: f"-{capital[0]}", name).lower()


@dataclass(frozen=True, slots=True)
class Sample:
    """Describes one value of a metric; `labels` are the values of the metric's labels."""

    metric: Metric
    labels: tuple[str, ...]
    value: float


_ALL: list[Metric] = []


def _metric(
    name: str,
    kind: Kind,
    labels: Iterable[str],
    meaning: str,
    *,
    kafka: bool = False,
    sent_by: str = "",
) -> Metric:
    metric = Metric(name, kind, tuple(labels), meaning, kafka, sent_by)
    _ALL.append(metric)
    return metric


_TOPIC, _LOG = ("topic",), ("topic", "partition")


def _round_stat(stat: str, meaning: str) -> Metric:
    """Returns the metric of one of Kafka's CleanerStats, of the last compaction. Kafka writes these to its log and
    exports none."""
    text = f"CleanerStats.{stat} of the last compaction. {meaning}"
    return _metric(f"round-{hyphened(stat)}", "gauge", _TOPIC, text, sent_by="check_quality")


MAX_DIRTY_PERCENT = _metric(
    "max-dirty-percent",
    "gauge",
    _TOPIC,
    "Dirty ratio of the dirtiest log, in percent; logs that wait in quarantine are left out.",
    kafka=True,
    sent_by="evaluate",
)
MAX_COMPACTION_DELAY = _metric(
    "max-compaction-delay-secs",
    "gauge",
    _TOPIC,
    "By how long the oldest dirty record has passed max.compaction.lag.ms; 0 where none has.",
    kafka=True,
    sent_by="evaluate",
)
UNCLEANABLE_PARTITIONS = _metric(
    "uncleanable-partitions-count",
    "gauge",
    _TOPIC,
    "Partitions in quarantine.",
    kafka=True,
    sent_by="evaluate",
)
UNCLEANABLE_BYTES = _metric(
    "uncleanable-bytes",
    "gauge",
    _TOPIC,
    "Cleanable bytes of the partitions in quarantine.",
    kafka=True,
    sent_by="evaluate",
)
TIME_SINCE_LAST_RUN = _metric(
    "time-since-last-run-ms",
    "gauge",
    _TOPIC,
    "Since the DAG that runs the topic last began a run, whether something was due or not; absent before the first. "
    "The task sends what had passed when its own run began; not in a run that assets have started.",
    kafka=True,
    sent_by="evaluate",
)
MAX_CLEAN_TIME = _metric(
    "max-clean-time-secs",
    "gauge",
    _TOPIC,
    "Time of the slowest work unit of the last compaction, without the start of Spark, checks and publish.",
    kafka=True,
    sent_by="check_quality",
)
RECOPY_PERCENT = _metric(
    "cleaner-recopy-percent",
    "gauge",
    _TOPIC,
    "round-bytes-written in percent of round-bytes-read. What Kafka copies stays in its place here.",
    kafka=True,
    sent_by="check_quality",
)
MAX_BUFFER_UTILIZATION = _metric(
    "max-buffer-utilization-percent",
    "gauge",
    _TOPIC,
    "Distinct keys in the dirty part of the log that had most, in the last compaction, in percent of the keys that one "
    "thread's share of log.cleaner.dedupe.buffer.size has place for; 100 where there were more and they spilled.",
    kafka=True,
    sent_by="check_quality",
)
DEAD_THREADS = _metric(
    "DeadThreadCount",
    "gauge",
    (),
    "How many of Airflow's scheduler, triggerer and DAG processor are without a heartbeat, as Airflow's own health "
    "says: without them nothing is compacted. There are no cleaner threads; a Spark application that dies is a failed "
    "task, which Airflow counts (`ti_failures`) and alerts name.",
    kafka=True,
)
BYTES_READ = _round_stat(
    "bytesRead",
    "Live bytes of the compacted logs from their start to the end of the round (files' bytes x live share).",
)
BYTES_WRITTEN = _round_stat("bytesWritten", "What was kept of round-bytes-read; nothing is copied.")
MESSAGES_READ = _round_stat("messagesRead", "Records of the compacted logs from their start to the end of the round.")
MESSAGES_WRITTEN = _round_stat("messagesWritten", "What was kept of round-messages-read.")
MAP_BYTES_READ = _round_stat("mapBytesRead", "Live bytes of the dirty part, which the offset map is made of.")
MAP_MESSAGES_READ = _round_stat("mapMessagesRead", "Records of the dirty part.")
INVALID_MESSAGES_READ = _round_stat(
    "invalidMessagesRead", "Records without a key that were dropped or moved (cleantail.keyless.policy)."
)
DIRTY_PERCENT = _metric("log-dirty-percent", "gauge", _LOG, "Dirty ratio of the log, in percent.", sent_by="evaluate")
COMPACTION_DELAY = _metric(
    "log-compaction-delay-secs", "gauge", _LOG, "max-compaction-delay-secs of one log.", sent_by="evaluate"
)
LOG_BYTES = _metric(
    "log-bytes",
    "gauge",
    (*_LOG, "section"),
    "Live bytes of the log by section: clean, cleanable, uncleanable (data-file bytes x live fraction).",
)
LOG_RECORDS = _metric("log-records", "gauge", _LOG, "Live records of the log.")
LOG_END = _metric("log-end-offset", "gauge", _LOG, "Next offset of the log.")
FIRST_DIRTY = _metric("log-first-dirty-offset", "gauge", _LOG, "The clean point of the log.")
QUARANTINED = _metric("log-quarantined", "gauge", _LOG, "1 where the log is in quarantine, else 0.")
RECONCILE_NEEDED = _metric(
    "log-reconcile-needed",
    "gauge",
    _LOG,
    "1 where deletions may have gone from Kafka before they were read, until a reconciliation is published, else 0.",
)
LAST_ROUND = _metric(
    "log-last-round-timestamp-seconds", "gauge", _LOG, "Clock of the log's last published round, Unix seconds."
)
TOMBSTONES = _metric("tombstones-pending", "gauge", _LOG, "Live tombstones, due or not.", sent_by="evaluate")
TOMBSTONES_DUE = _metric(
    "tombstones-due",
    "gauge",
    _LOG,
    "Live tombstones past their horizon, those included that a reader holds.",
    sent_by="evaluate",
)
DIRTY_LIMIT = _metric("min-cleanable-dirty-percent", "gauge", _TOPIC, "min.cleanable.dirty.ratio in force, in percent.")
HIDDEN_BYTES = _metric(
    "hidden-bytes",
    "gauge",
    _TOPIC,
    "Bytes in data files of records that delete files hide: the next rewrite frees them.",
)
RECLAIMED_KEPT = _metric(
    "reclaimed-kept-history-bytes",
    "gauge",
    _TOPIC,
    "Bytes that rewrites freed, over the snapshots that are still kept: falls when a snapshot expires.",
)
LAST_RUN_FAILED = _metric(
    "last-run-failed",
    "gauge",
    _TOPIC,
    "1 where the last ended run of the DAG that runs the topic failed, of a group where this topic did, else 0.",
)
UP = _metric("topic-up", "gauge", _TOPIC, "1 where the topic's YAML and table can be read, else 0.")
TOPICS = _metric("topics", "gauge", ("state",), "Topics in each state of the page in the UI.")
ROUNDS = _metric(
    "rounds",
    "counter",
    (*_LOG, "kind", "outcome"),
    "Rounds of the log by what became of them: kind compact, expire, reconcile or rollback, outcome published, "
    "held_back (a check failed), rejected (by a person, or not approved in time) or withdrawn (dropped unpublished: "
    "the table changed under it, or it waited for an approval that nobody could be asked for). Scraped but not sent: "
    "withdrawn, and held_back by a check that was made anew after a conflict.",
    sent_by="check_quality, publish, expire_tombstones, reconcile, rollback",
)
CHECKS_FAILED = _metric(
    "checks-failed",
    "counter",
    (*_LOG, "severity"),
    "Expectations that a round did not meet. Scraped but not sent: those of a check that was made anew after a "
    "conflict.",
    sent_by="check_quality, expire_tombstones, reconcile",
)
DROPPED = _metric(
    "records-dropped",
    "counter",
    (*_LOG, "reason"),
    "Records that published rounds removed: superseded, expired, invalid, retention, copies, registered_twice "
    "or gone_at_source; and unholdable, which an ingestion left out (cleantail.unholdable.policy).",
    sent_by="publish, expire_tombstones, reconcile",
)
RECLAIMED = _metric("bytes-reclaimed", "counter", _TOPIC, "Bytes that rewrites freed.", sent_by="reclaim")

SAVED = _metric(
    "bytes-saved",
    "counter",
    _TOPIC,
    "Bytes of the records that published rounds hid from readers: files' bytes by the share of their records, an "
    "estimate. Rounds of versions that did not record it are not counted.",
)
PUT_BACK = _metric(
    "bytes-put-back", "counter", _TOPIC, "What of bytes-saved is read again, since a rollback undid its round."
)

METRICS: tuple[Metric, ...] = tuple(_ALL)


def metrics_markdown() -> str:
    """Returns the table of docs/metrics.md."""
    head = ["| metric | kind | labels | sent by the task | meaning |", "|---|---|---|---|---|"]
    return "\n".join([*head, *(_row(metric) for metric in METRICS)]) + "\n"


def _row(metric: Metric) -> str:
    name = f"`{metric.name}`{' (Kafka)' if metric.kafka else ''}"
    return (
        f"| {name} | {metric.kind} | {', '.join(metric.labels) or '-'} | {metric.sent_by or '-'} | {metric.meaning} |"
    )


def by_metric(samples: Iterable[Sample]) -> Iterator[tuple[Metric, list[Sample]]]:
    """Returns the samples in the order of the table, those of one metric together; metrics without samples are left
    out."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.metric.name, []).append(sample)
    return ((metric, by_name[metric.name]) for metric in METRICS if metric.name in by_name)

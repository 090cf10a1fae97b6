"""The table of metrics: Kafka's names and meanings (semantics.md 1.7) where they apply, and Cleantail's own.

The Prometheus endpoint, Airflow's stats and docs/metrics.md are generated from this table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from cleantail.rounds.stations import CHECK_QUALITY, EVALUATE, RECLAIM

Kind = Literal["gauge", "counter"]


@dataclass(frozen=True, slots=True)
class Metric:
    """`labels` are in the order of a sample's labels. `sent_by`: the tasks that send the metric to Airflow's stats."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    kafka: bool = False
    sent_by: str = ""

    @property
    def exposed(self) -> str:
        """Name in a query. Prometheus requires `_total` at the end of counters."""
        return f"cleantail_{hyphened(self.name).replace('-', '_')}{'_total' if self.kind == 'counter' else ''}"


def hyphened(name: str) -> str:
    """Return Kafka's bytesRead or DeadThreadCount with hyphens: bytes-read, dead-thread-count."""
    return re.sub("(?<=[a-z])[A-Z]", lambda capital: f"-{capital[0]}", name).lower()


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric; `labels` are the values of the metric's labels."""

    metric: Metric
    labels: tuple[str, ...]
    value: float


_ALL: list[Metric] = []
_TOPIC, _LOG = ("topic",), ("topic", "partition")


def _gauge(name: str, labels: tuple[str, ...], meaning: str, *, kafka: bool = False, sent_by: str = "") -> Metric:
    _ALL.append(Metric(name, "gauge", labels, meaning, kafka, sent_by))
    return _ALL[-1]


def _counter(name: str, labels: tuple[str, ...], meaning: str, *, sent_by: str = "") -> Metric:
    _ALL.append(Metric(name, "counter", labels, meaning, sent_by=sent_by))
    return _ALL[-1]


def _round_stat(stat: str, meaning: str) -> Metric:
    """Return one of Kafka's CleanerStats of the last compaction. Kafka writes these to its log and exports none."""
    text = f"CleanerStats.{stat} of the last compaction. {meaning}"
    return _gauge(f"round-{hyphened(stat)}", _TOPIC, text, sent_by=CHECK_QUALITY)


MAX_DIRTY_PERCENT = _gauge(
    "max-dirty-percent",
    _TOPIC,
    "Dirty ratio of the dirtiest log, in percent, without blocked logs.",
    kafka=True,
    sent_by=EVALUATE,
)
MAX_COMPACTION_DELAY = _gauge(
    "max-compaction-delay-secs",
    _TOPIC,
    "Time by which the oldest dirty record has passed max.compaction.lag.ms, or 0.",
    kafka=True,
    sent_by=EVALUATE,
)
UNCLEANABLE_PARTITIONS = _gauge(
    "uncleanable-partitions-count", _TOPIC, "Blocked partitions.", kafka=True, sent_by=EVALUATE
)
UNCLEANABLE_BYTES = _gauge(
    "uncleanable-bytes", _TOPIC, "Cleanable bytes of the blocked partitions.", kafka=True, sent_by=EVALUATE
)
TIME_SINCE_LAST_RUN = _gauge(
    "time-since-last-run-ms",
    _TOPIC,
    "Time since the DAG that runs the topic last began a run, whether work was due or not. Absent before the first. "
    "The task sends the time until its own run began, except in a run that assets started.",
    kafka=True,
    sent_by=EVALUATE,
)
MAX_CLEAN_TIME = _gauge(
    "max-clean-time-secs",
    _TOPIC,
    "Time of the slowest work unit of the last compaction, without the start of Spark, checks and publish.",
    kafka=True,
    sent_by=CHECK_QUALITY,
)
RECOPY_PERCENT = _gauge(
    "cleaner-recopy-percent",
    _TOPIC,
    "round-bytes-written in percent of round-bytes-read. Kafka copies those bytes; here they stay in place.",
    kafka=True,
    sent_by=CHECK_QUALITY,
)
MAX_BUFFER_UTILIZATION = _gauge(
    "max-buffer-utilization-percent",
    _TOPIC,
    "Fill level of the largest offset map of the last compaction, in percent. It is the number of distinct dirty keys, "
    "divided by the keys that fit into one thread's share of log.cleaner.dedupe.buffer.size. 100 if keys were spilled.",
    kafka=True,
    sent_by=CHECK_QUALITY,
)
DEAD_THREADS = _gauge(
    "DeadThreadCount",
    (),
    "Number of Airflow's scheduler, triggerer and DAG processor without a heartbeat, by Airflow's own health check. "
    "Without them nothing is compacted. There are no cleaner threads: a Spark application that dies is a failed task, "
    "which Airflow counts (`ti_failures`) and alerts report.",
    kafka=True,
)
BYTES_READ = _round_stat(
    "bytesRead",
    "Live bytes of the compacted logs from their start to the end of the round (files' bytes x live share).",
)
BYTES_WRITTEN = _round_stat("bytesWritten", "The kept part of round-bytes-read; nothing is copied.")
MESSAGES_READ = _round_stat("messagesRead", "Records of the compacted logs from their start to the end of the round.")
MESSAGES_WRITTEN = _round_stat("messagesWritten", "The kept part of round-messages-read.")
MAP_BYTES_READ = _round_stat("mapBytesRead", "Live bytes of the dirty part, from which the offset map is built.")
MAP_MESSAGES_READ = _round_stat("mapMessagesRead", "Records of the dirty part.")
INVALID_MESSAGES_READ = _round_stat(
    "invalidMessagesRead", "Records without a key that were dropped or moved (cleantail.keyless.policy)."
)
DIRTY_PERCENT = _gauge("log-dirty-percent", _LOG, "Dirty ratio of the log, in percent.", sent_by=EVALUATE)
COMPACTION_DELAY = _gauge("log-compaction-delay-secs", _LOG, "max-compaction-delay-secs of one log.", sent_by=EVALUATE)
LOG_BYTES = _gauge(
    "log-bytes",
    (*_LOG, "section"),
    "Live bytes of the log by section: clean, cleanable, uncleanable (data-file bytes x live fraction).",
)
LOG_RECORDS = _gauge("log-records", _LOG, "Live records of the log.")
LOG_END = _gauge("log-end-offset", _LOG, "Next offset of the log.")
FIRST_DIRTY = _gauge("log-first-dirty-offset", _LOG, "First dirty offset of the log: below it the log is clean.")
QUARANTINED = _gauge("log-quarantined", _LOG, "1 if the log is blocked, else 0.")
RECONCILE_NEEDED = _gauge(
    "log-reconcile-needed",
    _LOG,
    "1 if Kafka may have removed deletions before they were read, until a reconciliation is published; else 0.",
)
SOURCE_LAG = _gauge(
    "source-lag-offsets",
    _LOG,
    "Offsets of the log in Kafka that a read would pass now, with or without a record. Absent while the brokers do not "
    "answer.",
)
SOURCE_LAG_SNAPSHOTS = _gauge(
    "source-lag-snapshots",
    _TOPIC,
    "Snapshots of the source table that a read would bring now. Absent while its catalog does not answer.",
)
SOURCE_LAG_TIME = _gauge(
    "source-lag-secs",
    _TOPIC,
    "Age of the oldest unread snapshot of a source table. For a topic in Kafka: time since the table last had all of "
    "its records. Unread records have waited at most that long. 0 if nothing is unread. Absent while it is unknown, as "
    "before the first read of Kafka.",
)
LAST_ROUND = _gauge("log-last-round-timestamp-seconds", _LOG, "Clock of the log's last published round, Unix seconds.")
TOMBSTONES = _gauge("tombstones-pending", _LOG, "Live tombstones, due or not.", sent_by=EVALUATE)
TOMBSTONES_DUE = _gauge(
    "tombstones-due",
    _LOG,
    "Live tombstones past their horizon, including those that a registered reader holds.",
    sent_by=EVALUATE,
)
DIRTY_LIMIT = _gauge("min-cleanable-dirty-percent", _TOPIC, "min.cleanable.dirty.ratio in force, in percent.")
HIDDEN_BYTES = _gauge(
    "hidden-bytes", _TOPIC, "Bytes in data files of records that delete files hide. The next rewrite frees them."
)
RECLAIMED_KEPT = _gauge(
    "reclaimed-kept-history-bytes",
    _TOPIC,
    "Bytes that rewrites freed, over the snapshots that are still kept. Falls when a snapshot expires.",
)
STORED = _gauge(
    "stored-bytes",
    (*_TOPIC, "part"),
    "Bytes on disk by part, measured by the last reclaim that expired snapshots: data (below the table's folder), "
    "metadata (of the table), data_docs (results and pages in CLEANTAIL_HOME). Absent before the first such reclaim.",
)
EVIDENCE_BYTES = _gauge(
    "evidence-bytes", (), "Bytes of the files of the evidence table, from the newest of these measurements."
)
ERASURES_OPEN = _gauge(
    "erasures-open", _TOPIC, "Requests to erase keys that have no certificate yet. Absent if there never was a request."
)
ERASURES_OVERDUE = _gauge("erasures-overdue", _TOPIC, "Open requests to erase keys whose deadline has passed.")
ERASURE_LEFT = _gauge(
    "erasure-deadline-left-secs",
    _TOPIC,
    "Time until the first deadline of an open request to erase keys; below 0 after it. Absent without an open request.",
)
LAST_RUN_FAILED = _gauge(
    "last-run-failed",
    _TOPIC,
    "1 if the last ended run of the DAG that runs the topic failed (in a group: if this topic failed), else 0.",
)
UP = _gauge("topic-up", _TOPIC, "1 if the topic's YAML and table can be read, else 0.")
TOPICS = _gauge("topics", ("state",), "Topics in each state of the page in the UI.")
ROUNDS = _counter(
    "rounds",
    (*_LOG, "kind", "outcome"),
    "Rounds of the log by kind (compact, expire, reconcile, erase, rollback) and outcome: published; held_back (a "
    "check failed); rejected (by a person, or not approved in time); withdrawn (dropped unpublished, because the table "
    "changed or no user could be asked for approval). Scraped but not sent: withdrawn, and held_back by a check that "
    "was repeated after a conflict.",
    sent_by="check_quality, publish, expire_tombstones, reconcile, rollback",
)
CHECKS_FAILED = _counter(
    "checks-failed",
    (*_LOG, "severity"),
    "Expectations that a round did not meet. Scraped but not sent: those of a check repeated after a conflict.",
    sent_by="check_quality, expire_tombstones, reconcile",
)
DROPPED = _counter(
    "records-dropped",
    (*_LOG, "reason"),
    "Records that published rounds removed: superseded, expired, invalid, retention, copies, registered_twice or "
    "gone_at_source. Also records that an ingestion left out: unholdable (cleantail.unholdable.policy), or erased "
    "(their key is on the denylist of an erasure).",
    sent_by="publish, expire_tombstones, reconcile",
)
RECLAIMED = _counter("bytes-reclaimed", _TOPIC, "Bytes that rewrites freed.", sent_by=RECLAIM)
SAVED = _counter(
    "bytes-saved",
    _TOPIC,
    "Estimated bytes of the records that published rounds hid from readers: files' bytes by the share of their "
    "records. A rewrite of small files frees less (bytes-reclaimed), because each file has a fixed cost. "
    "Rounds whose evidence lacks this number are not counted.",
)
PUT_BACK = _counter(
    "bytes-put-back", _TOPIC, "Part of bytes-saved that is read again because a rollback undid its round."
)
TAKEN_AGAIN = _counter(
    "bytes-taken-again", _TOPIC, "Part of bytes-reclaimed that files take again because a rollback undid the rewrite."
)

METRICS: tuple[Metric, ...] = tuple(_ALL)


def by_metric(samples: Iterable[Sample]) -> Iterator[tuple[Metric, list[Sample]]]:
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.metric.name, []).append(sample)
    return ((metric, by_name[metric.name]) for metric in METRICS if metric.name in by_name)

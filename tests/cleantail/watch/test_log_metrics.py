"""What the metrics say of logs, evidence and results of jobs."""

import json
from dataclasses import replace

import pytest

from cleantail.erasure.requests import CERTIFIED, FAILED
from cleantail.log.partition_state import Horizon, PartitionState, Quarantine
from cleantail.log.rules import LogMeasure
from cleantail.log.source_position import Forgotten
from cleantail.rounds.check_results import CHECK_RESULTS_JSON
from cleantail.rounds.checked_round import CHECKED_ROUND_JSON, ROUND_RESULT_JSON, RoundResult, UnitCounts, Verdict
from cleantail.rounds.job_report import EndedJob
from cleantail.rounds.publications import LAST_COMPACTION_JSON, LastCompaction
from cleantail.rounds.station_results import STORED_JSON, StoredBytes
from cleantail.watch import metrics as m
from cleantail.watch.log_metrics import (
    compaction_samples,
    erasure_samples,
    job_samples,
    log_samples,
    stored_samples,
    total_samples,
    totals_of,
)
from cleantail.watch.metrics import METRICS, Sample, by_metric
from tests.cleantail.kernel_builders import HOUR_MS, configs, log_state
from tests.cleantail.watch.test_alarms import request_of
from tests.round_builders import check_result, checked_round, partition_work, staged_unit

NOW_MS = 100 * HOUR_MS


def held(retry_at_ms):
    return PartitionState(checkpoint=10, quarantine=Quarantine(0, "compact", "check failed: x", 1, retry_at_ms))


def values(*logs, **changes):
    """{(metric, labels after the topic): value} of these logs."""
    found = log_samples("orders", logs, configs(**changes), NOW_MS)
    assert all(len(s.labels) == len(s.metric.labels) and s.labels[0] == "orders" for s in found)
    return {(s.metric.name, *s.labels[1:]): s.value for s in found}


def test_the_dirtiest_log_is_the_topics_and_each_log_has_its_own():
    found = values(log_state(), log_state(partition=3, cleanable_bytes=300), min_cleanable_dirty_ratio=0.4)
    assert found["max-dirty-percent",] == 75
    assert (found["log-dirty-percent", "0"], found["log-dirty-percent", "3"]) == (50, 75)
    assert found["min-cleanable-dirty-percent",] == 40


def test_a_log_that_waits_in_quarantine_is_uncleanable_and_not_the_dirtiest():
    found = values(log_state(), log_state(partition=1, cleanable_bytes=300, state=held(NOW_MS + 1)))
    assert found["max-dirty-percent",] == 50
    assert (found["uncleanable-partitions-count",], found["uncleanable-bytes",]) == (1, 300)
    assert (found["log-quarantined", "0"], found["log-quarantined", "1"]) == (0, 1)


def test_a_log_of_which_deletions_may_be_missing_needs_a_reconciliation():
    found = values(log_state(), log_state(partition=1, forgotten=Forgotten(1, 2, 9, 3, 1_000, 1_000)))
    assert (found["log-reconcile-needed", "0"], found["log-reconcile-needed", "1"]) == (0, 1)


def test_open_requests_to_erase_keys_are_counted_until_their_certificate():
    def found(now_ms, *requests):
        return {s.metric.name: s.value for s in erasure_samples("orders", requests, now_ms)}

    assert found(0) == {}
    late, open_one = request_of(FAILED, deadline_ms=2_000), request_of(deadline_ms=5_000)
    assert found(3_000, late, open_one, request_of(CERTIFIED)) == {
        "erasures-open": 2, "erasures-overdue": 1, "erasure-deadline-left-secs": -1,
    }  # fmt: skip
    assert found(3_000, request_of(CERTIFIED)) == {"erasures-open": 0, "erasures-overdue": 0}


def test_a_log_whose_next_try_has_come_counts_again():
    assert values(log_state(state=held(NOW_MS)))["max-dirty-percent",] == 50


def test_the_delay_is_that_of_the_oldest_dirty_record_past_the_limit():
    log = log_state(earliest_dirty_timestamp_ms=NOW_MS - 3 * HOUR_MS)
    found = values(log, log_state(partition=1), max_compaction_lag_ms=HOUR_MS)
    assert (found["max-compaction-delay-secs",], found["log-compaction-delay-secs", "0"]) == (7200, 7200)
    assert found["log-compaction-delay-secs", "1"] == 0


def test_tombstones_are_pending_and_some_of_them_due():
    log = log_state(horizons=(Horizon(5, NOW_MS, 3), Horizon(10, NOW_MS + 1, 4)), tombstones_without_horizon=2)
    found = values(log)
    assert (found["tombstones-pending", "0"], found["tombstones-due", "0"]) == (9, 3)


def test_bytes_have_a_section_and_offsets_are_those_of_the_log():
    found = values(log_state(clean_bytes=1, cleanable_bytes=2, uncleanable_bytes=3))
    assert [found["log-bytes", "0", s] for s in ("clean", "cleanable", "uncleanable")] == [1, 2, 3]
    assert (found["log-first-dirty-offset", "0"], found["log-end-offset", "0"], found["log-records", "0"]) == (
        10,
        30,
        30,
    )


def test_the_last_round_is_a_time_and_absent_before_the_first():
    assert ("log-last-round-timestamp-seconds", "0") not in values(log_state())
    log = log_state(state=PartitionState(checkpoint=10, last_round_ms=5000))
    assert values(log)["log-last-round-timestamp-seconds", "0"] == 5


def test_a_topic_that_does_not_compact_is_not_dirty():
    names = {name for name, *_ in values(log_state(), cleanup_policy=frozenset({"delete"}))}
    assert "log-records" in names
    assert not names & {"max-dirty-percent", "log-dirty-percent", "max-compaction-delay-secs"}


def test_a_topic_without_a_table_has_zeros_and_no_logs():
    assert values()["max-dirty-percent",] == 0
    assert values()["uncleanable-partitions-count",] == 0


# ---- counters


def row(outcome, partition=0, checks=(), deleted=None, **more):
    fields = {"topic": "orders", "partition": partition, "kind": "compact", "outcome": outcome, "freed_bytes": 0}
    results = tuple(check_result(severity=severity, passed=ok) for severity, ok in checks)
    return {**fields, "deleted": json.dumps(deleted or {}), "checks": CHECK_RESULTS_JSON.text(results), **more}


def counted(samples):
    return {(s.metric.name, *s.labels): s.value for s in samples}


def test_rounds_checks_and_drops_are_counted_by_log():
    rows = [
        row("checked", deleted={"superseded": 5, "invalid": 0}, checks=[("critical", True), ("info", False)]),
        row("published", deleted={"superseded": 5, "invalid": 0}),
        row("published", deleted={"superseded": 7}),
        row("held_back", deleted={"superseded": 9}, checks=[("critical", False), ("warning", False)]),
        row("published", partition=1, kind="expire", deleted={"expired": 2}),
    ]
    assert counted(total_samples(totals_of(rows))) == {
        ("rounds", "orders", "0", "compact", "published"): 2,
        ("rounds", "orders", "0", "compact", "held_back"): 1,
        ("rounds", "orders", "1", "expire", "published"): 1,
        ("checks-failed", "orders", "0", "info"): 1,
        ("checks-failed", "orders", "0", "critical"): 1,
        ("checks-failed", "orders", "0", "warning"): 1,
        ("records-dropped", "orders", "0", "superseded"): 12,
        ("records-dropped", "orders", "1", "expired"): 2,
    }


@pytest.mark.parametrize("outcome", ["rejected", "withdrawn"])
def test_what_was_not_published_is_a_round_that_dropped_nothing(outcome):
    rows = [row("checked", deleted={"superseded": 5}), row(outcome, deleted={"superseded": 5})]
    assert counted(total_samples(totals_of(rows))) == {("rounds", "orders", "0", "compact", outcome): 1}


def test_what_reclaims_freed_is_counted_by_topic_however_long_ago_it_was():
    rows = [row("published", partition=None, kind="reclaim", freed_bytes=n) for n in (70, 7)]
    assert counted(total_samples(totals_of(rows))) == {("bytes-reclaimed", "orders"): 77}


def test_what_a_rollback_of_a_reclaim_takes_again_is_counted_apart_because_counters_never_fall():
    rows = [
        row("published", partition=None, kind="reclaim", freed_bytes=70),
        row("published", kind="rollback", freed_bytes=50),
    ]
    found = counted(total_samples(totals_of(rows)))
    assert (found["bytes-reclaimed", "orders"], found["bytes-taken-again", "orders"]) == (70, 50)


def test_more_rows_never_lower_a_counter():
    outcomes = ["checked", "published", "held_back", "rejected"]
    rows = [row(o, p, checks=[("info", False)], deleted={"copies": p + 1}) for p in range(3) for o in outcomes]
    for n in range(len(rows)):
        before, after = totals_of(rows[:n]), totals_of(rows[: n + 1])
        assert all(after[key] >= count for key, count in before.items())


# ---- what a job says


def verdict(partition, *severities, passed=True):
    failed = tuple(check_result(partition=partition, severity=severity) for severity in severities)
    return Verdict(partition, passed, () if passed else failed, failed if passed else ())


def unit(*works, clean_ms, hidden):
    names = ("partition", "first_dirty_offset", "end_offset", "dirty_bytes", "read_bytes")
    partitions = [partition_work(**dict(zip(names, work, strict=True))) for work in works]
    return staged_unit(*partitions, clean_ms=clean_ms, map_slots=20, counts=UnitCounts({}, hidden_bytes=hidden))


def measure(partition, read, kept, dirty, keys, **deleted):
    counts = {"records_read": read, "records_kept": kept, "map_records": dirty, "map_keys": keys}
    return LogMeasure(partition, records_in=read, records_out=kept, deleted=deleted, **counts)


UNITS = [
    unit((0, 5, 9, 150, 400), clean_ms=1500, hidden={0: 100}),
    unit((1, 0, 9, 200, 600), (2, 4, 4, 0, 800), clean_ms=700, hidden={1: 200, 2: 300}),
]
"""Of log 2 only retention was due."""
MEASURES = [
    measure(0, 9, 4, 3, 3, superseded=6, invalid=2),
    measure(1, 9, 7, 9, 8, superseded=3),
    measure(2, 5, 1, 0, 0, retention=4),
]


def said(job, **result):
    return counted(job_samples(job, "orders", EndedJob(job, result).report))


def test_a_check_says_its_rounds_and_failures_and_what_the_compaction_cost():
    verdicts = [verdict(0, "warning"), verdict(1, "critical", passed=False)]
    checked = checked_round(units=tuple(UNITS), verdicts=tuple(verdicts), measures=tuple(MEASURES))
    assert said("check_quality", **CHECKED_ROUND_JSON.plain(checked)) == {
        ("rounds", "orders", "1", "compact", "held_back"): 1,
        ("checks-failed", "orders", "0", "warning"): 1,
        ("checks-failed", "orders", "1", "critical"): 1,
        ("max-clean-time-secs", "orders"): 1.5,
        ("max-buffer-utilization-percent", "orders"): 40,
        ("cleaner-recopy-percent", "orders"): 70,
        ("round-bytes-read", "orders"): 1000,
        ("round-bytes-written", "orders"): 700,
        ("round-messages-read", "orders"): 18,
        ("round-messages-written", "orders"): 11,
        ("round-map-bytes-read", "orders"): 350,
        ("round-map-messages-read", "orders"): 12,
        ("round-invalid-messages-read", "orders"): 2,
    }


def test_only_what_was_published_was_dropped():
    result = RoundResult(published=(0,), verdicts=(verdict(0), verdict(1)), measures=tuple(MEASURES))
    found = said("publish", **ROUND_RESULT_JSON.plain(result))
    assert found == {
        ("rounds", "orders", "0", "compact", "published"): 1,
        ("records-dropped", "orders", "0", "superseded"): 6,
        ("records-dropped", "orders", "0", "invalid"): 2,
    }


def test_what_a_person_rejected_was_a_round_and_dropped_nothing():
    result = RoundResult(kind="expire", rejected=(0,), verdicts=(verdict(0),), measures=tuple(MEASURES))
    found = said("publish", **ROUND_RESULT_JSON.plain(result))
    assert found == {("rounds", "orders", "0", "expire", "rejected"): 1}


def test_a_rollback_is_counted_by_log():
    found = said("rollback", published=[0, 1])
    assert found == {("rounds", "orders", p, "rollback", "published"): 1 for p in "01"}


def test_an_expiry_is_a_round_of_its_own_kind():
    measure = LogMeasure(0, records_in=9, records_out=7, deleted={"expired": 2})
    result = RoundResult(kind="expire", published=(0,), verdicts=(verdict(0),), measures=(measure,))
    assert said("expire_tombstones", **ROUND_RESULT_JSON.plain(result)) == {
        ("rounds", "orders", "0", "expire", "published"): 1,
        ("records-dropped", "orders", "0", "expired"): 2,
    }


def test_a_gap_of_a_source_is_no_round():
    assert total_samples(totals_of([row("published", kind="gap")])) == []


def test_a_reclaim_says_what_it_freed():
    assert said("reclaim", reclaimed_bytes=77) == {("bytes-reclaimed", "orders"): 77}
    assert said("reclaim", reclaimed_bytes=0) == {}


@pytest.mark.parametrize(
    "job", ["ingest", "compact", "check_quality", "publish", "expire_tombstones", "reclaim", "rollback"]
)
def test_a_job_without_a_result_has_no_metrics(job):
    assert said(job) == {}
    assert said(job, ok=False, error="out of memory") == {}


# ---- the last compaction


def test_the_last_compaction_is_that_of_its_worst_unit_and_survives_the_table_property():
    last = LastCompaction.of_round(UNITS, MEASURES)
    assert (last.clean_ms, last.buffer_percent) == (1500, 40)
    assert LAST_COMPACTION_JSON.value_or_none(LAST_COMPACTION_JSON.text(last)) == last


def test_the_text_of_a_stored_last_compaction_does_not_change():
    text = (
        '{"buffer_percent":2.5,"bytes_read":3,"bytes_written":4,"clean_ms":1,"invalid_messages_read":9,'
        '"map_bytes_read":7,"map_messages_read":8,"messages_read":5,"messages_written":6}'
    )
    assert LAST_COMPACTION_JSON.value_or_none(text) == LastCompaction(1, 2.5, 3, 4, 5, 6, 7, 8, 9)
    assert LAST_COMPACTION_JSON.text(LastCompaction(1, 2.5, 3, 4, 5, 6, 7, 8, 9)) == text


def test_ten_million_dirty_records_of_one_key_take_one_place_of_the_map():
    last = LastCompaction.of_round(UNITS[:1], [measure(0, 10_000_000, 1, 10_000_000, 1)])
    assert (last.buffer_percent, last.map_messages_read) == (5, 10_000_000)


def test_a_map_is_never_more_than_full_however_many_keys_there_were():
    assert LastCompaction.of_round(UNITS[:1], [measure(0, 99, 99, 99, 99)]).buffer_percent == 100


@pytest.mark.parametrize(
    ("units", "measures"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param(UNITS[1:], MEASURES[2:], id="only retention was due"),
        pytest.param([replace(UNITS[0], map_slots=None)], MEASURES, id="a round without slots of its map"),
        pytest.param(UNITS, [LogMeasure(0, records_in=9)], id="a check with one measure"),
    ],
)
def test_a_round_without_a_compaction_or_with_missing_measures_has_no_last_compaction(units, measures):
    assert LastCompaction.of_round(units, measures) is None


EARLIER = '{"clean_ms": 5, "buffer_percent": 178.0, "records_in": 9, "records_out": 4}'


@pytest.mark.parametrize("text", [None, "", "{}", "[]", "5", "x", '{"clean_ms": "x"}', EARLIER], ids=repr)
def test_an_invalid_last_compaction_is_read_as_none(text):
    assert LAST_COMPACTION_JSON.value_or_none(text) is None
    assert compaction_samples("orders", LAST_COMPACTION_JSON.value_or_none(text)) == []


def test_a_topic_has_its_own_bytes_and_the_evidence_those_of_the_newest_measurement():
    measured = {"orders": StoredBytes(2, 10, 20, 30, 40), "users": StoredBytes(1, 1, 2, 3, 4)}
    found = {(s.metric.name, *s.labels): s.value for s in stored_samples(measured)}
    assert found == {
        ("stored-bytes", "orders", "data"): 10,
        ("stored-bytes", "orders", "metadata"): 20,
        ("stored-bytes", "orders", "data_docs"): 30,
        ("stored-bytes", "users", "data"): 1,
        ("stored-bytes", "users", "metadata"): 2,
        ("stored-bytes", "users", "data_docs"): 3,
        ("evidence-bytes",): 40,
    }
    assert list(stored_samples({})) == []
    text = STORED_JSON.text(measured["orders"])
    assert (STORED_JSON.value_or_none(text), STORED_JSON.value_or_none("{}")) == (measured["orders"], None)


def test_a_compaction_of_nothing_kept_nothing():
    assert LastCompaction(1, 1.0, 0, 0, 0, 0, 0, 0, 0).recopy_percent == 0


# ---- the table


def test_every_metric_has_a_name_of_its_own_and_kafkas_are_kafkas():
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    kafkas = {metric.name for metric in METRICS if metric.kafka}
    assert kafkas == {
        "max-dirty-percent",
        "cleaner-recopy-percent",
        "max-clean-time-secs",
        "max-compaction-delay-secs",
        "max-buffer-utilization-percent",
        "uncleanable-partitions-count",
        "uncleanable-bytes",
        "time-since-last-run-ms",
        "DeadThreadCount",
    }


def test_the_names_of_queries_are_those_that_prometheus_allows():
    assert m.MAX_DIRTY_PERCENT.exposed == "cleantail_max_dirty_percent"
    assert m.ROUNDS.exposed == "cleantail_rounds_total"
    assert m.DEAD_THREADS.exposed == "cleantail_dead_thread_count"
    assert m.MAP_MESSAGES_READ.exposed == "cleantail_round_map_messages_read"
    assert all(metric.exposed.replace("_", "").isalnum() for metric in METRICS)


def test_samples_are_grouped_in_the_order_of_the_table():
    samples = [Sample(m.ROUNDS, ("a",), 1), Sample(m.MAX_DIRTY_PERCENT, ("a",), 2), Sample(m.ROUNDS, ("b",), 3)]
    assert [(metric.name, len(found)) for metric, found in by_metric(samples)] == [
        ("max-dirty-percent", 1),
        ("rounds", 2),
    ]

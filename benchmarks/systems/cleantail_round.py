"""Cleantail's own round, step by step, and a plain scan of the key columns as the minimum."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.harness.dataset import Built, build, reset
from benchmarks.harness.fresh_process import BenchmarkError, Stopwatch, in_fresh_process, require_records, say
from benchmarks.harness.lake import Lake
from benchmarks.harness.report import Times
from benchmarks.harness.shape import NOW_MS, Shape
from benchmarks.systems.spark_costs import Costs, Meter, NewFiles
from cleantail.config.topic_table import KEY, OFFSET, quoted

if TYPE_CHECKING:
    from cleantail.config.platform import Platform
    from spark_jobs.iceberg.tables import TopicTable

SCAN, EVALUATE, ROUND, CHECK, PUBLISH, PROOF = "scan", "evaluate", "round", "check", "publish", "proof"


@dataclass(frozen=True, slots=True)
class CleantailRound:
    """Seconds by step, and the bytes of the last repetition."""

    seconds: dict[str, Times]
    round_costs: Costs
    check_costs: Costs
    written: NewFiles
    log_bytes: int
    peak_memory_bytes: int


def measured_round(lake: Lake, shape: Shape, repetitions: int) -> CleantailRound:
    """Make the data set if it is missing. Measure its round in another process, because making it takes memory."""
    in_fresh_process(build, lake, shape)
    return in_fresh_process(measure_round, lake, shape, repetitions)


def measure_round(lake: Lake, shape: Shape, repetitions: int) -> CleantailRound:
    """Measure scan, evaluate, round, check and publish: one cold repetition, and `repetitions` warm ones.

    Great Expectations is imported first: the benchmark `startup` measures that time.
    """
    import great_expectations  # noqa: F401

    built, table = build(lake, shape), lake.table(shape.topic)
    watch, meter = Stopwatch(), Meter(table.spark)
    for number in range(repetitions + 1):
        say(f"round {number} of {repetitions}: {shape.text}")
        reset(table, shape, built)
        files = NewFiles.before(table)
        costs = _repetition(lake, table, shape, watch, meter)
        written = files.now(table)
        require_records(live_records(lake, shape.topic), shape.survivors, "our round")
    reset(table, shape, built)
    return CleantailRound(
        {name: Times.of(seconds) for name, seconds in watch.seconds.items()},
        costs[0],
        costs[1],
        written,
        built.log_bytes,
        meter.peak_memory_bytes(),
    )


def compact_once(lake: Lake, table: TopicTable, shape: Shape, built: Built) -> None:
    """Take the table through one published round."""
    reset(table, shape, built)
    _repetition(lake, table, shape, Stopwatch(), Meter(table.spark))
    require_records(live_records(lake, shape.topic), shape.survivors, "our round")


def live_records(lake: Lake, topic: str) -> int:
    """Return the number of records that a reader sees, from metadata."""
    from cleantail.lake.evaluate import read_facts

    facts = read_facts(lake.topic(topic))
    return sum(f.live_records for p in facts.partitions for f in facts.files_of(p)) if facts else 0


def _repetition(lake: Lake, table: TopicTable, shape: Shape, watch: Stopwatch, meter: Meter) -> tuple[Costs, Costs]:
    from cleantail.lake.evaluate import evaluate_topic
    from spark_jobs.round.check import check_round
    from spark_jobs.round.make import compact_unit
    from spark_jobs.round.publish import publish_round

    # 1. the minimum: a scan of the keys
    platform = lake.platform
    with watch(SCAN):
        scan_keys(table)
    _require_unique_tail(table, platform, watch)
    # 2. the plan, which must have the logs and offsets of the shape
    with watch(EVALUATE):
        plan = evaluate_topic(table.topic, now_ms=NOW_MS, force=True)
    _require_span(shape, plan)
    # 3. the round
    meter.start()
    with watch(ROUND):
        compacted = [compact_unit(table, unit) for unit in plan.units]
    round_costs = meter.start()
    # 4. its check
    with watch(CHECK):
        checked = check_round(table, plan.round, compacted)
    check_costs = meter.start()
    if not checked.ok:
        raise BenchmarkError(f"the check of {shape.text} failed: {checked.verdicts}")
    # 5. its commit
    with watch(PUBLISH):
        publish_round(table, checked)
    return round_costs, check_costs


def _require_unique_tail(table: TopicTable, platform: Platform, watch: Stopwatch) -> None:
    """Measure a proof that the keys of the table as it was built are unique below the first update."""
    from cleantail.lake.evaluate import log_states, read_facts
    from cleantail.log.work_units import PartitionWork
    from spark_jobs.engine.measures import prove_keys

    head = int(table.load().currentSnapshot().snapshotId())
    logs = log_states(table.topic, read_facts(table.topic), now_ms=NOW_MS)
    works = tuple(PartitionWork(log.partition, 0, log.first_dirty_offset, 0, 0, records=log.records) for log in logs)
    with watch(PROOF):
        counts = prove_keys(table.at_snapshot(head), works)
    if any(count.twice for count in counts.values()):
        raise BenchmarkError(f"keys of {table.name} are not unique below the first update: {counts}")


def scan_keys(table: TopicTable) -> None:
    """Read only the columns that decide which records are superseded."""
    columns = table.topic.columns
    key, offset = (columns.of(KEY)[0], columns.partition_and_offset[1]) if columns else (KEY, OFFSET)
    table.spark.table(table.name).selectExpr(f"sum(length({quoted(key)}))", f"sum({quoted(offset)})").collect()


def _require_span(shape: Shape, plan: Any) -> None:
    """Raise BenchmarkError unless the plan has all logs of the shape, from the first dirty offset to the end."""
    spans = sorted((w.partition, w.first_dirty_offset, w.end_offset) for u in plan.units for w in u.partitions)
    expected = [(p, shape.first_dirty_offset, shape.per_log) for p in range(shape.partitions)]
    if spans != expected:
        raise BenchmarkError(f"planned (partition, from, to) {spans}, expected {expected}: {os.linesep}{plan.reason}")

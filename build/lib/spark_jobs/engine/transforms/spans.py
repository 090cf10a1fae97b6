"""Spans of offsets as conditions of Spark SQL, by which Iceberg leaves files unread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from cleantail.config.topic_table import OFFSET, PARTITION
from cleantail.log.work_units import PartitionWork


def below_end(records: DataFrame, works: Sequence[PartitionWork]) -> DataFrame:
    """Returns the records of the works' logs in [log start, end): all that a round reads."""
    return records.where(span_condition({w.partition: (w.log_start_offset, w.end_offset) for w in works}))


def span_condition(spans: Mapping[int, tuple[int, int]], table: str = "") -> str:
    """Returns SQL of plain comparisons of numbers, by which Iceberg can prune files. Ends are exclusive."""
    prefix = f"{table}." if table else ""
    parts = [
        f"({prefix}`{PARTITION}` = {p:d} AND {prefix}`{OFFSET}` >= {low:d} AND {prefix}`{OFFSET}` < {high:d})"
        for p, (low, high) in spans.items()
    ]
    return f"({' OR '.join(parts)})" if parts else "false"

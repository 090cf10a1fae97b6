"""A round with few dirty records opens only the files that can hold one of their keys, where the files' bounds tell.

Iceberg keeps the first 16 bytes of the lowest and the highest key of each file. Where keys come in some order (ids
that grow, a date at the front), few files overlap the keys of few records; where they are hashes, all do, and nothing
is filtered.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cleantail.config.topic_table import KEY
from cleantail.log.work_units import WorkUnit
from spark_jobs.engine.transforms.winners import dirty_part
from spark_jobs.iceberg.snapshot_files import SnapshotFiles

DIRTY_SHARE = 0.05
"""Share of dirty records up to which this is tried: the keys of more will be everywhere."""
SKIPPED_SHARE = 0.5
"""Share of the bytes that must be skipped, or comparing keys costs more than it saves."""


def touched_keys(records: DataFrame, unit: WorkUnit, files: SnapshotFiles) -> Column | None:
    """Returns a condition that every record with a dirty key meets, and by which Iceberg skips files. None where it
    would skip too little, or where the table was adopted: its keys may be other bytes than its bounds. `records`:
    (partition, offset, key)."""
    if files.columns is not None:
        return None
    dirty = sum(work.dirty_records for work in unit.partitions)
    if not dirty or dirty > DIRTY_SHARE * files.record_count({work.partition for work in unit.partitions}):
        return None
    bounds = dirty_part(records, unit.partitions).agg(F.min(KEY).alias("low"), F.max(KEY).alias("high")).collect()[0]
    if bounds["low"] is None or files.share_with_keys(bytes(bounds["low"]), bytes(bounds["high"])) > 1 - SKIPPED_SHARE:
        return None
    return (F.col(KEY) >= F.lit(bounds["low"])) & (F.col(KEY) <= F.lit(bounds["high"]))

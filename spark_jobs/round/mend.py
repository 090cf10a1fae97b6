"""Mend deletion vectors that make a table unreadable. `cleantail mend` calls this module. No DAG does.

One commit replaces the vectors of each affected data file by one vector. Positions that any of them deletes stay
deleted. Vectors of removed data files are dropped. Spark cannot plan a read of such a table, so this module reads the
vectors from the manifests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pyroaring import BitMap64
from pyspark.sql import SparkSession

from cleantail.lake.repairable_deletes import DamagedVectors
from cleantail.rounds.commit_summaries import MEND, OPERATION
from spark_jobs.iceberg.commits import new_update, send
from spark_jobs.iceberg.iceberg_reads import iceberg_table
from spark_jobs.iceberg.java_calls import described_file, each
from spark_jobs.iceberg.log_files import Lost, read_deletes_in_driver, write_deletes


def mend_table(spark: SparkSession, name: str, damaged: DamagedVectors) -> None:
    """Commit the mended vectors of the table with this quoted name. Raises ConflictError if they changed meanwhile."""
    table, jvm = iceberg_table(spark, name), spark._jvm
    by_file: dict[str, list[Any]] = {path: [] for path in (*damaged.unreadable, *damaged.gone)}
    for vector in _vectors(jvm, table):
        if (path := str(vector.referencedDataFile())) in by_file:
            by_file[path].append(vector)
    lost: list[Lost] = []
    for path in damaged.unreadable:
        described = [described_file(jvm, table, vector) for vector in by_file[path]]
        positions = (read_deletes_in_driver(table, vector.deleted_positions, path) for vector in described)
        lost.append((replace(described[0], path=path), BitMap64.union(*positions)))
    written = write_deletes(jvm, table, lost) if lost else ()
    base = table.currentSnapshot().snapshotId()

    def stage_mended(iceberg: Any, transaction: Any) -> None:
        delta = new_update(transaction, "newRowDelta").validateFromSnapshot(base).set(OPERATION, MEND)
        for vector in (vector for vectors in by_file.values() for vector in vectors):
            delta.removeDeletes(vector)
        for vector in written:
            delta.addDeletes(vector)
        delta.commit()

    send(lambda: iceberg_table(spark, name), stage_mended)


def _vectors(jvm: Any, table: Any) -> Iterator[Any]:
    for manifest in each(table.currentSnapshot().deleteManifests(table.io())):
        reader = jvm.org.apache.iceberg.ManifestFiles.readDeleteManifest(manifest, table.io(), table.specs())
        try:
            yield from (file for file in each(reader) if file.contentOffset() is not None)
        finally:
            reader.close()

"""Records of an adopted table in the columns of a topic table (cleantail.log.adopted_table), and the bounds of offsets
that no column holds (cleantail.log.adopted_table)."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cleantail.config.topic_table import Columns, quoted
from cleantail.log.adopted_table import Lineage, expressions, offset_range, spans_of_metrics
from spark_jobs.iceberg.planned_files import PlannedFile

METADATA = ("_file", "_pos", "_row_id")
"""Iceberg's hidden columns that rounds use: behind a projection they are there only if it has them."""
POSITION_AS_ROW_ID = "concat(`_file`, '#', lpad(cast(`_pos` AS string), 19, '0')) AS `_row_id`"
"""Records of format version 2, and those that an upgraded table had before, have no row ids. Their place does as well:
base and branch have the same data files."""


def as_topic_table(stored: DataFrame, columns: Columns, *more: str) -> DataFrame:
    """Returns the columns of a topic table and the hidden ones, with `more` of Iceberg's. What a plan does not use is
    not read."""
    return stored.selectExpr(*_named(stored, columns), *METADATA[:2], *more, POSITION_AS_ROW_ID)


def topic_columns_sql(stored: DataFrame, columns: Columns) -> str:
    """Returns the columns of a topic table as a select list, without the hidden ones."""
    return ", ".join(_named(stored, columns))


def topic_columns(stored: DataFrame, columns: Columns) -> list[Column]:
    """Return the same as columns."""
    return list(map(F.expr, _named(stored, columns)))


def _named(stored: DataFrame, columns: Columns) -> list[str]:
    paths = list(dict.fromkeys(columns.paths.values()))
    kinds = [field.dataType.simpleString() for field in stored.select(*map(quoted, paths)).schema]
    sql_of_columns = expressions(columns, dict(zip(paths, kinds, strict=True)))
    return [f"{sql} AS `{name}`" for name, sql in sql_of_columns.items()]


def lineage_of(registrations: Sequence[PlannedFile], with_updates: bool) -> Lineage:
    """Returns what the records of a file inherit, as it came first. `with_updates`: the sequence number, too, which
    takes a call of the JVM for each."""
    row_ids = [f.facts.first_row_id for f in registrations if f.facts.first_row_id is not None]
    updated = min(f.updated for f in registrations) if with_updates else 0
    return Lineage(min(row_ids, default=None), updated)


def made_bounds(file: PlannedFile, lineage: Lineage) -> tuple[int | None, int | None]:
    """Returns the bounds of the offsets that row lineage gives; None where only the file itself tells whether it has
    lineage of its own. Raises TableError without row ids."""
    spans = spans_of_metrics(file.facts.null_value_counts, *file.facts.bounds())
    return (None, None) if spans is None else offset_range(file.facts.records, lineage, file.path, spans)

"""Where records lie in their table's files, as columns by which copies of a record are told apart."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

FILE = "ct_file"
POS = "_pos"


def with_position(records: DataFrame, *columns: str) -> DataFrame:
    """Returns the columns, and where each record lies: (…, ct_file: hash of the file's name, _pos: its position in the
    file)."""
    return records.select(*columns, F.xxhash64("_file").alias(FILE), POS)

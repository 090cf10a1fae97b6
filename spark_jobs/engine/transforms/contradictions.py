"""Says which offsets of a log have two different records (cleantail.log.rules), by digests of what is
compared.

A value is as long as it likes: its SHA-256 is what travels to the others of its offset.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cleantail.config.topic_table import HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, VALUE
from cleantail.log.rules import CANDIDATE, COMPARED

PART = "part"
"""The column of a record's part."""
COLUMNS = (PARTITION, OFFSET, *COMPARED, PART)


def spans_twice(records: DataFrame) -> DataFrame:
    """Returns (partition, low, high): for each log the range, to the next 64 offsets, outside of which no offset of a
    candidate occurs more than once. Reads neither keys nor values."""
    bits = F.bit_or(F.expr(f"shiftleft(1L, cast(`{OFFSET}` & 63 AS int))")).alias("bits")
    bits_of_offsets = records.groupBy(PARTITION, F.shiftright(OFFSET, 6).alias("word")).agg(
        F.count("*").alias("records"), bits, F.min(PART).alias(PART)
    )
    repeated = bits_of_offsets.where(f"records > bit_count(bits) AND {PART} = {CANDIDATE}").groupBy(PARTITION)
    return repeated.agg((F.min("word") * 64).alias("low"), (F.max("word") * 64 + 63).alias("high"))


def _twice(records: DataFrame) -> DataFrame:
    by_offset = records.groupBy(PARTITION, OFFSET).agg(F.count("*").alias("records"), F.min(PART).alias(PART))
    return by_offset.where(f"records > 1 AND {PART} = {CANDIDATE}").select(PARTITION, OFFSET)


def at_repeated_offsets(records: DataFrame) -> DataFrame:
    """Returns the records whose offset another one has as well, and a candidate is one of them."""
    return records.join(_twice(records), [PARTITION, OFFSET], "left_semi")


def contradicting(records: DataFrame) -> DataFrame:
    """Returns one row for each offset with two different records, of which one is a candidate: (partition, offset, for
    each of COMPARED whether they differ in it, part: the highest). `records`: COLUMNS."""
    digests = records.select(PARTITION, OFFSET, PART, *(_digest(name).alias(name) for name in COMPARED))
    by_offset = digests.groupBy(PARTITION, OFFSET).agg(
        *((F.min(name) != F.max(name)).alias(name) for name in COMPARED),
        F.max(PART).alias(PART),
        F.min(PART).alias("lowest_part"),
    )
    differ = reduce(or_, (F.col(name) for name in COMPARED))
    return by_offset.where((F.col("lowest_part") == CANDIDATE) & differ).drop("lowest_part")


def _digest(name: str) -> Column:
    """Returns a text that is equal for equal fields and only for those. A null has the empty text, which no digest
    is."""
    column = F.col(name)
    text = {
        KEY: F.sha2(column, 256),
        VALUE: F.sha2(column, 256),
        TIMESTAMP: F.unix_micros(column).cast("string"),
        HEADERS: F.sha2(F.to_json(F.coalesce(column, F.array())).cast("binary"), 256),
    }[name]
    return F.coalesce(text, F.lit(""))


def first_by_log(contradictions: DataFrame) -> DataFrame:
    """Returns (partition, offsets: how many, first: the row of the lowest offset), one row for each log with a
    contradiction."""
    first = F.min(F.struct(OFFSET, *COMPARED, PART))
    return contradictions.groupBy(PARTITION).agg(F.count("*").alias("offsets"), first.alias("first"))

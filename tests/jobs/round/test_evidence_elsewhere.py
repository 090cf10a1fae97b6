"""docs/lineage.md: what failed, as other engines read it from the evidence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.jobs.conftest import Workshop
from tests.jobs.round.test_rounds import NOW, record

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "lineage.md").read_text()
QUERIES = dict(re.findall(r"<!-- evidence: ([a-z]+) -->\n```[a-z]+\n(.*?)```", PAGE, re.DOTALL))
TOO_LONG = {"expectation": "expect_column_value_lengths_to_be_between", "kwargs": {"column": "key", "max_value": 2}}


def test_spark_and_duckdb_find_the_check_that_failed(workshop: Workshop, spark: SparkSession) -> None:
    topic = workshop.topic("evidence-elsewhere", checks=[TOO_LONG])
    file = workshop.file("a.jsonl", [record(o, key, "x") for o, key in enumerate(["a", "a", "toolong", "a"])])
    workshop.ok("ingest", topic, "--file", file)
    assert workshop.run("compact", topic, "--now", NOW)[0] == 1
    expected = [(0, TOO_LONG["expectation"], "1 of 2 records, at offset 2")]
    of_spark = [row for row in spark.sql(QUERIES["spark"]).collect() if row.topic == topic]
    assert [(row.partition, row.expectation, row.observed) for row in of_spark] == expected
    found: dict[str, Any] = {}
    exec(QUERIES["duckdb"].replace('Path("config")', f"Path({str(workshop.config)!r})"), found)
    assert [(p, e, o) for t, p, _, e, o in found["rows"] if t == topic] == expected

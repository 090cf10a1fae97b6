"""What a record holds stays in the topic's table: nothing of it in evidence, Great Expectations' stores, Data Docs,
results and texts, whatever check fails on it. By the real Great Expectations and the real Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.quality import data_docs
from tests.conftest import DEEP
from tests.jobs.conftest import QuietWorkshop
from tests.jobs.round.test_rounds import NOW, record

KEY, VALUE, HEADER = "marker-of-a-key", "marker-of-a-value", "marker-of-a-header"
MARKERS = (KEY, VALUE, HEADER)
PAIRS = {"column_A": "key", "column_B": "value"}
BOTH = {"column_list": ["key", "value"]}
PATTERNS = {"regex_list": ["^m.rker"]}
FAILING: list[tuple[str, dict[str, Any]]] = [
    ("expect_column_distinct_values_to_be_in_set", {"column": "value", "value_set": ["x"]}),
    ("expect_column_distinct_values_to_contain_set", {"column": "value", "value_set": ["x"]}),
    ("expect_column_distinct_values_to_equal_set", {"column": "key", "value_set": ["x"]}),
    ("expect_column_most_common_value_to_be_in_set", {"column": "value", "value_set": ["x"]}),
    ("expect_column_pair_values_to_be_equal", PAIRS),
    ("expect_column_pair_values_to_be_in_set", PAIRS | {"value_pairs_set": [["a", "b"]]}),
    ("expect_column_stdev_to_be_between", {"column": "value", "max_value": 1}),
    ("expect_column_sum_to_be_between", {"column": "value", "max_value": 1}),
    ("expect_column_unique_value_count_to_be_between", {"column": "value", "max_value": 0}),
    ("expect_column_value_lengths_to_be_between", {"column": "value", "max_value": 1}),
    ("expect_column_value_lengths_to_equal", {"column": "key", "value": 1}),
    ("expect_column_values_to_be_in_set", {"column": "value", "value_set": ["x"]}),
    ("expect_column_values_to_be_json_parseable", {"column": "value"}),
    ("expect_column_values_to_be_null", {"column": "value"}),
    ("expect_column_values_to_be_null", {"column": "headers"}),
    ("expect_column_values_to_be_unique", {"column": "value"}),
    ("expect_column_values_to_be_unique", {"column": "headers"}),
    ("expect_column_values_to_match_json_schema", {"column": "value", "json_schema": {"type": "object"}}),
    ("expect_column_values_to_match_regex", {"column": "key", "regex": "^x"}),
    ("expect_column_values_to_match_regex_list", {"column": "value", "regex_list": ["^x"]}),
    ("expect_column_values_to_match_strftime_format", {"column": "value", "strftime_format": "%Y"}),
    ("expect_column_values_to_not_match_regex", {"column": "value", "regex": "^m.rker"}),
    ("expect_column_values_to_not_match_regex_list", {"column": "key"} | PATTERNS),
    ("expect_compound_columns_to_be_unique", {"column_list": ["timestamp_type", "headers"]}),
    ("expect_multicolumn_values_to_be_equal", BOTH),
    ("expect_table_row_count_to_equal", {"value": 7}),
]

ALIKE = {
    "expect_column_distinct_values_to_contain_set",
    "expect_column_distinct_values_to_equal_set",
    "expect_column_pair_values_to_be_in_set",
    "expect_column_stdev_to_be_between",
    "expect_column_sum_to_be_between",
    "expect_column_unique_value_count_to_be_between",
    "expect_column_value_lengths_to_equal",
    "expect_column_values_to_be_in_set",
    "expect_column_values_to_be_json_parseable",
    "expect_column_values_to_be_null",
    "expect_column_values_to_match_regex_list",
    "expect_column_values_to_match_strftime_format",
    "expect_column_values_to_not_match_regex",
    "expect_column_values_to_not_match_regex_list",
    "expect_multicolumn_values_to_be_equal",
}
"""Whose results have the form of another one's: of values, of pairs, of columns together, of one number. `make test-deep` asks them too."""
UNEVALUABLE = {
    "expect_column_stdev_to_be_between",
    "expect_column_sum_to_be_between",
    "expect_column_values_to_match_json_schema",
}
"""What Great Expectations fails at on these records. They have a topic of their own, with two checks that are evaluated:
beside an error, Great Expectations computes what it asks for all the other checks three times."""
BESIDE = {"expect_column_values_to_match_regex", "expect_table_row_count_to_equal"}
"""These two: of one it is told which records fail, also beside an error."""
ASKED = [check for check in FAILING if DEEP or check[0] not in ALIKE]
TOPICS = {
    "marked": [check for check in ASKED if check[0] not in UNEVALUABLE],
    "marked-unevaluable": [check for check in ASKED if check[0] in UNEVALUABLE | BESIDE],
}
"""Topic -> its checks."""


def lines(partition: int = 0) -> list[dict[str, Any]]:
    """Five records with markers everywhere; two have the same value and the same headers."""
    names = [("a", "same"), ("b", "same"), ("c", "other"), ("a", "more")]
    marked = [
        record(i, f"{KEY}-{key}", f"{VALUE}-{value}", partition=partition) | {"headers": ["h", HEADER]}
        for i, (key, value) in enumerate(names)
    ]
    return [*marked, record(4, f"{KEY}-c", None, partition=partition)]


def texts_below(folder: Path) -> dict[str, str]:
    """Every file below a folder as text."""
    for writer in list(data_docs._WRITING.values()):
        writer.join()
    return {str(file): file.read_text(errors="replace") for file in folder.rglob("*") if file.is_file()}


def with_markers(texts: dict[str, str]) -> dict[str, list[str]]:
    return {name: found for name, text in texts.items() if (found := [m for m in MARKERS if m in text])}


@pytest.fixture(scope="module")
def red(spark, tmp_path_factory):  # type: ignore[no-untyped-def]
    """Topics whose round fails at every check, run once: (workshop, topic -> what `compact` said)."""
    workshop = QuietWorkshop(tmp_path_factory.mktemp("red"))
    alerts = [{"type": "file", "path": "alerts/all.jsonl"}]
    for name, asked in TOPICS.items():
        checks = [{"expectation": expectation, "kwargs": kwargs} for expectation, kwargs in asked]
        workshop.topic(name, checks=checks, alerts=alerts)
        workshop.ok("ingest", name, "--file", workshop.file("a.jsonl", lines()))
    return workshop, {name: workshop.run("compact", name, "--now", NOW, "--json") for name in TOPICS}


def failures_in(out: str) -> list[dict[str, Any]]:
    failures: list[dict[str, Any]] = json.loads(out)["compacted"]["verdicts"][0]["failures"]
    return failures


@pytest.mark.parametrize("topic", TOPICS)
def test_no_result_of_a_check_holds_what_a_record_holds(red, topic):
    workshop, said = red
    code, out, err = said[topic]
    assert code == 1, err
    failures = failures_in(out)
    assert {f["expectation"] for f in failures} == {name for name, _ in TOPICS[topic]}
    assert {f["expectation"] for f in failures if f["error"]} == {name for name, _ in TOPICS[topic]} & UNEVALUABLE
    home = workshop.platform().home
    stored = texts_below(home / "data_docs" / topic)
    assert len([name for name in stored if "validations" in name]) >= 4  # of two suites, as JSON and as pages
    rows = {f"evidence of {row['round']}": json.dumps(row, default=str) for row in workshop.evidence(topic)}
    assert with_markers({"out": out, "err": err, **rows, **stored}) == {}


def test_what_failed_is_found_by_its_offsets(red):
    """The value of offset 1 is that of offset 0; offsets 0 and 2 are superseded, and 4 has no value."""
    _, said = red
    beside = {f["expectation"]: f["offsets"] for f in failures_in(said["marked-unevaluable"][1])}
    assert beside["expect_column_values_to_match_regex"] == [1, 3, 4]
    failures = failures_in(said["marked"][1])
    found = {(f["expectation"], f["rule"].partition(",")[0]): (f["offsets"], f["observed"]) for f in failures}
    lengths = found["expect_column_value_lengths_to_be_between", "column=value"]
    assert lengths == ([1, 3], "2 of 3 records, at offsets 1, 3")
    assert found["expect_column_values_to_match_regex", "column=key"][0] == [1, 3, 4]
    assert found["expect_column_values_to_be_unique", "column=headers"][0] == [1, 3]
    hidden = "observed a value of records, which is not kept"
    assert found["expect_column_most_common_value_to_be_in_set", "column=value"] == ([], hidden)
    assert found["expect_table_row_count_to_equal", "value=7"] == ([], "observed 3")

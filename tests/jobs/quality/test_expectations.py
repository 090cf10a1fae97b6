"""The list of expectations, on the real Great Expectations and the real Spark: what is on it works, what is not does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from cleantail.config.topic_checks import (
    EXPECTATION_NAMES,
    NUMBERS_ONLY,
    NUMBERS_OR_TIMES,
    OF_SEVERAL_COLUMNS,
    SCHEMAS,
    argument_problems,
    class_name,
    column_problems,
)
from cleantail.config.topic_table import COLUMNS
from docs_site.expectation_schemas import EXCLUDED, core_expectations
from docs_site.expectation_schemas import as_text as schemas_as_text
from spark_jobs.quality.gx_validation import imported
from spark_jobs.quality.time_limit import error_in
from spark_jobs.round.approvals import as_text, read_once

pytestmark = pytest.mark.gx

RIGHT = {
    "expect_column_distinct_values_to_be_in_set": {"column": "partition", "value_set": [0]},
    "expect_column_distinct_values_to_contain_set": {"column": "partition", "value_set": [0]},
    "expect_column_distinct_values_to_equal_set": {"column": "partition", "value_set": [0]},
    "expect_column_kl_divergence_to_be_less_than": {
        "column": "key",
        "partition_object": {"values": ["1", "2"], "weights": [0.5, 0.5]},
        "threshold": 100.0,
    },
    "expect_column_max_to_be_between": {"column": "offset", "max_value": 99},
    "expect_column_mean_to_be_between": {"column": "offset", "max_value": 99},
    "expect_column_median_to_be_between": {"column": "offset", "max_value": 99},
    "expect_column_min_to_be_between": {"column": "offset", "max_value": 99},
    "expect_column_most_common_value_to_be_in_set": {"column": "partition", "value_set": [0]},
    "expect_column_pair_values_a_to_be_greater_than_b": {"column_A": "offset", "column_B": "partition"},
    "expect_column_pair_values_to_be_equal": {"column_A": "timestamp_type", "column_B": "partition"},
    "expect_column_pair_values_to_be_in_set": {
        "column_A": "timestamp_type",
        "column_B": "partition",
        "value_pairs_set": [[0, 0]],
    },
    "expect_column_proportion_of_non_null_values_to_be_between": {"column": "key", "min_value": 0.5},
    "expect_column_proportion_of_unique_values_to_be_between": {"column": "key", "min_value": 0.5},
    "expect_column_quantile_values_to_be_between": {
        "column": "offset",
        "quantile_ranges": {"quantiles": [0.5], "value_ranges": [[0, 99]]},
    },
    "expect_column_stdev_to_be_between": {"column": "offset", "max_value": 99},
    "expect_column_sum_to_be_between": {"column": "offset", "max_value": 9999},
    "expect_column_to_exist": {"column": "offset"},
    "expect_column_type_to_be": {"column": "offset", "type_": "LongType"},
    "expect_column_unique_value_count_to_be_between": {"column": "offset", "max_value": 99},
    "expect_column_value_lengths_to_be_between": {"column": "key", "max_value": 99},
    "expect_column_value_lengths_to_equal": {"column": "timestamp_type", "value": 1},
    "expect_column_value_z_scores_to_be_less_than": {"column": "offset", "threshold": 99, "double_sided": True},
    "expect_column_values_to_be_between": {"column": "offset", "max_value": 99},
    "expect_column_values_to_be_decreasing": {"column": "partition"},
    "expect_column_values_to_be_in_set": {"column": "partition", "value_set": [0]},
    "expect_column_values_to_be_in_type_list": {"column": "key", "type_list": ["StringType"]},
    "expect_column_values_to_be_increasing": {"column": "partition"},
    "expect_column_values_to_be_json_parseable": {"column": "value"},
    "expect_column_values_to_be_null": {"column": "key", "mostly": 0.0},
    "expect_column_values_to_be_of_type": {"column": "key", "type_": "StringType"},
    "expect_column_values_to_be_unique": {"column": "key"},
    "expect_column_values_to_match_json_schema": {
        "column": "value",
        "json_schema": {"type": "object", "required": ["a"]},
    },
    "expect_column_values_to_match_regex": {"column": "key", "regex": "^."},
    "expect_column_values_to_match_regex_list": {"column": "key", "regex_list": ["^."]},
    "expect_column_values_to_match_strftime_format": {"column": "key", "strftime_format": "%Y", "mostly": 0.0},
    "expect_column_values_to_not_be_in_set": {"column": "partition", "value_set": [1]},
    "expect_column_values_to_not_be_null": {"column": "key"},
    "expect_column_values_to_not_be_outliers": {"column": "offset"},
    "expect_column_values_to_not_match_regex": {"column": "key", "regex": "^x"},
    "expect_column_values_to_not_match_regex_list": {"column": "key", "regex_list": ["^x"]},
    "expect_compound_columns_to_be_unique": {"column_list": ["partition", "offset"]},
    "expect_multicolumn_sum_to_equal": {"column_list": ["partition", "timestamp_type"], "sum_total": 0},
    "expect_multicolumn_values_to_be_equal": {"column_list": ["partition", "timestamp_type"]},
    "expect_select_column_values_to_be_unique_within_record": {"column_list": ["partition", "offset"]},
    "expect_table_column_count_to_be_between": {"max_value": 9},
    "expect_table_column_count_to_equal": {"value": 7},
    "expect_table_columns_to_match_ordered_list": {"column_list": list(COLUMNS)},
    "expect_table_columns_to_match_set": {"column_set": list(COLUMNS)},
    "expect_table_row_count_to_be_between": {"max_value": 99},
    "expect_table_row_count_to_equal": {"value": 19},
}
"""Arguments of each that can be evaluated on the records below."""
SUM = {"expect_multicolumn_sum_to_equal": {"sum_total": 1}}
WRONG = [
    ("expect_column_value_lengths_to_be_between", {"colum": "key", "max_value": 5}),
    ("expect_column_value_lengths_to_be_between", {"column": "key"}),
    ("expect_column_value_lengths_to_be_between", {"column": "key", "min_value": "nine"}),
    ("expect_column_values_to_be_between", {"column": "offset"}),
    ("expect_column_values_to_be_between", {"column": "offset", "min_value": "nine"}),
    ("expect_column_values_to_not_be_null", {"column": "key", "mostly": 1.5}),
    ("expect_column_values_to_not_be_null", {"column": 5}),
    ("expect_column_values_to_not_be_null", {"column": ""}),
    ("expect_column_values_to_be_in_set", {"column": "key"}),
    ("expect_column_distinct_values_to_be_in_set", {"column": "key", "value_set": []}),
    ("expect_column_values_to_match_regex_list", {"column": "key", "regex_list": "a"}),
    ("expect_column_values_to_match_strftime_format", {"column": "key", "strftime_format": "%"}),
    ("expect_table_row_count_to_be_between", {"min_value": 2, "max_value": 1}),
    ("expect_column_pair_values_to_be_equal", {"column_A": "key", "column_B": "value", "ignore_row_if": "never"}),
    *((name, {"column_list": ["offset"]} | SUM.get(name, {})) for name in sorted(OF_SEVERAL_COLUMNS)),
]
"""What Great Expectations refuses."""


@pytest.fixture(scope="module")
def batch(spark):  # type: ignore[no-untyped-def]
    """Ten records of a topic table, as a round's checks see them."""
    gx = imported()  # as a check imports it: without what no check uses
    records = spark.range(10).select(
        F.lit(0).alias("partition"),
        F.col("id").alias("offset"),
        F.timestamp_millis("id").alias("timestamp"),
        F.lit(0).alias("timestamp_type"),
        F.col("id").cast("string").cast("binary").alias("key"),
        F.col("id").cast("string").cast("binary").alias("value"),
        F.expr("array(named_struct('key', 'h', 'value', X'01'))").alias("headers"),
    )
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    source = context.data_sources.add_spark("records", persist=False)
    whole = source.add_dataframe_asset("records").add_batch_definition_whole_dataframe("whole")
    with read_once(as_text(records)) as asked:
        yield whole.get_batch({"dataframe": asked})


def expectation(name, arguments):
    from great_expectations import expectations

    return getattr(expectations, class_name(name))(**arguments)


@pytest.fixture(scope="module")
def validate(batch):  # type: ignore[no-untyped-def]
    """Evaluates one expectation. What has failed Great Expectations tries three times, with the same end: here once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("great_expectations.validator.validation_graph.MAX_METRIC_COMPUTATION_RETRIES", 1)
        yield lambda name, arguments: batch.validate(expectation(name, arguments))


@pytest.fixture(scope="module")
def errors(batch):  # type: ignore[no-untyped-def]
    """Evaluates expectations of different names in one suite, as a round does; gives the error of each, "" of most."""
    from great_expectations import ExpectationSuite

    def of(arguments):
        suite = ExpectationSuite("all", expectations=[expectation(n, a) for n, a in arguments.items()])
        return {r.expectation_config.type: error_in(r) for r in batch.validate(suite).results}

    return of


@pytest.fixture(scope="module")
def errors_of_right(errors):  # type: ignore[no-untyped-def]
    return errors(RIGHT)


def test_the_file_in_the_repository_is_that_of_the_installed_great_expectations():
    """Run `python -m docs_site.expectation_schemas > cleantail/config/expectation_schemas.json` after a change."""
    file = Path(__file__).parents[3] / "cleantail" / "config" / "expectation_schemas.json"
    assert file.read_text() == schemas_as_text()


def test_every_core_expectation_is_on_the_list_or_left_out_for_a_reason():
    core = core_expectations()
    assert set(core) == {*EXPECTATION_NAMES, *EXCLUDED}
    assert {name: class_name(name) for name in EXPECTATION_NAMES} == {
        name: core[name].__name__ for name in EXPECTATION_NAMES
    }


def test_no_argument_of_the_list_is_a_query_or_another_table():
    named = {argument for schema in SCHEMAS.values() for argument in schema["properties"]}
    assert not [name for name in named if "query" in name or "table" in name or "condition" in name]


def test_there_are_arguments_for_every_expectation():
    assert set(RIGHT) == set(EXPECTATION_NAMES)


@pytest.mark.parametrize("name", EXPECTATION_NAMES)
def test_an_expectation_of_the_list_takes_what_check_config_takes_and_works_on_spark(errors_of_right, name):
    assert argument_problems(name, RIGHT[name]) == []
    assert errors_of_right[name] == ""


def test_a_distribution_of_numbers_may_be_checked_by_bins(validate):
    name = "expect_column_kl_divergence_to_be_less_than"
    bins = {"bins": [0, 5, 10], "weights": [0.5, 0.5]}
    arguments = {"column": "offset", "partition_object": bins, "threshold": 0.1}
    assert argument_problems(name, arguments) == []
    result = validate(name, arguments)
    assert (error_in(result), result.success) == ("", True)


@pytest.mark.parametrize(("name", "arguments"), WRONG)
def test_what_great_expectations_refuses_check_config_refuses(name, arguments):
    with pytest.raises(ValueError, match="validation error"):
        core_expectations()[name](**arguments)
    assert argument_problems(name, arguments)


@pytest.mark.parametrize("name", sorted(NUMBERS_ONLY | NUMBERS_OR_TIMES))
def test_an_expectation_of_numbers_cannot_be_evaluated_on_text_even_if_it_is_all_numbers(validate, name):
    assert error_in(validate(name, RIGHT[name] | {"column": "value"}))


@pytest.mark.deep
@pytest.mark.parametrize("column", ["headers", "timestamp"])
def test_what_check_config_refuses_of_a_column_cannot_be_evaluated_and_what_it_takes_can(validate, errors, column):
    """But for bounds and sets of numbers, which no time is compared with: their own rule is tested in the kernel.

    test_an_expectation_of_numbers_cannot_be_evaluated_on_text_even_if_it_is_all_numbers holds the rule for numbers."""
    alone = {n: a | {"column": column} for n, a in RIGHT.items() if "column" in a and "value_set" not in a}
    alone = {n: a for n, a in alone.items() if n not in NUMBERS_OR_TIMES}
    refused = {n for n, a in alone.items() if column_problems(n, a, tuple(COLUMNS))}
    works = {n for n in refused if not error_in(validate(n, alone[n]))}
    harmless = {"expect_column_values_to_be_json_parseable"} if column == "headers" else NUMBERS_ONLY
    assert works <= harmless
    taken = errors({n: a for n, a in alone.items() if n not in refused})
    assert taken and not any(taken.values()), taken


@pytest.mark.parametrize("pattern", ["a{2,1}", "[z-a]", "a\\", "(?P<x>a)", "(?P=x)"])
def test_a_pattern_that_check_config_refuses_fails_in_java(validate, pattern):
    arguments = {"column": "key", "regex": pattern}
    assert argument_problems("expect_column_values_to_match_regex", arguments)
    assert error_in(validate("expect_column_values_to_match_regex", arguments))


def test_the_arguments_of_this_test_are_what_yaml_can_say():
    assert json.loads(json.dumps(RIGHT)) == RIGHT
    assert "headers" in COLUMNS

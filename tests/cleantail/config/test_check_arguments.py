"""Which arguments of a topic's own checks can work: schema, rules, columns, and nothing that would be evaluated."""

import math

import pytest

from cleantail.config.topic_checks import (
    EXPECTATION_NAMES,
    OF_SEVERAL_COLUMNS,
    SCHEMAS,
    argument_problems,
    column_problems,
)
from cleantail.config.topic_table import COLUMNS

BETWEEN = "expect_column_values_to_be_between"
LENGTHS = "expect_column_value_lengths_to_be_between"
QUANTILES = "expect_column_quantile_values_to_be_between"
DIVERGENCE = "expect_column_kl_divergence_to_be_less_than"
IN_SCHEMA = "expect_column_values_to_match_json_schema"
IN_SET = "expect_column_values_to_be_in_set"
REGEX = "expect_column_values_to_match_regex"
TIME = "expect_column_values_to_match_strftime_format"


def _told(expectation, arguments):
    return [str(problem) for problem in argument_problems(expectation, arguments)]


@pytest.mark.parametrize(
    ("expectation", "arguments", "expected"),
    [
        pytest.param(
            LENGTHS,
            {"colum": "key", "max_value": 5},
            "kwargs.colum: unknown argument: expect_column_value_lengths_to_be_between takes column, max_value, "
            "min_value, mostly, strict_max, strict_min (did you mean column?)\n"
            "kwargs.column: missing: a column of the records",
            id="a slip of the pen",
        ),
        pytest.param(
            LENGTHS,
            {"column": "key", "min_value": "nine"},
            'kwargs.min_value: "nine" is not allowed: a whole number',
            id="text for a number",
        ),
        pytest.param(
            LENGTHS,
            {"column": "key", "min_value": 1.5},
            "kwargs.min_value: 1.5 is not allowed: a whole number",
            id="a fraction for a whole number",
        ),
        pytest.param(
            LENGTHS,
            {"column": "key", "min_value": True},
            "kwargs.min_value: true is not allowed: a whole number",
            id="a boolean for a number",
        ),
        pytest.param(
            LENGTHS,
            {"column": "key", "min_value": 9, "max_value": 8},
            "kwargs.min_value: 9 is not allowed: at most max_value, which is 8",
            id="bounds the wrong way round",
        ),
        pytest.param(
            LENGTHS,
            {"column": "key"},
            "kwargs.min_value: missing: min_value, max_value or both",
            id="no bound",
        ),
        pytest.param(
            BETWEEN,
            {"column": "timestamp", "min_value": "2026-01-02", "max_value": "2026-01-01"},
            'kwargs.min_value: "2026-01-02" is not allowed: at most max_value, which is 2026-01-01',
            id="dates the wrong way round",
        ),
        pytest.param(
            BETWEEN,
            {"column": "timestamp", "min_value": "yesterday"},
            'kwargs.min_value: "yesterday" is not allowed: a number, or a date or time as text',
            id="no date",
        ),
        pytest.param(
            BETWEEN,
            {"column": "timestamp", "min_value": 1, "max_value": "2026-01-01"},
            'kwargs.max_value: "2026-01-01" is not allowed: of the same kind as min_value',
            id="bounds of two kinds",
        ),
        pytest.param(
            BETWEEN,
            {"column": "offset", "max_value": math.inf},
            "kwargs.max_value: Infinity is not allowed: a number, or a date or time as text",
            id="infinity",
        ),
        pytest.param(
            "expect_column_values_to_not_be_null",
            {"column": "key", "mostly": 1.01},
            "kwargs.mostly: 1.01 is not allowed: a number in [0, 1]",
            id="out of range",
        ),
        pytest.param(
            "expect_column_values_to_be_of_type",
            {"column": "key", "type_": "Stringtype"},
            "(did you mean StringType?)",
            id="no type of Spark",
        ),
        pytest.param(
            IN_SET,
            {"column": "partition", "value_set": []},
            "kwargs.value_set: [] is not allowed: a list, not empty, of text, or a list, not empty, of a number",
            id="an empty set",
        ),
        pytest.param(
            IN_SET,
            {"column": "partition", "value_set": ["a", 1]},
            'kwargs.value_set: ["a", 1] is not allowed: a list, not empty, of text, or a list, not empty, of a number',
            id="a set of two kinds",
        ),
        pytest.param(
            QUANTILES,
            {"column": "offset", "quantile_ranges": {"quantiles": [0.5, 0.9], "value_ranges": [[2, 1]]}},
            "kwargs.quantile_ranges.value_ranges: a list of 1 entry is not allowed: one pair for each of the 2 quantiles\n"
            "kwargs.quantile_ranges.value_ranges[0]: [2, 1] is not allowed: a pair of lower and upper bound",
            id="quantiles",
        ),
        pytest.param(
            DIVERGENCE,
            {"column": "key", "threshold": 0.1, "partition_object": {"values": ["a"], "weights": [0.5, 0.5]}},
            "kwargs.partition_object.weights: [0.5, 0.5] is not allowed: 1 weight",
            id="weights",
        ),
        pytest.param(
            REGEX,
            {"column": "key", "regex": "(a"},
            'kwargs.regex: "(a" is not allowed: a regular expression of Java; this one has a group without its closing parenthesis at position 0',
            id="regex",
        ),
        pytest.param(
            "expect_column_values_to_match_regex_list",
            {"column": "key", "regex_list": ["a", "[b"]},
            'kwargs.regex_list[1]: "[b" is not allowed: a regular expression of Java; this one has a set without its closing bracket',
            id="one regex of several",
        ),
        pytest.param(TIME, {"column": "key", "strftime_format": "%"}, "kwargs.strftime_format: ", id="time format"),
    ],
)
def test_an_argument_that_cannot_work_is_named_with_what_can(expectation, arguments, expected):
    text = "\n".join(_told(expectation, arguments))
    assert expected == text or expected in text


@pytest.mark.parametrize(
    ("expectation", "arguments"),
    [
        pytest.param(BETWEEN, {"column": "offset", "max_value": 5, "mostly": 0.5, "strict_max": True}, id="numbers"),
        pytest.param(BETWEEN, {"column": "timestamp", "min_value": "2026-01-01", "max_value": None}, id="a date"),
        pytest.param(REGEX, {"column": "key", "regex": r"(?<year>\p{L}+)[a-z&&[^b]]\Q(\E"}, id="Java's patterns"),
        pytest.param(REGEX, {"column": "value", "regex": "' or 1=1; select java_method()"}, id="a pattern is data"),
        pytest.param(IN_SCHEMA, {"column": "value", "json_schema": {"$ref": "#/$defs/a", "$defs": {}}}, id="own $ref"),
        pytest.param(
            IN_SCHEMA,
            {"column": "value", "json_schema": {"$id": "http://example.org/a", "properties": {"id": {}}}},
            id="own $id",
        ),
        pytest.param(
            IN_SCHEMA,
            {"column": "value", "json_schema": {"$id": "http://example.org/a", "properties": {"id": {}}}},
            id="own $id",
        ),
        pytest.param(
            QUANTILES,
            {"column": "offset", "quantile_ranges": {"quantiles": [0.5], "value_ranges": [[None, 9]]}},
            id="an open range",
        ),
        pytest.param(
            DIVERGENCE,
            {"column": "key", "threshold": 1, "partition_object": {"values": ["a", "b"], "weights": [0.5, 0.5]}},
            id="divergence",
        ),
    ],
)
def test_an_argument_that_can_work_is_taken(expectation, arguments):
    assert _told(expectation, arguments) == []


REFUSED = (
    "row_condition",
    "condition_parser",
    "meta",
    "notes",
    "id",
    "windows",
    "batch_id",
    "catch_exceptions",
    "result_format",
    "rendered_content",
    "severity",
    "description",
)


@pytest.mark.parametrize("expectation", EXPECTATION_NAMES)
def test_no_expectation_takes_what_is_sql_or_changes_how_results_are_kept(expectation):
    arguments = dict.fromkeys(REFUSED, "offset > 1")
    told = {problem.key for problem in argument_problems(expectation, arguments)}
    assert {f"kwargs.{name}" for name in REFUSED} <= told


def _places(schema, path=()):
    """Every place of a schema where a value may stand."""
    yield path
    for kind in schema.get("anyOf", ()):
        yield from _places(kind, path)
    for name, inner in schema.get("properties", {}).items():
        yield from _places(inner, (*path, name))
    if "items" in schema:
        yield from _places(schema["items"], (*path, 0))


def _with(path, value):
    """A value that has `value` at the path."""
    for part in reversed(path):
        value = {part: value} if isinstance(part, str) else [value]
    return value


@pytest.mark.parametrize("expectation", EXPECTATION_NAMES)
def test_a_suite_parameter_is_refused_at_every_depth(expectation):
    for path in set(_places(SCHEMAS[expectation])) - {()}:
        name, *below = path
        value = _with(below, {"$PARAMETER": "now() - timedelta(days=1)"})
        told = [problem.key for problem in argument_problems(expectation, {name: value})]
        assert any(key.startswith(f"kwargs.{name}") for key in told), (path, told)


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"$ref": "http://example.org/schema.json"}, id="fetched"),
        pytest.param({"properties": {"a": {"$ref": "file:///etc/hostname"}}}, id="read from disk"),
        pytest.param(
            {"$ref": "#/x/y", "x": {"y": {"properties": {"a": {"$id": "file:///etc/hosts", "$ref": "#/admin"}}}}},
            id="read from disk by its $id",
        ),
        pytest.param({"items": [{"id": "http://example.org/schema.json"}]}, id="fetched by its id"),
        pytest.param({"allOf": [{"$dynamicRef": "other.json"}]}, id="in a list"),
        pytest.param({"properties": {"a": {"const": {"$PARAMETER": "now()"}}}}, id="a parameter deep inside"),
    ],
)
def test_a_json_schema_fetches_and_evaluates_nothing(schema):
    [problem] = argument_problems(IN_SCHEMA, {"column": "value", "json_schema": schema})
    assert problem.key.startswith("kwargs.json_schema.")


def test_a_column_that_the_records_do_not_have_is_named_with_the_nearest():
    told = [str(p) for p in column_problems(LENGTHS, {"column": "keey", "max_value": 1}, COLUMNS)]
    assert told == [
        'kwargs.column: no column "keey": columns: partition, offset, timestamp, timestamp_type, key, value, headers '
        "(did you mean key?)"
    ]
    assert [str(p) for p in column_problems(BETWEEN, {"column": "value", "max_value": 1}, COLUMNS)] == [
        f'kwargs.column: "value" is text: {BETWEEN} takes partition, offset, timestamp, timestamp_type'
    ]
    assert column_problems(BETWEEN, {"column": "timestamp", "max_value": "2026-01-01"}, COLUMNS) == []
    many = {"column_list": ["key", "ofset"]}
    [problem] = column_problems("expect_compound_columns_to_be_unique", many, COLUMNS)
    assert (problem.key, problem.nearest) == ("kwargs.column_list[1]", "offset")


@pytest.mark.parametrize(
    ("expectation", "arguments", "expected"),
    [
        pytest.param(
            BETWEEN,
            {"column": "offset", "min_value": "2026-01-01"},
            'kwargs.min_value: "2026-01-01" is not allowed: a number, as offset is',
            id="an offset is no time",
        ),
        pytest.param(
            BETWEEN,
            {"column": "timestamp", "max_value": 5},
            "kwargs.max_value: 5 is not allowed: a date or time as text, as timestamp is",
            id="a time is no number",
        ),
        pytest.param(
            "expect_column_stdev_to_be_between",
            {"column": "timestamp", "max_value": 5},
            'kwargs.column: "timestamp" is a time: expect_column_stdev_to_be_between takes partition, offset, '
            "timestamp_type, key, value",
            id="no deviation of times",
        ),
        pytest.param(
            REGEX,
            {"column": "headers", "regex": "a"},
            f'kwargs.column: "headers" is a list of structs: {REGEX} takes partition, offset, timestamp, '
            "timestamp_type, key, value",
            id="no pattern for headers",
        ),
        pytest.param(
            "expect_column_pair_values_to_be_equal",
            {"column_A": "key", "column_B": "headers"},
            'kwargs.column_B: "headers" is a list of structs: expect_column_pair_values_to_be_equal takes partition, '
            "offset, timestamp, timestamp_type, key, value",
            id="headers are like no other column",
        ),
    ],
)
def test_a_column_of_a_kind_that_can_never_be_evaluated_is_refused(expectation, arguments, expected):
    assert [str(p) for p in column_problems(expectation, arguments, tuple(COLUMNS))] == [expected]


@pytest.mark.parametrize(
    ("expectation", "arguments"),
    [
        (LENGTHS, {"column": "timestamp", "min_value": 1}),
        ("expect_column_unique_value_count_to_be_between", {"column": "headers", "max_value": 9}),
        ("expect_column_values_to_not_be_null", {"column": "headers"}),
        ("expect_compound_columns_to_be_unique", {"column_list": ["offset", "headers"]}),
    ],
)
def test_what_can_be_asked_of_times_and_headers_is_taken(expectation, arguments):
    assert column_problems(expectation, arguments, tuple(COLUMNS)) == []


@pytest.mark.parametrize("pattern", ["a{2,1}", "[z-a]", "a\\", "(?P<year>[0-9]+)", "(?P=year)"])
def test_a_pattern_that_java_does_not_take_is_refused(pattern):
    assert _told(REGEX, {"column": "key", "regex": pattern})


@pytest.mark.parametrize("pattern", ["(?<year>[0-9]+)", r"\\(?P?", "[a-z&&[^b]]", "(?i)a"])
def test_a_pattern_of_java_is_taken(pattern):
    assert _told(REGEX, {"column": "key", "regex": pattern}) == []


@pytest.mark.parametrize("expectation", sorted(OF_SEVERAL_COLUMNS))
def test_an_expectation_of_several_columns_takes_no_single_one(expectation):
    arguments = {"column_list": ["offset"], "sum_total": 1} if "sum" in expectation else {"column_list": ["offset"]}
    assert _told(expectation, arguments) == ['kwargs.column_list: ["offset"] is not allowed: two columns or more']

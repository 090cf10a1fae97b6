"""Says what Great Expectations' own code asks of arguments beyond their schema: rules over several arguments, and over
texts."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from cleantail.config.checks.expectation_names import SCHEMAS
from cleantail.errors import Problem, not_allowed

_BROKEN_IN_EVERY_DIALECT = (
    "unterminated character set",
    "missing ), unterminated subpattern",
    "unbalanced parenthesis",
    "nothing to repeat",
    "min repeat greater than max repeat",
    "bad character range",
    "bad escape (end of pattern)",
)
"""Python's complaints about a regular expression that Java has as well: Java reads the patterns."""
_OF_PYTHON = re.compile(r"(?<!\\)(?:\\\\)*\(\?P[<=>]")
"""Finds named groups as Python writes them, which Java does not know."""

OF_SEVERAL_COLUMNS = frozenset(
    {
        "expect_compound_columns_to_be_unique",
        "expect_multicolumn_sum_to_equal",
        "expect_multicolumn_values_to_be_equal",
        "expect_select_column_values_to_be_unique_within_record",
    }
)

_SAMPLE_TIME = datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC)


def rule_problems(expectation: str, arguments: Mapping[str, Any]) -> Iterator[Problem]:
    """Yields what is wrong with arguments each of which is right by itself."""
    if expectation.endswith("_to_be_between") and "quantile_ranges" not in SCHEMAS[expectation]["properties"]:
        yield from _bound_problems(arguments)
    if expectation in OF_SEVERAL_COLUMNS and len(arguments["column_list"]) < 2:
        yield Problem("kwargs.column_list", not_allowed(arguments["column_list"]), "two columns or more")
    if "quantile_ranges" in arguments:
        yield from _quantile_problems(arguments["quantile_ranges"])
    if "partition_object" in arguments:
        yield from _weight_problems(arguments["partition_object"])
    if "strftime_format" in arguments:
        yield from _time_format_problems(arguments["strftime_format"])
    patterns = [("kwargs.regex", arguments["regex"])] if "regex" in arguments else []
    patterns += [(f"kwargs.regex_list[{i}]", text) for i, text in enumerate(arguments.get("regex_list", ()))]
    for key, pattern in patterns:
        yield from _pattern_problems(key, pattern)


def _bound_problems(arguments: Mapping[str, Any]) -> Iterator[Problem]:
    low, high = arguments.get("min_value"), arguments.get("max_value")
    if low is None and high is None:
        yield Problem("kwargs.min_value", "missing", "min_value, max_value or both: without them nothing is expected")
    elif low is not None and high is not None:
        if isinstance(low, str) != isinstance(high, str):
            yield Problem("kwargs.max_value", not_allowed(high), "of the same kind as min_value", high)
        elif _as_comparable(low) > _as_comparable(high):
            yield Problem("kwargs.min_value", not_allowed(low), f"at most max_value, which is {high}", low)


def _as_comparable(value: Any) -> Any:
    """Returns a value that can be compared: of a date or time as text the time. Without a zone it is in UTC, as Spark's
    session is."""
    if not isinstance(value, str):
        return value
    time = datetime.fromisoformat(value)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _quantile_problems(ranges: Mapping[str, Any]) -> Iterator[Problem]:
    quantiles, values = ranges["quantiles"], ranges["value_ranges"]
    if len(quantiles) != len(values):
        allowed = f"one pair for each of the {len(quantiles)} quantiles"
        yield Problem("kwargs.quantile_ranges.value_ranges", not_allowed(values), allowed, values)
    for index, (low, high) in enumerate(values):
        if low is not None and high is not None and low > high:
            key = f"kwargs.quantile_ranges.value_ranges[{index}]"
            yield Problem(key, not_allowed([low, high]), "a pair of lower and upper bound", [low, high])


def _weight_problems(partition: Mapping[str, Any]) -> Iterator[Problem]:
    """Yields what is wrong with the weights of values, or of the spans between bins: there are as many, and their sum
    is 1."""
    key, weights = "kwargs.partition_object", partition["weights"]
    parts = len(partition["values"]) if "values" in partition else len(partition.get("bins", ())) - 1
    if ("values" in partition) == ("bins" in partition):
        yield Problem(key, "it has values and bins, or neither", "values, or bins, with their weights")
    elif len(weights) != parts:
        yield Problem(f"{key}.weights", not_allowed(weights), f"{parts} of them", weights)
    elif abs(sum([*weights, *partition.get("tail_weights", ())]) - 1) > 1e-6:
        yield Problem(f"{key}.weights", not_allowed(weights), "weights of which the sum is 1", weights)


def _time_format_problems(text: str) -> Iterator[Problem]:
    try:
        datetime.strptime(_SAMPLE_TIME.strftime(text), text)
    except (ValueError, re.error):  # strptime makes a pattern of it, where %d%d is one name twice
        yield Problem("kwargs.strftime_format", not_allowed(text), "a format of Python's strptime, as %Y-%m-%d", text)


def _pattern_problems(key: str, pattern: str) -> Iterator[Problem]:
    try:
        with warnings.catch_warnings(action="ignore"):  # Java's && in a set looks to Python like a set to come
            re.compile(pattern)
    except RecursionError:
        yield Problem(key, not_allowed(pattern), "a regular expression that is nested less deeply", pattern)
    except (re.error, OverflowError) as e:
        if str(e).startswith(_BROKEN_IN_EVERY_DIALECT):
            yield Problem(key, not_allowed(pattern), f"a regular expression of Java ({e})", pattern)
            return
    if _OF_PYTHON.search(pattern):
        hint = "a regular expression of Java, where a named group is (?<name>…)"
        yield Problem(key, not_allowed(pattern), hint, pattern)

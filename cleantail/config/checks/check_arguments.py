"""Says whether the arguments of a topic's own check can work: by the expectation's schema, its rules, and the columns.

What is not in the schema is refused: an argument cannot become SQL, name another table, or be a suite parameter
({"$PARAMETER": ...}), which Great Expectations would evaluate.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from cleantail.config.checks.argument_rules import rule_problems
from cleantail.config.checks.argument_schemas import mapping_problems
from cleantail.config.checks.expectation_names import SCHEMAS
from cleantail.config.problems import nearest
from cleantail.config.topic_table import COLUMNS, HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, TIMESTAMP_TYPE, VALUE
from cleantail.errors import Problem, not_allowed, shown

NUMBER_COLUMNS = (PARTITION, OFFSET, TIMESTAMP_TYPE)
TEXT_COLUMNS = (KEY, VALUE)
NUMBERS_ONLY = frozenset(
    {
        "expect_column_mean_to_be_between",
        "expect_column_median_to_be_between",
        "expect_column_quantile_values_to_be_between",
    }
)
NUMBERS_OR_TIMES = frozenset(
    {
        "expect_column_max_to_be_between",
        "expect_column_min_to_be_between",
        "expect_column_values_to_be_between",
    }
)
"""Expectations whose bounds are numbers or times, by the column, on Spark. A test asks Great Expectations itself."""
NOT_OF_TIMES = NUMBERS_ONLY | {
    "expect_column_stdev_to_be_between",
    "expect_column_value_z_scores_to_be_less_than",
    "expect_column_values_to_match_json_schema",
    "expect_column_values_to_match_strftime_format",
    "expect_column_values_to_not_be_outliers",
}
OF_LISTS = frozenset(
    {
        "expect_column_proportion_of_non_null_values_to_be_between",
        "expect_column_proportion_of_unique_values_to_be_between",
        "expect_column_to_exist",
        "expect_column_type_to_be",
        "expect_column_unique_value_count_to_be_between",
        "expect_column_values_to_be_in_type_list",
        "expect_column_values_to_be_null",
        "expect_column_values_to_be_of_type",
        "expect_column_values_to_be_unique",
        "expect_column_values_to_not_be_null",
    }
)
"""Expectations of one column that can be asked of headers; the same test asks."""
COMPARING_COLUMNS = frozenset(
    {
        "expect_column_pair_values_a_to_be_greater_than_b",
        "expect_column_pair_values_to_be_equal",
        "expect_multicolumn_sum_to_equal",
        "expect_multicolumn_values_to_be_equal",
        "expect_select_column_values_to_be_unique_within_record",
    }
)
"""Expectations that compare columns with each other or add them up: headers go with no other column."""


def argument_problems(expectation: str, arguments: Mapping[str, Any]) -> list[Problem]:
    """Returns everything that is wrong with the arguments of an expectation; keys are below the check, as
    `kwargs.column`.

    Rules over several arguments are asked only once each of these is right by itself.
    """
    schema = SCHEMAS[expectation]
    problems = list(mapping_problems(expectation, arguments, schema, "kwargs"))
    return problems or list(rule_problems(expectation, arguments))


def column_problems(expectation: str, arguments: Mapping[str, Any], columns: Collection[str]) -> list[Problem]:
    """Returns what is wrong with the columns that the arguments name: the records do not have them, or they are of
    another kind than the expectation needs.

    `columns` are those that checks see; `key` and `value` are text there.
    """
    names, problems = ", ".join(columns), []
    for name, schema in SCHEMAS[expectation]["properties"].items():
        if schema.get("x-columns") and name in arguments:
            for key, column in _named_columns(name, arguments[name]):
                if not isinstance(column, str):
                    continue  # told of as an argument
                if column not in columns:
                    fact = f"no column {shown(column)}"
                    problems.append(Problem(key, fact, f"columns: {names}", column, nearest(column, list(columns))))
                elif unfit := _column_misfit(expectation, column):
                    problems.append(Problem(key, unfit, _fitting_columns(expectation), column))
    comparing = expectation in NUMBERS_OR_TIMES and not problems
    return list(_bounds_of_another_kind(arguments)) if comparing else problems


def _column_misfit(expectation: str, column: str) -> str | None:
    """Returns why Great Expectations can never evaluate an expectation on a column, whatever its records hold, or
    None."""
    if column in TEXT_COLUMNS and expectation in NUMBERS_ONLY | NUMBERS_OR_TIMES:
        return f"{shown(column)} is text"
    alone = "column" in SCHEMAS[expectation]["properties"]
    if column == HEADERS and (expectation in COMPARING_COLUMNS or (alone and expectation not in OF_LISTS)):
        return f"{shown(column)} is a list of structs"
    return f"{shown(column)} is a time" if column == TIMESTAMP and expectation in NOT_OF_TIMES else None


def _fitting_columns(expectation: str) -> str:
    """Returns the columns that an expectation can be evaluated on."""
    columns = [c for c in COLUMNS if _column_misfit(expectation, c) is None]
    return f"{expectation} takes {', '.join(columns)}"


def _bounds_of_another_kind(arguments: Mapping[str, Any]) -> Iterator[Problem]:
    """Yields a problem for each bound that is a number where the column has times, or a time where it has numbers:
    Spark refuses both."""
    column = str(arguments.get("column"))
    bound_kinds = {TIMESTAMP: "a date or time as text"} | dict.fromkeys(NUMBER_COLUMNS, "a number")
    for name in ("min_value", "max_value"):
        bound = arguments.get(name)
        if bound is not None and column in bound_kinds and isinstance(bound, str) != (column == TIMESTAMP):
            yield Problem(f"kwargs.{name}", not_allowed(bound), f"{bound_kinds[column]}, as {column} is", bound)


def _named_columns(name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, list):
        return [(f"kwargs.{name}[{index}]", column) for index, column in enumerate(value)]
    return [(f"kwargs.{name}", value)]

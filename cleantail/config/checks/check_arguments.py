"""Whether the arguments of a topic's own check can work: by the expectation's schema, its rules, and the columns.

What is not in the schema is refused: an argument cannot become SQL, name another table, or be a suite parameter
({"$PARAMETER": ...}), which Great Expectations would evaluate.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from cleantail.config.checks.argument_rules import rule_problems
from cleantail.config.checks.expectation_names import SCHEMAS
from cleantail.config.problems import allowed_text, nearest
from cleantail.config.topic_table import COLUMNS, HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, TIMESTAMP_TYPE, VALUE
from cleantail.errors import Problem, not_allowed, shown

Schema = Mapping[str, Any]

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

JSON_SCHEMA = "kwargs.json_schema"
_TYPES: Mapping[str, tuple[type, ...]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "null": (type(None),),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}


def argument_problems(expectation: str, arguments: Mapping[str, Any]) -> list[Problem]:
    """Returns everything that is wrong with the arguments of an expectation; keys are below the check, as
    `kwargs.column`.

    Rules over several arguments are asked only once each of these is right by itself.
    """
    schema = SCHEMAS[expectation]
    problems = list(_mapping_problems(expectation, arguments, schema, "kwargs"))
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


def _mapping_problems(owner: str, values: Mapping[str, Any], schema: Schema, key_path: str) -> Iterator[Problem]:
    properties = schema["properties"]
    for name in values.keys() - properties.keys():
        allowed = f"{owner} takes {', '.join(properties)}"
        yield Problem(f"{key_path}.{name}", "unknown argument", allowed, values[name], nearest(name, list(properties)))
    for name in schema.get("required", ()):
        if values.get(name) is None:
            yield Problem(f"{key_path}.{name}", "missing", _allowed_words(properties[name]))
    for name, kind in properties.items():
        if values.get(name) is not None or (name in values and name not in schema.get("required", ())):
            yield from _value_problems(values[name], kind, f"{key_path}.{name}")


def _value_problems(value: Any, schema: Schema, key_path: str) -> Iterator[Problem]:
    """Yields what is wrong with one value. Of several alternatives the problems are those of the value's own type."""
    kinds = schema.get("anyOf", [schema])
    fitting = [kind for kind in kinds if _has_type(value, kind["type"])]
    problems = [list(_kind_problems(value, kind, key_path)) for kind in fitting]
    if not fitting or (len(fitting) > 1 and all(problems)):
        yield Problem(key_path, not_allowed(value), _allowed_words(schema), value)
    elif all(problems):
        yield from problems[0]


def _has_type(value: Any, kind: str) -> bool:
    """Returns whether a value is of a JSON type. A boolean is no number, as in JSON; nor is .nan or .inf."""
    if isinstance(value, bool):
        return kind == "boolean"
    finite = not isinstance(value, float) or math.isfinite(value)
    return isinstance(value, _TYPES[kind]) and finite


def _kind_problems(value: Any, schema: Schema, key_path: str) -> Iterator[Problem]:
    if isinstance(value, dict) and "properties" in schema:
        yield from _mapping_problems(key_path.rsplit(".", 1)[-1], value, schema, key_path)
    elif isinstance(value, dict):
        yield from _json_schema_problems(value, key_path)
    elif isinstance(value, list):
        inside = [
            p for i, entry in enumerate(value) for p in _value_problems(entry, schema["items"], f"{key_path}[{i}]")
        ]
        yield from inside
        if not inside and not _in_range(len(value), schema.get("minItems"), schema.get("maxItems")):
            yield Problem(key_path, not_allowed(value), _allowed_words(schema), value)
    elif not _is_allowed(value, schema):
        choices = schema.get("enum", ())
        yield Problem(
            key_path, not_allowed(value), _allowed_words(schema), value, nearest(value, choices) if choices else None
        )


def _is_allowed(value: Any, schema: Schema) -> bool:
    if "enum" in schema:
        return value in schema["enum"]
    if isinstance(value, str):
        within = _in_range(len(value), schema.get("minLength"), schema.get("maxLength"))
        return within and ("format" not in schema or _is_time(value))
    return value is None or isinstance(value, bool) or _in_range(value, schema.get("minimum"), schema.get("maximum"))


def _in_range(value: float, low: float | None, high: float | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


def _is_time(text: str) -> bool:
    """Returns whether a text is a date, or a date and time, of ISO 8601."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _json_schema_problems(schema: Any, key_path: str) -> Iterator[Problem]:
    """Yields what a user's own JSON Schema has that would be fetched or evaluated; everything else in it is data."""
    inner = schema.items() if isinstance(schema, dict) else enumerate(schema) if isinstance(schema, list) else ()
    for key, value in inner:
        below = f"{key_path}[{key}]" if isinstance(key, int) else f"{key_path}.{key}"
        if key == "$PARAMETER":
            yield Problem(below, "a suite parameter", "a JSON Schema; parameters are not taken")
        elif key in ("$id", "id") and isinstance(value, str) and key_path != JSON_SCHEMA:
            # from here on a reference beginning with # would be into the document of this name, which is fetched
            yield Problem(below, not_allowed(value), "an $id at the top of the schema only", value)
        elif key in ("$ref", "$dynamicRef", "$recursiveRef") and not str(value).startswith("#"):
            yield Problem(below, not_allowed(value), "a reference inside this schema, beginning with #", value)
        else:
            yield from _json_schema_problems(value, below)


def _allowed_words(schema: Schema) -> str:
    """Returns what a schema allows, as `a number, or a date or time as text`."""
    kinds: Sequence[Schema] = schema.get("anyOf", [schema])
    return ", or ".join(dict.fromkeys(_allowed_kind(kind) for kind in kinds if kind["type"] != "null"))


def _allowed_kind(schema: Schema) -> str:
    if schema.get("x-columns"):
        return "columns of the records" if schema["type"] == "array" else "a column of the records"
    if "format" in schema:
        return "a date or time as text"
    if schema["type"] == "array":
        inner, low = _allowed_words(schema["items"]), schema.get("minItems", 0)
        if low and low == schema.get("maxItems"):
            return f"a list of {low}, each {inner}"
        return f"a list, not empty, of {inner}" if low else f"a list of {inner}"
    return allowed_text(dict(schema))

"""`checks:` of a topic's YAML: expectations of Great Expectations on the records that a round would publish.

`expectation_schemas.json` has the JSON Schema of each expectation's arguments, so configuration is validated fast, and
also without Great Expectations. docs_site/expectation_schemas.py generates it. A test compares it with the
installed version.

Arguments are validated by that schema, then by rules over several arguments, then against the columns of the records.
An argument outside the schema is refused. So an argument cannot become SQL, name another table, or be a suite parameter
({"$PARAMETER": ...}), which Great Expectations would evaluate.

A check may also name a class of `platform.expectations`, as acme_checks.ExpectIban. The platform trusts that code. Its
arguments have no schema here: only names that Great Expectations gives another meaning, suite parameters and unknown
columns are refused.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, JsonValue, model_validator

from cleantail.config.config_model import Model, problems_error
from cleantail.config.topic_table import COLUMNS, HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, TIMESTAMP_TYPE, VALUE
from cleantail.config.validation_errors import allowed_text, nearest
from cleantail.errors import Problem, not_allowed, shown
from cleantail.human import counted

SCHEMAS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("expectation_schemas.json").read_text(encoding="utf-8")
)
"""Name -> `properties` (argument -> schema) and `required`. `x-columns` marks arguments that name columns."""
EXPECTATION_NAMES: tuple[str, ...] = tuple(SCHEMAS)

_ACRONYMS = {"kl": "KL"}  # Great Expectations writes these words in capitals


def class_name(expectation: str) -> str:
    """Return the class in `great_expectations.expectations`: `ExpectColumnToExist` for `expect_column_to_exist`."""
    return "".join(_ACRONYMS.get(word, word.capitalize()) for word in expectation.split("_"))


_BY_CLASS_NAME = {class_name(name): name for name in EXPECTATION_NAMES}
OWN_NAME = r"(?:[A-Za-z_][A-Za-z0-9_]*\.)+Expect[A-Za-z0-9_]+"
"""A class outside Great Expectations, with its module."""
REFUSED = frozenset(
    {"batch_id", "catch_exceptions", "condition_parser", "description", "id", "library_metadata", "meta", "metadata"}
    | {"notes", "rendered_content", "result_format", "row_condition", "severity", "windows"}
)
"""Arguments that a topic may not set: `row_condition` is SQL, `severity` is Cleantail's own key."""


def expectation_name(name: str) -> str | None:
    """Return the snake_case name of a core expectation (by name or class), or the name of an own one, else None."""
    return name if name in EXPECTATION_NAMES or is_own(name) else _BY_CLASS_NAME.get(name)


def is_own(name: str) -> bool:
    """Return whether the name is that of a class outside Great Expectations."""
    return re.fullmatch(OWN_NAME, name) is not None


def class_problem(names: Sequence[str]) -> str | None:
    """Return the first of these own expectations whose class has the name of a core one or of another own one.

    Great Expectations finds an expectation by the name of its class alone.
    """
    taken = set(_BY_CLASS_NAME)
    for name in names:
        if (own := name.rpartition(".")[2]) in taken:
            return name
        taken.add(own)
    return None


_BROKEN_IN_EVERY_DIALECT = {
    "unterminated character set": "a set without its closing bracket",
    "missing ), unterminated subpattern": "a group without its closing parenthesis",
    "unbalanced parenthesis": "a closing parenthesis without its opening one",
    "nothing to repeat": "a quantifier with nothing before it",
    "min repeat greater than max repeat": "a quantifier whose minimum is above its maximum",
    "bad character range": "a range whose end is before its start",
    "bad escape (end of pattern)": "a backslash with nothing after it",
}
"""Python's errors of regular expressions that are also errors in Java, which evaluates the patterns -> error text."""
_OF_PYTHON = re.compile(r"(?<!\\)(?:\\\\)*\(\?P[<=>]")
"""Named groups in Python's form, which Java does not accept."""

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
    """Yield problems of arguments that are valid one by one."""
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
        yield Problem("kwargs.min_value", "missing", "min_value, max_value or both")
    elif low is not None and high is not None:
        if isinstance(low, str) != isinstance(high, str):
            yield Problem("kwargs.max_value", not_allowed(high), "of the same kind as min_value", high)
        elif _as_comparable(low) > _as_comparable(high):
            yield Problem("kwargs.min_value", not_allowed(low), f"at most max_value, which is {high}", low)


def _as_comparable(value: Any) -> Any:
    """Return a comparable value.

    A date or time as text becomes the time, in UTC if it has no zone, as in Spark's session.
    """
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
    """Yield problems of weights: one for each value, or for each span between bins. Their sum is 1."""
    key, weights = "kwargs.partition_object", partition["weights"]
    parts = len(partition["values"]) if "values" in partition else len(partition.get("bins", ())) - 1
    if ("values" in partition) == ("bins" in partition):
        yield Problem(key, "it has values and bins, or neither", "values, or bins, with their weights")
    elif len(weights) != parts:
        yield Problem(f"{key}.weights", not_allowed(weights), counted(parts, "weight"), weights)
    elif abs(sum([*weights, *partition.get("tail_weights", ())]) - 1) > 1e-6:
        yield Problem(f"{key}.weights", not_allowed(weights), "weights whose sum is 1", weights)


def _time_format_problems(text: str) -> Iterator[Problem]:
    try:
        datetime.strptime(_SAMPLE_TIME.strftime(text), text)
    except (ValueError, re.error):  # strptime compiles a pattern, in which %d%d is one group twice
        allowed = "a format of Python's strptime, such as %Y-%m-%d"
        yield Problem("kwargs.strftime_format", not_allowed(text), allowed, text)


def _pattern_problems(key: str, pattern: str) -> Iterator[Problem]:
    try:
        with warnings.catch_warnings(action="ignore"):  # Python warns of Java's && in a set
            re.compile(pattern)
    except RecursionError:
        yield Problem(key, not_allowed(pattern), "a regular expression that is nested less deeply", pattern)
    except (re.error, OverflowError) as e:
        fault = next((ours for theirs, ours in _BROKEN_IN_EVERY_DIALECT.items() if str(e).startswith(theirs)), None)
        if fault is not None:
            at = f" at position {e.pos}" if isinstance(e, re.error) and e.pos is not None else ""
            yield Problem(key, not_allowed(pattern), f"a regular expression of Java; this one has {fault}{at}", pattern)
            return
    if _OF_PYTHON.search(pattern):
        hint = "a regular expression of Java, where a named group is (?<name>…)"
        yield Problem(key, not_allowed(pattern), hint, pattern)


Schema = Mapping[str, Any]
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


def mapping_problems(owner: str, values: Mapping[str, Any], schema: Schema, key_path: str) -> Iterator[Problem]:
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
    """Yield problems of one value. Of several alternatives, yield those of the value's own type."""
    kinds = schema.get("anyOf", [schema])
    fitting = [kind for kind in kinds if _has_type(value, kind["type"])]
    problems = [list(_kind_problems(value, kind, key_path)) for kind in fitting]
    if not fitting or (len(fitting) > 1 and all(problems)):
        yield Problem(key_path, not_allowed(value), _allowed_words(schema), value)
    elif all(problems):
        yield from problems[0]


def _has_type(value: Any, kind: str) -> bool:
    """Return whether a value has a JSON type. A boolean is not a number, and neither is .nan or .inf."""
    if isinstance(value, bool):
        return kind == "boolean"
    finite = not isinstance(value, float) or math.isfinite(value)
    return isinstance(value, _TYPES[kind]) and finite


def _kind_problems(value: Any, schema: Schema, key_path: str) -> Iterator[Problem]:
    if isinstance(value, dict) and "properties" in schema:
        yield from mapping_problems(key_path.rsplit(".", 1)[-1], value, schema, key_path)
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
    """Return whether a text is a date, or a date and time, of ISO 8601."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _json_schema_problems(schema: Any, key_path: str) -> Iterator[Problem]:
    """Yield the parts of a user's own JSON Schema that would be fetched or evaluated."""
    inner = schema.items() if isinstance(schema, dict) else enumerate(schema) if isinstance(schema, list) else ()
    for key, value in inner:
        below = f"{key_path}[{key}]" if isinstance(key, int) else f"{key_path}.{key}"
        if key == "$PARAMETER":
            yield Problem(below, "a suite parameter", "a JSON Schema without parameters")
        elif key in ("$id", "id") and isinstance(value, str) and key_path != JSON_SCHEMA:
            # references below this $id that begin with # would fetch the document of this name
            yield Problem(below, not_allowed(value), "an $id at the top of the schema only", value)
        elif key in ("$ref", "$dynamicRef", "$recursiveRef") and not str(value).startswith("#"):
            yield Problem(below, not_allowed(value), "a reference inside this schema, beginning with #", value)
        else:
            yield from _json_schema_problems(value, below)


def _allowed_words(schema: Schema) -> str:
    """Return the allowed values of a schema, such as `a number, or a date or time as text`."""
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
    {"expect_column_max_to_be_between", "expect_column_min_to_be_between", "expect_column_values_to_be_between"}
)
"""Expectations whose bounds are numbers or times, depending on the column. A test compares with Great Expectations."""
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
"""Expectations of one column that work on headers. The same test checks them."""
COMPARING_COLUMNS = frozenset(
    {
        "expect_column_pair_values_a_to_be_greater_than_b",
        "expect_column_pair_values_to_be_equal",
        "expect_multicolumn_sum_to_equal",
        "expect_multicolumn_values_to_be_equal",
        "expect_select_column_values_to_be_unique_within_record",
    }
)
"""Expectations that compare or add up columns. Headers cannot be among them."""


_COLUMN = {"type": "string", "x-columns": True}
_COLUMNS = {"type": "array", "items": {"type": "string"}, "x-columns": True}
_OWN_SCHEMA: Mapping[str, Any] = {
    "properties": {"column": _COLUMN, "column_A": _COLUMN, "column_B": _COLUMN}
    | {"column_list": _COLUMNS, "column_set": _COLUMNS}
}
"""Arguments that name columns also in own expectations."""


def _own_argument_problems(value: Any, key_path: str) -> Iterator[Problem]:
    """Yield arguments that Great Expectations does not pass unchanged to an own expectation."""
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        path = f"{key_path}[{key}]" if isinstance(key, int) else f"{key_path}.{key}"
        if key == "$PARAMETER":
            yield Problem(path, "a suite parameter", "arguments without parameters")
        elif key in REFUSED and key_path == "kwargs":
            yield Problem(path, "an argument that a topic may not set", "the expectation's own arguments")
        else:
            yield from _own_argument_problems(below, path)


def argument_problems(expectation: str, arguments: Mapping[str, Any]) -> list[Problem]:
    """Return all problems of the arguments of an expectation; keys are below the check, as `kwargs.column`.

    Rules over several arguments run only if each of these is valid.
    """
    if is_own(expectation):
        return list(_own_argument_problems(arguments, "kwargs"))
    schema = SCHEMAS[expectation]
    problems = list(mapping_problems(expectation, arguments, schema, "kwargs"))
    return problems or list(rule_problems(expectation, arguments))


def column_problems(expectation: str, arguments: Mapping[str, Any], columns: Collection[str]) -> list[Problem]:
    """Return the problems of the columns in the arguments: the records lack them, or they have the wrong type.

    `columns`: the columns that checks get, with `key` and `value` as text.
    """
    names, problems = ", ".join(columns), []
    for name, schema in SCHEMAS.get(expectation, _OWN_SCHEMA)["properties"].items():
        if schema.get("x-columns") and name in arguments:
            named = arguments[name]
            keys = [f"kwargs.{name}[{n}]" for n in range(len(named))] if isinstance(named, list) else [f"kwargs.{name}"]
            for key, column in zip(keys, named if isinstance(named, list) else [named], strict=True):
                if not isinstance(column, str):
                    continue  # reported as an argument
                if column not in columns:
                    fact = f"no column {shown(column)}"
                    problems.append(Problem(key, fact, f"columns: {names}", column, nearest(column, list(columns))))
                elif unfit := _column_misfit(expectation, column):
                    fitting = ", ".join(c for c in COLUMNS if _column_misfit(expectation, c) is None)
                    problems.append(Problem(key, unfit, f"{expectation} takes {fitting}", column))
    comparing = expectation in NUMBERS_OR_TIMES and not problems
    return list(_bounds_of_another_kind(arguments)) if comparing else problems


def _column_misfit(expectation: str, column: str) -> str | None:
    """Return why Great Expectations can never evaluate an expectation on a column, or None."""
    if is_own(expectation):
        return None
    if column in TEXT_COLUMNS and expectation in NUMBERS_ONLY | NUMBERS_OR_TIMES:
        return f"{shown(column)} is text"
    alone = "column" in SCHEMAS[expectation]["properties"]
    if column == HEADERS and (expectation in COMPARING_COLUMNS or (alone and expectation not in OF_LISTS)):
        return f"{shown(column)} is a list of structs"
    return f"{shown(column)} is a time" if column == TIMESTAMP and expectation in NOT_OF_TIMES else None


def _bounds_of_another_kind(arguments: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each numeric bound of a time column and each time bound of a numeric one.

    Spark refuses both.
    """
    column = str(arguments.get("column"))
    bound_kinds = {TIMESTAMP: "a date or time as text"} | dict.fromkeys(NUMBER_COLUMNS, "a number")
    for name in ("min_value", "max_value"):
        bound = arguments.get(name)
        if bound is not None and column in bound_kinds and isinstance(bound, str) != (column == TIMESTAMP):
            yield Problem(f"kwargs.{name}", not_allowed(bound), f"{bound_kinds[column]}, as {column} is", bound)


def _expectation(name: str) -> str:
    snake_case_name = expectation_name(name)
    if snake_case_name is None:
        raise ValueError("not an expectation")
    return snake_case_name


Expectation = Annotated[
    str,
    AfterValidator(_expectation),
    Field(
        json_schema_extra={
            "anyOf": [{"enum": list(EXPECTATION_NAMES)}, {"pattern": f"^(?:{OWN_NAME})$"}],
            "x-allowed": "a core expectation of Great Expectations that works on Spark and takes neither SQL nor "
            "another table, as expect_column_values_to_not_be_null, or a class of platform.expectations",
        }
    ),
]


class Check(Model):
    """One expectation. If it is critical and fails, it blocks the partition."""

    expectation: Expectation = Field(description="Name of the expectation, or a class of platform.expectations.")
    kwargs: dict[str, JsonValue] = Field(default={}, description="Its arguments, with Great Expectations' names.")
    severity: Literal["critical", "warning", "info"] = Field(
        default="critical", description="critical blocks the partition; warning and info are only reported."
    )

    @model_validator(mode="after")
    def _takes_its_arguments(self) -> Check:
        problems = argument_problems(self.expectation, self.kwargs)
        problems += column_problems(self.expectation, self.kwargs, tuple(COLUMNS))
        if problems:
            raise problems_error([((), problem) for problem in problems])
        return self

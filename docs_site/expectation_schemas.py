"""Generate the expectations that a topic's `checks` may use, from the schemas of the installed Great Expectations.

    python -m docs_site.expectation_schemas > cleantail/config/expectation_schemas.json

The file validates configuration quickly and without Great Expectations. A test generates it again and compares. The
file is an allowlist. It omits arguments that are SQL, name another table or change the storage of results. It also
omits suite parameters ({"$PARAMETER": …}), which Great Expectations evaluates as code.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from cleantail.config.topic_checks import REFUSED

NOT_ON_SPARK = "Great Expectations has no implementation of it on Spark"
EXCLUDED = {
    "expect_column_values_to_be_dateutil_parseable": NOT_ON_SPARK,
    "expect_column_values_to_match_like_pattern": NOT_ON_SPARK,
    "expect_column_values_to_match_like_pattern_list": NOT_ON_SPARK,
    "expect_column_values_to_not_match_like_pattern": NOT_ON_SPARK,
    "expect_column_values_to_not_match_like_pattern_list": NOT_ON_SPARK,
    "expect_query_results_to_match_comparison": "it runs SQL",
    "expect_table_row_count_to_equal_other_table": "it reads another table",
    "unexpected_rows_expectation": "it runs SQL",
}
"""Core expectations that a topic may not use -> the reason."""
REFUSED_ON_SPARK = frozenset({"allow_relative_error"})
"""Arguments whose values the Spark engine of Great Expectations refuses."""
COLUMN_ARGUMENTS = frozenset({"column", "column_A", "column_B"})
SUITE_PARAMETER = {"type": "object"}
"""The schema of a suite parameter, an alternative of nearly every argument."""
KEYWORDS = ("type", "enum", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "format")
"""Parts of a schema that are copied."""

_SCALAR = {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]}
_ONE_NUMBER = {"type": "number"}
_QUANTILES = {
    "type": "object",
    "required": ["quantiles", "value_ranges"],
    "properties": {
        "quantiles": {"type": "array", "minItems": 1, "items": _ONE_NUMBER | {"minimum": 0, "maximum": 1}},
        "value_ranges": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "array",
                "minItems": 2,
                "maxItems": 2,
                "items": {"anyOf": [_ONE_NUMBER, {"type": "null"}]},
            },
        },
    },
}
_PARTITION = {
    "type": "object",
    "required": ["weights"],
    "properties": {
        "values": {"type": "array", "minItems": 1, "items": _SCALAR},
        "bins": {"type": "array", "minItems": 2, "items": _ONE_NUMBER},
        "weights": {"type": "array", "minItems": 1, "items": _ONE_NUMBER | {"minimum": 0, "maximum": 1}},
        "tail_weights": {"type": "array", "minItems": 2, "maxItems": 2, "items": _ONE_NUMBER},
    },
}
_PAIRS = {"type": "array", "minItems": 1, "items": {"type": "array", "minItems": 2, "maxItems": 2, "items": _SCALAR}}
_COUNT = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]}
_NAMES = {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}}
_MISSING = {"type": "string", "enum": ["all_values_are_missing", "any_value_is_missing", "never"]}
NARROWED: dict[tuple[str, str], dict[str, Any]] = {
    ("", "json_schema"): {"type": "object"},
    ("", "quantile_ranges"): _QUANTILES,
    ("", "partition_object"): _PARTITION,
    ("", "value_pairs_set"): _PAIRS,
    ("", "column_set"): _NAMES,
    ("expect_table_columns_to_match_ordered_list", "column_list"): _NAMES,
    ("expect_column_kl_divergence_to_be_less_than", "threshold"): _ONE_NUMBER | {"minimum": 0},
    ("expect_table_row_count_to_be_between", "min_value"): _COUNT,
    ("expect_table_row_count_to_be_between", "max_value"): _COUNT,
    ("expect_select_column_values_to_be_unique_within_record", "ignore_row_if"): _MISSING,
}
"""(expectation, "" for all; argument) -> schema. Replaces schemas that allow more than the code can evaluate."""
REQUIRED = frozenset(
    {
        ("expect_column_kl_divergence_to_be_less_than", "partition_object"),
        ("expect_column_kl_divergence_to_be_less_than", "threshold"),
        ("expect_column_values_to_match_regex", "regex"),
        ("expect_column_values_to_be_in_type_list", "type_list"),
        ("expect_table_columns_to_match_ordered_list", "column_list"),
        ("expect_table_columns_to_match_set", "column_set"),
    }
)
"""Arguments that are optional in Great Expectations and required here. A check without them cannot fail, or cannot be
evaluated."""


def core_expectations() -> dict[str, Any]:
    """Return name -> class of every core expectation. Omits old aliases, which have no type."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations.expectations.core as core

    classes = [getattr(core, name) for name in dir(core) if name.startswith(("Expect", "Unexpected"))]
    return {cls.expectation_type: cls for cls in classes if getattr(cls, "expectation_type", "")}


def expectation_schemas() -> dict[str, Any]:
    """Return name of an expectation -> JSON Schema of the arguments that a topic may set."""
    core = core_expectations()
    return {name: _schema(name, core[name]) for name in sorted(core.keys() - EXCLUDED.keys())}


def _schema(name: str, expectation: Any) -> dict[str, Any]:
    properties = expectation.schema()["properties"]
    fields = expectation.__fields__
    arguments = sorted(fields.keys() - REFUSED - REFUSED_ON_SPARK)
    return {
        "required": [a for a in arguments if fields[a].required or (name, a) in REQUIRED],
        "properties": {a: _argument(name, a, properties[a], bool(fields[a].allow_none)) for a in arguments},
    }


def _argument(expectation: str, name: str, schema: dict[str, Any], nullable: bool) -> dict[str, Any]:
    narrowed = NARROWED.get((expectation, name)) or NARROWED.get(("", name))
    if narrowed is not None:
        return narrowed
    kinds = [kind for kind in _kinds(schema) if kind != SUITE_PARAMETER]
    if name in ("type_", "type_list"):
        kinds = [_with_types(kind) for kind in kinds]
    if nullable and (expectation, name) not in REQUIRED:
        kinds.append({"type": "null"})
    narrowed_schema = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    names_columns = name in COLUMN_ARGUMENTS or (name == "column_list" and not expectation.startswith("expect_table_"))
    return {**narrowed_schema, "x-columns": True} if names_columns else narrowed_schema


def _kinds(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the alternatives of a schema, without titles and descriptions."""
    inner = schema.get("anyOf") or schema.get("oneOf")
    if inner:
        return [kind for one in inner for kind in _kinds(one)]
    kind = {word: schema[word] for word in KEYWORDS if word in schema}
    if schema.get("type") == "array":
        kind |= {"items": _kinds(schema["items"])[0], "minItems": max(1, schema.get("minItems", 0))}
    return [kind]


def _with_types(kind: dict[str, Any]) -> dict[str, Any]:
    """Restrict a text to the names of Spark's types."""
    from pyspark.sql import types

    data_types = (
        value for value in vars(types).values() if isinstance(value, type) and issubclass(value, types.DataType)
    )
    names = {"type": "string", "enum": sorted({value.__name__ for value in data_types})}
    return kind | {"items": names} if kind["type"] == "array" else names


def as_text() -> str:
    """Return the content of the file, one line per argument."""
    return "{\n" + ",\n".join(_block(name, schema) for name, schema in expectation_schemas().items()) + "\n}\n"


def _block(name: str, schema: dict[str, Any]) -> str:
    required = json.dumps(schema["required"])
    arguments = [f'   "{a}": {json.dumps(kind, sort_keys=True)}' for a, kind in schema["properties"].items()]
    return f' "{name}": {{"required": {required}, "properties": {{\n' + ",\n".join(arguments) + "}}"


if __name__ == "__main__":
    sys.stdout.write(as_text())

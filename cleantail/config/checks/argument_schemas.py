"""Says whether the arguments of an expectation fit its JSON Schema, with what is allowed where one does not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from cleantail.config.problems import allowed_text, nearest
from cleantail.errors import Problem, not_allowed

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

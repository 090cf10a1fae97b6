"""Validation errors of YAML: check plain data against a model, and report each problem with its key and line.

Allowed values and nearest matches come from the model's JSON Schema, which editors use too. A *key path* is the place
of a value in the file, such as ("checks", 0, "severity").
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from cleantail.config.config_model import LONG_MAX, hint
from cleantail.config.yaml_file import KeyPath, key_lines, key_text, line_of, unwanted
from cleantail.errors import ConfigError, Problem, kind_of, not_allowed

M = TypeVar("M", bound=BaseModel)
Schema = dict[str, Any]
LocatedProblem = tuple[KeyPath, Problem]

_KINDS = {"integer": "a whole number", "number": "a number", "string": "text", "array": "a list", "object": "a mapping"}
MOST_PROBLEMS = 50
"""Number of problems that are described per file: each needs a search for the nearest match."""
_LISTED_KEYS = 20  # an error lists no more known keys than this
_CLOSE_CHOICES = 8
_WORD = re.compile(r"[^._]+")


def validate(model: type[M], data: dict[str, Any], file: Path) -> M:
    """Return `data` as a `model`. Raises ConfigError with all problems of `file`.

    Rules over several keys run only if every single key is valid. So invalid values are removed, and the rest is
    validated again until no new problem appears.
    """
    # 1. values that no file may have
    located = list(islice(unwanted(data), MOST_PROBLEMS + 1))
    # 2. values that the model refuses; without them the rest is validated again
    wrong = [key_path for key_path, _ in located]
    while len(located) <= MOST_PROBLEMS:
        rest = _without(data, wrong)
        try:
            result = model.model_validate(rest, by_alias=True, by_name=False)
            break
        except ValidationError as error:
            found = _located_problems(error, model.model_json_schema(), wrong)
            new = list(islice((pair for pair in found if pair[0] not in wrong), MOST_PROBLEMS + 1))
        if not new:
            break
        wrong += [key_path for key_path, _ in new]
        located += [(key_path, problem) for key_path, problem in new if problem is not None]
    # 3. one error for all problems, with lines
    if located:
        lines = key_lines(file)
        problems = [replace(problem, line=line_of(key_path, lines)) for key_path, problem in located[:MOST_PROBLEMS]]
        if len(located) > MOST_PROBLEMS:
            problems.append(Problem("", f"more than {MOST_PROBLEMS} problems", "correct the first ones"))
        raise ConfigError(file, problems)
    return result


def require_none(file: Path, located: Iterable[LocatedProblem]) -> None:
    """Raise ConfigError with the lines of the file if a rule over several values found a problem."""
    if problems := list(located):
        lines = key_lines(file)
        raise ConfigError(file, [replace(problem, line=line_of(key_path, lines)) for key_path, problem in problems])


def _without(data: dict[str, Any], key_paths: Sequence[KeyPath]) -> dict[str, Any]:
    """Return a copy of `data` without the values at those key paths."""
    rest = copy.deepcopy(data)
    for key_path in key_paths:
        _remove(rest, key_path)
    return rest


def _remove(data: dict[Any, Any], key_path: KeyPath) -> None:
    """Remove the value at a key path. A list is removed as a whole, so that indexes stay right."""
    for part in key_path[:-1]:
        if not isinstance(data.get(part), dict):
            data.pop(part, None)
            return
        data = data[part]
    data.pop(key_path[-1], None)


def _located_problems(
    error: ValidationError, schema: Schema, wrong: Collection[KeyPath]
) -> Iterator[tuple[KeyPath, Problem | None]]:
    """Yield each problem that the model reports, with its key path in the file.

    `wrong` values were replaced by their defaults. A problem that only follows from such a default is None.
    """
    for details in error.errors(include_url=False):
        key_path, node, parent = _walk(schema, details["loc"])
        kind, value, context = details["type"], details["input"], details.get("ctx", {})
        if kind == "extra_forbidden":
            yield key_path, _unknown_key(key_path, value, parent, schema)
        elif kind == "missing":
            yield key_path, Problem(key_text(key_path), "missing", allowed_text(node))
        elif kind == "cross_field":
            follows = (*key_path, context["by"]) in wrong
            key_path, value = (*key_path, context["key"]), context["value"]
            fact = context["fact"] or not_allowed(value)
            yield key_path, None if follows else Problem(key_text(key_path), fact, context["allowed"], value)
        elif kind == "problems":
            for below, problem in context["problems"]:
                inner = (*key_path, *below, *problem.key.split("."))
                yield inner, replace(problem, key=key_text(inner))
        elif kind.startswith("union_tag"):
            tag = value.get("type") if isinstance(value, dict) else None
            yield key_path, _wrong_value((*key_path, "type"), tag, {"enum": list(node["discriminator"]["mapping"])})
        else:
            yield key_path, _wrong_value(key_path, value, node)


def _wrong_value(key_path: KeyPath, value: object, node: Schema) -> Problem:
    members = [node, *node.get("anyOf", ())]
    choices = [str(choice) for member in members for choice in member.get("enum", ()) if choice]
    allowed = allowed_text(node) + (hint(str(key_path[-1])) if key_path and isinstance(value, str) else "")
    if key_path[:1] == ("alerts",) and isinstance(value, str) and "://" in value:
        # the path of a chat service's address is a secret
        return Problem(key_text(key_path), f"{kind_of(value)} with an address in it is not allowed", allowed)
    meant = node.get("x-meant", {}).get(value) if isinstance(value, str) else None
    return Problem(key_text(key_path), not_allowed(value), allowed, value, meant or nearest(value, choices))


def _unknown_key(key_path: KeyPath, value: object, parent: Schema, root: Schema) -> Problem:
    """Return the problem of an unknown key: a typing error, or a config outside `config:`."""
    known_keys = list(parent.get("properties", ()))
    key = str(key_path[-1])
    inner = [
        f"{name}.{key}"
        for name in known_keys
        if key in _resolve(parent["properties"][name], root).get("properties", ())
    ]
    best = inner[0] if inner else nearest(key, known_keys)
    if why := parent.get("x-brokers-only", {}).get(key):
        return Problem(key_text(key_path), "a config of Kafka's brokers, which Cleantail does not have", why)
    listed = (
        f"known: {', '.join(known_keys)}" if len(known_keys) <= _LISTED_KEYS else "docs/configs.md lists the known ones"
    )
    # the value may be a secret, and more people see errors than the file
    fact = f"unknown key (its value, {kind_of(value)}, is not shown)"
    return Problem(key_text(key_path), fact, listed, None, best)


def nearest(value: object, choices: Sequence[str]) -> str | None:
    """Return the choice that `value` most likely means, or None.

    If several are similar, it is the one with the most words in common, such as `json` in expect_…_to_be_json.
    """
    if not isinstance(value, str):
        return None
    text, lowered = value.lower(), {choice.lower(): choice for choice in choices}
    words = set(_WORD.findall(text))
    matches = difflib.get_close_matches(text, lowered, _CLOSE_CHOICES)
    return lowered[max(matches, key=lambda match: len(words.intersection(_WORD.findall(match))))] if matches else None


def _walk(schema: Schema, loc: tuple[int | str, ...]) -> tuple[KeyPath, Schema, Schema]:
    """Return the key path in the file, its schema and its parent's. pydantic's `loc` also names the chosen union
    member."""
    key_path: KeyPath = ()
    node = parent = schema
    for part in loc:
        if "discriminator" in node:
            node = _resolve({"$ref": node["discriminator"]["mapping"][part]}, schema)
            continue
        if "x-tags" in node:
            node = _resolve(node["oneOf"][node["x-tags"].index(part)], schema)
            continue
        if "x-allowed" in node:  # the text describes the whole list or mapping
            key_path = key_path if part == "[key]" else (*key_path, part)
            continue
        if not node:
            break  # free JSON has no schema
        key_path, parent = (*key_path, part), node
        inner = node.get("items") if isinstance(part, int) else node.get("properties", {}).get(part)
        others = node.get("additionalProperties")
        node = _resolve(inner or (others if isinstance(others, dict) else {}), schema)
    return key_path, node, parent


def _resolve(node: Schema, root: Schema) -> Schema:
    """Return `node` with its reference followed. For a value or null, return the schema of the value."""
    inner = [member for member in node.get("anyOf", ()) if member.get("type") != "null"]
    if len(inner) == 1:
        node = {**node, **inner[0]}
    if "$ref" in node:
        node = {**root["$defs"][node["$ref"].rsplit("/", 1)[1]], **node}
    return {key: value for key, value in node.items() if key != "$ref"}


def allowed_text(node: Schema) -> str:
    """Return the allowed values for an error message: the choices, else the type and the range."""
    if "x-allowed" in node:
        return str(node["x-allowed"])
    choices = [str(choice) for choice in node.get("enum", [node["const"]] if "const" in node else [])]
    if choices:
        return " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))
    return _KINDS.get(node.get("type", ""), "a JSON value") + _range(node)


def _range(node: Schema) -> str:
    low, high = node.get("minimum"), node.get("maximum")
    if high is not None and high != LONG_MAX:
        return f" in [{low:g}, {high:g}]" if node["type"] == "number" else f" in [{low}, {high}]"
    return "" if low is None else f", at least {low}"

"""Reading one YAML file into plain data, and refusing what has no place in it before any model sees it.

Refused: duplicate keys (YAML keeps the last without a word), keys that are not text, aliases (a short file
can unfold into gigabytes), and secrets.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import yaml

from cleantail.errors import ConfigError, Problem

Place = tuple[str | int, ...]  # ("config", "segment.ms"), ("checks", 0, "severity")

_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader is ten times as fast
_DEEPEST = 20
_INTEGER_TAG = "tag:yaml.org,2002:int"
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)$")
_TIMESTAMP_TAG = "tag:yaml.org,2002:timestamp"
_SECRET_KEY = re.compile(
    r"passw|passphrase|secret|token|credential(?!s?\.provider)|jaas|(access|private|api|account|signing|encryption)[._-]?key",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(r"://[^/\s@]*:[^/\s@]+@|(password|secret|token)=", re.IGNORECASE)
_SECRET_HINT = "use the environment (CLEANTAIL_…) or an Airflow connection; write its id here"
_SECRET_FACT = "a secret has no place in YAML"


class _Loader(_SafeLoader):  # type: ignore[misc]  # chosen at run time
    """YAML's safe subset; dates stay text, as no config is a date, and whole numbers are those that people write:
    by YAML 1.1 1:30 would be 90, and 0777 would be 511."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        first: [
            (tag, _INTEGER if tag == _INTEGER_TAG else pattern) for tag, pattern in resolvers if tag != _TIMESTAMP_TAG
        ]
        for first, resolvers in _SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                problem = "a key that is not text: quote it"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            if key.value in seen:
                problem = f"the key {key.value} occurs twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(str(key.value))
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def read_yaml(file: Path) -> dict[str, Any]:
    """The mapping that `file` holds; an empty file is an empty mapping.

    Raises ConfigError when the file is missing, not YAML (with the line), or not a mapping.
    """
    try:
        text = file.read_bytes()
        _require_plain(text)
        data = yaml.load(text, Loader=_Loader)  # a safe loader
    except OSError as error:
        raise ConfigError(file, [Problem("", "cannot be read", error.strerror or str(error))]) from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(file, [Problem("", "not valid YAML", _yaml_reason(error))]) from error
    if data is not None and not isinstance(data, dict):
        raise ConfigError(file, [Problem("", "not a mapping", "the file needs lines of the form key: value")])
    return data or {}


def key_lines(file: Path) -> dict[Place, int]:
    """Where each key of a file is, by its place; lines count from 1. Empty for what is no file that can be read."""
    try:
        root = yaml.compose(file.read_bytes(), Loader=_SafeLoader)
    except (OSError, yaml.YAMLError, ValueError):
        return {}
    return dict(_lines(root, ()))


def _lines(node: yaml.Node | None, place: Place) -> Iterator[tuple[Place, int]]:
    inner: list[tuple[str | int, yaml.Node, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        inner = [(str(key.value), key, value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        inner = [(index, value, value) for index, value in enumerate(node.value)]
    for part, key, value in inner:
        yield (*place, part), key.start_mark.line + 1
        yield from _lines(value, (*place, part))


def line_of(place: Place, lines: dict[Place, int]) -> int | None:
    """The line of a place, or of the mapping that it is missing in; None for what is not in the file at all."""
    return next((lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in lines), None)


def _require_plain(text: bytes) -> None:
    """Refuses aliases and deep nesting before anything is built: the loader would overflow its stack."""
    depth = 0
    for event in yaml.parse(text, Loader=_SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        mark: Any = event.start_mark
        if isinstance(event, yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="an alias", problem_mark=mark)
        if depth > _DEEPEST:
            problem = f"nested more than {_DEEPEST} levels deep"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def _yaml_reason(error: Exception) -> str:
    """The line and the reason, without the line's text: it may hold a secret."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if problem is None:
        return str(error).splitlines()[0]
    starts_badly = re.search("alias|alphabetic|cannot start any token", problem)
    hint = " (indent with spaces, not tabs, and quote a text that starts with * or @)" if starts_badly else ""
    return f"line {mark.line + 1}: {problem}{hint}" if mark else f"{problem}{hint}"


def unwanted(value: Any, place: Place = ()) -> Iterator[tuple[Place, Problem]]:
    """Secrets, and keys that are not text, each with its place."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _unwanted_entry(key, inner, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from unwanted(inner, (*place, index))
    elif isinstance(value, str) and _SECRET_VALUE.search(value):
        yield place, Problem(key_text(place), _SECRET_FACT, _SECRET_HINT)


def _unwanted_entry(key: Any, value: Any, place: Place) -> Iterator[tuple[Place, Problem]]:
    if not isinstance(key, str):
        yield place, Problem(key_text(place), "a key that is not text", "quote it")
    elif _SECRET_KEY.search(key):
        yield place, Problem(key_text(place), _SECRET_FACT, _SECRET_HINT)
    else:
        yield from unwanted(value, place)


def key_text(place: Place) -> str:
    """("checks", 0, "severity") -> `checks[0].severity`, on one printable line."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")

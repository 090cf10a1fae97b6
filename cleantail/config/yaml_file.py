"""Read one YAML file into plain data, and refuse content before any model gets it.

Refused: duplicate keys (YAML silently keeps the last), keys that are not text, aliases (a short file can unfold into
gigabytes), tags (`!name`), and secrets.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from cleantail.config.secret_filter import (
    SECRET_FACT,
    SECRET_HINT,
    VARIABLE,
    VARIABLE_ALLOWED,
    is_secret,
    is_secret_value,
)
from cleantail.errors import ConfigError, Problem

KeyPath = tuple[str | int, ...]  # ("config", "segment.ms"), ("checks", 0, "severity")

if TYPE_CHECKING:
    from yaml import SafeLoader as _SafeLoader
else:
    _SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader is ten times as fast
_DEEPEST = 20
MOST_BYTES = 65_536
"""Size limit of defaults.yaml, which the scheduler reads often. That file sets the limit of other files."""
MOST_CHARS = 4096
"""Length limit of a text in a file."""
NAMED_BY_VARIABLES = (("platform", "catalog", "secrets"), ("platform", "source_catalogs", "*", "secrets"))
"""Mappings of secrets to the names of their environment variables; * is any key."""
_TAG = "a tag is not allowed: quote a text that starts with !"
_INTEGER_TAG = "tag:yaml.org,2002:int"
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)$")
_TIMESTAMP_TAG = "tag:yaml.org,2002:timestamp"


class _Loader(_SafeLoader):
    """YAML's safe subset. Dates stay text, because no config is a date.

    Only decimal numbers are integers: by YAML 1.1 also 1:30 would be 90, and 0777 would be 511.
    """

    yaml_implicit_resolvers: dict[str, Any] = {
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
                name = "a key that looks like a secret" if is_secret_value(key.value) else f"the key {key.value}"
                problem = f"{name} occurs twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(str(key.value))
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def read_yaml(file: Path, most_bytes: int = MOST_BYTES, limit: str = "") -> dict[str, Any]:
    """Return the mapping in `file`; an empty file is an empty mapping. `limit`: the setting that sets `most_bytes`.

    Raises ConfigError if the file is missing, too long, not YAML (with the line), or not a mapping.
    """
    try:
        with file.open("rb") as stream:
            text = stream.read(most_bytes + 1)
        if len(text) > most_bytes:
            allowed = f"a file of at most {most_bytes} bytes{f'; {limit}' if limit else ''}"
            raise ConfigError(file, [Problem("", "too long", allowed)])
        _require_plain(text)
        data = yaml.load(text, Loader=_Loader)  # a safe loader
    except OSError as error:
        raise ConfigError(file, [Problem("", "cannot be read", error.strerror or str(error))]) from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(file, [Problem("", "not valid YAML", _yaml_reason(error))]) from error
    if data is not None and not isinstance(data, dict):
        raise ConfigError(file, [Problem("", "not a mapping", "the file needs lines of the form key: value")])
    return data or {}


def key_lines(file: Path) -> dict[KeyPath, int]:
    """Return key path -> line, counted from 1; empty for a file that cannot be read."""
    try:
        root = yaml.compose(file.read_bytes(), Loader=_SafeLoader)
    except (OSError, yaml.YAMLError, ValueError):
        return {}
    return dict(_lines(root, ()))


def _lines(node: yaml.Node | None, key_path: KeyPath) -> Iterator[tuple[KeyPath, int]]:
    inner: list[tuple[str | int, yaml.Node, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        inner = [(str(key.value), key, value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        inner = [(index, value, value) for index, value in enumerate(node.value)]
    for part, key, value in inner:
        yield (*key_path, part), key.start_mark.line + 1
        yield from _lines(value, (*key_path, part))


def line_of(key_path: KeyPath, lines: dict[KeyPath, int]) -> int | None:
    """Return the line of a key path, or of the mapping that lacks it. None if unknown."""
    return next((lines[key_path[:n]] for n in range(len(key_path), 0, -1) if key_path[:n] in lines), None)


def _require_plain(text: bytes) -> None:
    """Refuse aliases, tags and deep nesting before anything is built: the loader would overflow its stack."""
    depth = 0
    for event in yaml.parse(text, Loader=_SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        mark: Any = event.start_mark
        if isinstance(event, yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="an alias", problem_mark=mark)
        if getattr(event, "tag", None) is not None:  # a tag may be a secret that begins with !
            raise yaml.MarkedYAMLError(problem=_TAG, problem_mark=mark)
        if depth > _DEEPEST:
            problem = f"nested more than {_DEEPEST} levels deep"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def _yaml_reason(error: Exception) -> str:
    """Return the line number and the reason, without the line's text: it may contain a secret."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if problem and "tag handle" in problem:  # some loaders quote the tag
        problem = _TAG
    if problem is None:
        return str(error).splitlines()[0]
    starts_badly = re.search("alias|alphabetic|cannot start any token", problem)
    hint = " (indent with spaces, not tabs, and quote a text that starts with * or @)" if starts_badly else ""
    return f"line {mark.line + 1}: {problem}{hint}" if mark else f"{problem}{hint}"


def unwanted(value: Any, key_path: KeyPath = ()) -> Iterator[tuple[KeyPath, Problem]]:
    """Yield secrets, keys that are not text, and long texts, each with its key path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _unwanted_entry(key, inner, (*key_path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from unwanted(inner, (*key_path, index))
    elif isinstance(value, str) and len(value) > MOST_CHARS:
        yield (
            key_path,
            Problem(key_text(key_path), f"a text of {len(value)} characters", f"at most {MOST_CHARS} characters"),
        )
    elif isinstance(value, str) and is_secret_value(value):
        yield key_path, Problem(key_text(key_path), SECRET_FACT, SECRET_HINT)


def _unwanted_entry(key: Any, value: Any, key_path: KeyPath) -> Iterator[tuple[KeyPath, Problem]]:
    if not isinstance(key, str):
        yield key_path, Problem(key_text(key_path), "a key that is not text", "quote it")
    elif len(key) > MOST_CHARS:
        yield key_path, Problem("", f"a key of {len(key)} characters", f"at most {MOST_CHARS} characters")
    elif is_secret_value(key):
        yield (
            key_path,
            Problem(key_text(key_path[:-1]), f"a key that looks like a secret: {SECRET_FACT}", SECRET_HINT),
        )
    elif _names_variables(key_path) and isinstance(value, dict):
        yield from unwanted(value, key_path)
    elif _names_variables(key_path[:-1]):
        if not (isinstance(value, str) and re.fullmatch(VARIABLE, value)):  # the value may be the secret itself
            yield key_path, Problem(key_text(key_path), "not the name of such a variable", VARIABLE_ALLOWED)
    elif is_secret(key, value):
        yield key_path, Problem(key_text(key_path), SECRET_FACT, SECRET_HINT)
    else:
        yield from unwanted(value, key_path)


def _names_variables(key_path: KeyPath) -> bool:
    return any(
        len(key_path) == len(pattern) and all(want in ("*", part) for want, part in zip(pattern, key_path, strict=True))
        for pattern in NAMED_BY_VARIABLES
    )


def key_text(key_path: KeyPath) -> str:
    """Return `checks[0].severity` for ("checks", 0, "severity"), on one printable line."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key_path).lstrip(".")
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def yaml_files(folder: Path) -> list[Path]:
    """Return the YAML files of a folder by their names; none if there is no folder."""
    files = folder.glob("*")
    shown = [file for file in files if file.suffix in (".yaml", ".yml") and not file.name.startswith(".")]
    return sorted(shown, key=lambda file: (file.stem, file.suffix == ".yaml"))


def without_nulls(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data without nulls: null means the default.

    Only a schedule and a group can be switched off by null.
    """
    kept = {key: value for key, value in data.items() if value is not None or key in ("schedule", "group")}
    return {key: without_nulls(value) if isinstance(value, dict) else value for key, value in kept.items()}


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return `above` over `below`: mappings merge key by key, everything else is replaced."""
    both = {**below, **above}
    for key in below.keys() & above.keys():
        if isinstance(below[key], dict) and isinstance(above[key], dict):
            both[key] = merged(below[key], above[key])
    return both

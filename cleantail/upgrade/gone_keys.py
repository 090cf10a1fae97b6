"""Keys of defaults.yaml that earlier versions had and this one refuses, and the file's text without them. Pure.

1. A key is taken out of the text, or its value is written to its new place. Every other character stays, comments
   included, since people wrote them.
2. The new text counts only where it says what the old one says without the key: `rewritten` compares the two, and gives
   none otherwise, as for a value that is no plain one.
3. A key whose value is null is no problem: null means the default, of whatever version.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from cleantail.config.yaml_file import key_text, without_nulls

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GoneKey:
    """Describes a key that this version does not know, and why. `moved_to` names the key of the mapping above that has
    its value now; None where nothing has."""

    path: Path
    why: str
    moved_to: Path | None = None

    @property
    def name(self) -> str:
        return key_text(self.path)

    @property
    def text(self) -> str:
        """Returns what becomes of the key."""
        return f"{self.name} {f'moves to {key_text(self.moved_to)}' if self.moved_to else 'goes'}: {self.why}"


GONE = (
    GoneKey(("platform", "spark", "columnar"), "there is one engine, for every strategy, table and master"),
    GoneKey(
        ("platform", "cleaner", "log.cleaner.io.max.bytes.per.second"), "it had no effect, and a limit is refused now"
    ),
    GoneKey(
        ("platform", "spark", "conf", "spark.master"), "there it is looked at", moved_to=("platform", "spark", "master")
    ),
)
"""Keys of version 0.1.0. A key that a version takes out or renames gets an entry here."""


def gone_in(data: Mapping[str, Any]) -> list[GoneKey]:
    """Returns the keys that this file has, with a value."""
    return [key for key in GONE if _value(data, key.path) is not None]


def rewritten(text: str, key: GoneKey) -> str | None:
    """Returns the text without the key, its value in its new place; None where that cannot be done by characters
    alone."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        before = yaml.safe_load(text)
        new_text = _spliced(text, root, key)
        after = yaml.safe_load(new_text) if new_text is not None else None
    except yaml.YAMLError:
        return None
    return new_text if new_text is not None and _plain(after) == _plain(_without(before, key)) else None


def _spliced(text: str, root: yaml.Node | None, key: GoneKey) -> str | None:
    """Returns the text with the key's characters out, and its value's in where it moves to."""
    entry = _entry(root, key.path)
    if entry is None or not isinstance(entry[0].value[entry[1]][1], yaml.ScalarNode):
        return None
    mapping, index = entry
    value = mapping.value[index][1]
    cuts = [(*_span(text, mapping, index), "")]
    if key.moved_to:
        written = text[value.start_mark.index : value.end_mark.index]
        cuts.append(_set(root, key, written))
    for start, end, put in sorted(cuts, reverse=True):
        text = text[:start] + put + text[end:]
    return text


def _set(root: yaml.Node | None, key: GoneKey, written: str) -> tuple[int, int, str]:
    """Returns where the value goes (start, end, what is put there): over the value that is there, or before the key of
    which the moved one was a part."""
    assert key.moved_to is not None
    there = _entry(root, key.moved_to)
    if there is not None:
        value = there[0].value[there[1]][1]
        return value.start_mark.index, value.end_mark.index, written
    above = _entry(root, key.path[: len(key.moved_to)])
    assert above is not None  # the moved key is in it
    mapping, index = above
    mark = mapping.value[index][0].start_mark
    separator = ", " if mapping.flow_style else "\n" + " " * mark.column
    return mark.index, mark.index, f"{key.moved_to[-1]}: {written}{separator}"


def _span(text: str, mapping: yaml.MappingNode, index: int) -> tuple[int, int]:
    """Returns the characters of an entry (end exclusive): in a block its line, comment included, in braces what lies
    between commas."""
    key, value = mapping.value[index]
    start, end = key.start_mark.index, value.end_mark.index
    if not mapping.flow_style:
        return text.rfind("\n", 0, start) + 1, (text.find("\n", end) + 1) or len(text)
    if index + 1 < len(mapping.value):
        return start, mapping.value[index + 1][0].start_mark.index
    return (mapping.value[index - 1][1].end_mark.index if index else start), end


def _entry(node: yaml.Node | None, path: Sequence[str]) -> tuple[yaml.MappingNode, int] | None:
    """Returns the mapping that has the last key of the path, and its number there."""
    for number, part in enumerate(path):
        if not isinstance(node, yaml.MappingNode):
            return None
        index = next((i for i, (key, _) in enumerate(node.value) if key.value == part), None)
        if index is None:
            return None
        if number == len(path) - 1:
            return node, index
        node = node.value[index][1]
    return None


def _value(data: Mapping[str, Any], path: Sequence[str]) -> Any:
    value: Any = data
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _without(data: Mapping[str, Any], key: GoneKey) -> dict[str, Any]:
    """Returns a copy of the data without the key, its value in its new place."""
    rest: dict[str, Any] = copy.deepcopy(dict(data))
    value = _value(rest, key.path[:-1]).pop(key.path[-1])
    if key.moved_to:
        _value(rest, key.moved_to[:-1])[key.moved_to[-1]] = value
    return rest


def _plain(data: Any) -> Any:
    """Returns what a file says: without nulls, and without mappings that have become empty."""
    if not isinstance(data, dict):
        return data
    plain = {key: _plain(value) for key, value in without_nulls(data).items()}
    return {key: value for key, value in plain.items() if value != {}}

"""Says which topic reads which source: a source belongs to one topic at most. Pure.

1. A topic in Kafka, by its name: two addresses may be of one cluster, so the name counts whatever the address. A topic
   that is called so comes first.
2. Files, by the pattern of their paths. The folder `<root>/<topic>/` of each folder of sources is that topic's. The
   case of letters counts only between two such folders, and only if the disk keeps it.
3. A consumer group, by its name.
4. Of two files that claim a source the better claim has it, and only the other file is wrong; equal claims are both
   wrong. A file that is broken elsewhere still claims, and always what is called as its topic.
5. What `platform.shared_sources` names several topics may read. A new name for that is the platform's to give.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import Any

from cleantail.config.claims.source_paths import MAGIC
from cleantail.config.platform import PlatformSettings
from cleantail.config.topic import Topic
from cleantail.config.yaml_file import KeyPath, key_lines, key_text, line_of
from cleantail.errors import Problem, not_allowed

KAFKA: KeyPath = ("source", "kafka", "topic")
GROUP: KeyPath = ("source", "kafka", "group.id")
PATH: KeyPath = ("source", "path")
_KINDS = {KAFKA: "kafka", GROUP: "group", PATH: "path"}
"""Key of a source -> what entries of platform.shared_sources for it begin with."""


@dataclass(frozen=True, slots=True)
class SourceClaim:
    """Describes a source that a file claims: at which key, by which text. `parts`: of a path, absolute; `is_better`: it
    is called as the topic; `is_written`: the file says so, else it is a folder that is the topic's by its name."""

    file: Path
    key: KeyPath
    text: str
    parts: tuple[str, ...] = ()
    is_better: bool = False
    is_written: bool = True

    def meets(self, other: SourceClaim) -> bool:
        """Returns whether both claim one source."""
        if self.key != other.key or self.file == other.file:
            return False
        if self.key == PATH:
            return _meet(self.parts, other.parts, keeps_case=self.is_better and other.is_better)
        return self.text == other.text


def source_claims(
    file: Path, topic: Topic | Mapping[str, Any], platform: PlatformSettings, home: Path
) -> Iterator[SourceClaim]:
    """Yields what one file claims. `topic`: what is in the file, where it is broken."""
    stem = file.stem
    folders = [(root, (*_parts(root, home), stem)) for root in platform.sources]
    for root, folder in folders:
        yield SourceClaim(file, PATH, f"{root}/{stem}/", (*folder, "**"), _is_own(folder, home / root), False)
    if not isinstance(topic, Topic):
        # what the file says of its source may be in the part that is broken
        yield SourceClaim(file, KAFKA, stem, is_better=True, is_written=False)
        yield SourceClaim(file, GROUP, stem, is_better=True, is_written=False)
    path, kafka_topic, group = _sources_of(topic, stem)
    if path:
        parts = _parts(path, home)
        in_own = any(parts[: len(folder)] == folder and _is_own(folder, home / root) for root, folder in folders)
        yield SourceClaim(file, PATH, path, parts, in_own)
    if kafka_topic:
        yield SourceClaim(file, KAFKA, kafka_topic, is_better=kafka_topic == stem)
    if group:
        yield SourceClaim(file, GROUP, group, is_better=group == stem)


def _sources_of(topic: Topic | Mapping[str, Any], stem: str) -> tuple[str | None, str | None, str | None]:
    """Returns path, topic in Kafka and consumer group."""
    if isinstance(topic, Topic):
        kafka = topic.source.kafka
        return topic.source.path, topic.kafka_topic if kafka else None, kafka.group_id if kafka else None
    source = topic.get("source")
    source = source if isinstance(source, dict) else {}
    kafka = source.get("kafka")
    texts = (source.get("path"), kafka.get("topic") or stem, kafka.get("group.id")) if isinstance(kafka, dict) else None
    path, name, group = texts or (source.get("path"), None, None)
    return tuple(text if isinstance(text, str) else None for text in (path, name, group))  # type: ignore[return-value]


def source_problems(claims: Sequence[SourceClaim], shared: Sequence[str]) -> dict[Path, Problem]:
    """Returns file -> the first source that it may not read. `shared`: platform.shared_sources."""
    problems: dict[Path, Problem] = {}
    alone = [claim for claim in claims if not _is_shared(claim, shared)]
    for claim in alone:
        if not claim.is_written or claim.file in problems:
            continue
        others = [
            o
            for o in alone
            if claim.meets(o) and o.is_better >= claim.is_better and (o.is_written or not claim.is_better)
        ]
        if others:
            problems[claim.file] = _problem(claim, others)
    return problems


def _problem(claim: SourceClaim, others: Sequence[SourceClaim]) -> Problem:
    names = ", ".join(sorted({other.file.name for other in others}))
    kind = _KINDS[claim.key]
    is_lost = any(other.is_better and not claim.is_better for other in others)
    until = "" if is_lost else ", and neither topic reads it until one file names another"
    allowed = (
        f"a source of one topic: {names} has it{until}; name another, or list {kind}:{claim.text} in "
        f"platform.shared_sources of defaults.yaml if several topics may read it"
    )
    line = line_of(claim.key, key_lines(claim.file))
    return Problem(key_text(claim.key), not_allowed(claim.text), allowed, claim.text, line=line)


def _is_shared(claim: SourceClaim, shared: Sequence[str]) -> bool:
    """Returns whether the platform lets several topics read it. A path is shared by its whole text or its beginning."""
    return any(is_listed(f"{_KINDS[claim.key]}:{claim.text}", (entry,)) for entry in shared)


def is_listed(text: str, entries: Sequence[str]) -> bool:
    """Returns whether a text is one of the entries, or begins as one that has * at its end."""
    return any(text == entry or (entry.endswith("*") and text.startswith(entry[:-1])) for entry in entries)


def _parts(pattern: str, home: Path) -> tuple[str, ...]:
    return PurePosixPath(os.path.normpath(home / pattern)).parts


def _is_own(folder: Sequence[str], root: Path) -> bool:
    """Return whether a folder below `root` is the topic's by its name. On a disk that folds the case, only a name of
    small letters has a folder of its own."""
    name = folder[-1]
    other_case = root.with_name(root.name.swapcase())
    return name == name.casefold() or not (root.exists() and other_case.exists() and root.samefile(other_case))


def _meet(one: Sequence[str], other: Sequence[str], keeps_case: bool) -> bool:
    """Returns whether one file may match both patterns. `**` may mean any folders."""
    for a, b in zip_longest(one, other):
        if a is None or b is None:
            return False
        if "**" in (a, b):
            return True
        if not (_may_be_one(a, b) if keeps_case else _may_be_one(a.casefold(), b.casefold())):
            return False
    return True


def _may_be_one(one: str, other: str) -> bool:
    """Returns whether one name may match both patterns of a part of a path: by their fixed beginnings and ends."""
    begins, ends = [], []
    for text in (one, other):
        pieces = MAGIC.split(text)
        if len(pieces) == 1 and not MAGIC.search(one + other):
            return one == other
        begins.append(pieces[0])
        ends.append(pieces[-1].rpartition("]")[2] if len(pieces) > 1 else pieces[0])
    same_begin = begins[0].startswith(begins[1]) or begins[1].startswith(begins[0])
    return same_begin and (ends[0].endswith(ends[1]) or ends[1].endswith(ends[0]))

"""The names that a topic's file may use: in the catalog, of sources, and allowed by the platform. Pure except for one
check.

Names in the catalog. Every name has at most one owner.

1. A topic has the name of its file. So the directory shows the owners, and a review by file (CODEOWNERS) is a review by
   topic.
2. A topic file claims the name of its table, and those of its side tables and its view. The evidence table belongs to
   all topics, so no topic may claim it.
3. If two files claim a name, the better claim has it, and only the other file is wrong. Claims, the best first:
   (a) the topic's name is the name of its table, letter by letter;
   (b) the table's name follows from the topic's: `.` and `-` become `_`, and a catalog may fold the case;
   (c) the file names the table (`table:`).
   A claim to a side table or view is as good as that to the table. `default_table` makes no name that is the name of
   another topic's side table. If two claims are equal, neither file has the name until one of them changes: it is
   unknown which file came first.
4. Names that differ only in case are one name. Exception: a catalog that keeps the case has two default tables for two
   such topics.
5. A table that a topic reads (source.table, in the same catalog) must not be a topic's table. Rounds remove records of
   a topic's table, and a read would treat these removals as changes by a sink.

Sources. A source belongs to one topic at most.

6. A topic in Kafka is claimed by its name, regardless of the address: two addresses may belong to one cluster. A topic
   of the same name has the better claim.
7. Files are claimed by the pattern of their paths. The folder `<root>/<topic>/` of each folder of sources belongs to
   that topic. Case matters only between two such folders, and only if the disk keeps it.
8. A consumer group is claimed by its name.
9. The better claim has the source, and only the other file is wrong. Equal claims are both wrong. A file that is broken
   elsewhere still claims, and always the sources that have its topic's name.
10. Several topics may read the sources in `platform.shared_sources`.

The platform also limits which folders, Airflow connections, brokers and tables a topic may use (`platform_problems`).
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import Any

from cleantail.config.alert_channels import Alert, FileAlert
from cleantail.config.catalog import Catalog
from cleantail.config.platform import PlatformSettings
from cleantail.config.source_paths import MAGIC, path_problem, written_problem
from cleantail.config.topic import DOCTOR_DAG, ID_CHARS, OWN_DAG, Topic, dag_id_of, default_table
from cleantail.config.topic_checks import is_own
from cleantail.config.topic_source import ADDRESS
from cleantail.config.topic_table import KEYLESS_SUFFIX, LATEST_SUFFIX, LEDGER_SUFFIX, OWN_TABLES, UNHOLDABLE_SUFFIX
from cleantail.config.yaml_file import KeyPath, key_lines, key_text, line_of
from cleantail.errors import ConfigError, Problem, not_allowed

_SIDE_NAMES = {
    KEYLESS_SUFFIX: "its side table of records without a key",
    LEDGER_SUFFIX: "its side table of deleted versions",
    UNHOLDABLE_SUFFIX: "its side table of records that it cannot hold",
    LATEST_SUFFIX: "its view of the current state",
}
"""Suffix of a name -> its use for the topic."""
EXPLICIT, MADE, OWN = 0, 1, 2
"""Strength of a claim by rule 3: (c), (b) and (a)."""
_AS_A_TABLE = re.compile("[A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True)
class Claim:
    """The claims of one topic file.

    `reads`: the table in the same catalog that the topic reads. `strength`: EXPLICIT, MADE or OWN. A file that is
    broken elsewhere still claims, so that no other topic takes its table meanwhile.
    """

    file: Path
    table: str | None
    reads: str | None = None
    strength: int = EXPLICIT

    @classmethod
    def of(cls, file: Path, table: str, catalog: Catalog, reads: str | None = None) -> Claim:
        if table != default_table(catalog.namespace, file.stem):
            return cls(file, table, reads)
        is_own = _AS_A_TABLE.fullmatch(file.stem) and (catalog.keeps_case or file.stem == file.stem.casefold())
        return cls(file, table, reads, OWN if is_own else MADE)

    @property
    def topic(self) -> str:
        return self.file.stem

    def names(self) -> Mapping[str, str]:
        """Return name in the catalog -> its use by the topic."""
        if self.table is None:
            return {}
        return {self.table: "its table", **{self.table + suffix: text for suffix, text in _SIDE_NAMES.items()}}


def name_problem(file: Path, topic: Topic, dag_prefix: str) -> Problem | None:
    """Return the problem of a topic's name, or None.

    1. A file has the name of its topic.
    2. If a file is a link, its target has the same name.
    3. The name is short enough for a DAG id, and not that of Cleantail's own DAG.
    """
    file_stem, link_target = file.stem, file.resolve()
    if topic.topic != file_stem:
        allowed = f"the name of its file: write {file_stem}, or call the file {topic.topic}.yaml"
        return Problem("topic", not_allowed(topic.topic), allowed, topic.topic, line=_line(file, "topic"))
    if link_target.stem != file_stem:
        fact = f"a link to {link_target.name}"
        return Problem(
            "", fact, f"a file, or a link to a file that is called {file_stem}.yaml: it decides over topic {file_stem}"
        )
    if len(dag_id_of(file_stem, dag_prefix)) > ID_CHARS:
        longest = ID_CHARS - len(dag_prefix)
        allowed = f"at most {longest} characters with platform.dag_prefix {dag_prefix}: a DAG id has {ID_CHARS} at most"
        return Problem("topic", not_allowed(file_stem), allowed, file_stem, line=_line(file, "topic"))
    if file_stem.casefold() == DOCTOR_DAG:
        return Problem("topic", not_allowed(file_stem), OWN_DAG, file_stem, line=_line(file, "topic"))
    return None


def claim_problems(claims: Sequence[Claim], catalog: Catalog) -> dict[Path, Problem]:
    """Return file -> the first problem with its claims."""
    # 1. the claims of each name
    own = {f"{catalog.namespace}.{name}".casefold(): text for name, text in OWN_TABLES.items()}
    names: dict[str, list[tuple[Claim, str]]] = defaultdict(list)
    without_topic = superseded(claims, catalog)
    for claim in claims:
        for name in claim.names() if claim.file not in without_topic else ():
            names[name.casefold()].append((claim, name))
    # 2. two files of one topic
    problems: dict[Path, Problem] = {}
    for namesakes in _by_topic(claims, catalog):
        for claim in namesakes:
            others = [o for o in namesakes if o.file != claim.file and _rank_of_file(o) >= _rank_of_file(claim)]
            if others:
                problems[claim.file] = _same_topic(claim, others)
    # 3. the names of the evidence, and of the tables of erasures
    for claim in claims:
        if claim.table and (whose := own.get(claim.table.casefold())):
            problems.setdefault(claim.file, _table_problem(claim, f"it is {whose}: name another table"))
    # 4. two topics of one name
    for pairs in names.values():
        for claim, name in pairs:
            rivals = [
                (other, name_there)
                for other, name_there in pairs
                if other.file != claim.file
                and other.strength >= claim.strength
                and not (catalog.keeps_case and claim.strength > EXPLICIT and name != name_there)
            ]
            if rivals and claim.file not in problems:
                problems[claim.file] = _same_name(claim, name, rivals)
    # 5. a topic that reads a table of a topic, or one that belongs to none
    for claim in claims:
        if claim.reads is None:
            continue
        owners, whose = names.get(claim.reads.casefold(), ()), own.get(claim.reads.casefold(), "")
        if owners or whose:
            problems.setdefault(claim.file, _read_problem(claim, owners, whose))
    return problems


def superseded(claims: Sequence[Claim], catalog: Catalog) -> frozenset[Path]:
    """Return the files whose topic another file of higher rank defines. Their other claims are ignored too."""
    return frozenset(
        claim.file
        for namesakes in _by_topic(claims, catalog)
        for claim in namesakes
        if _rank_of_file(claim) < max(map(_rank_of_file, namesakes))
    )


def _by_topic(claims: Sequence[Claim], catalog: Catalog) -> Iterable[list[Claim]]:
    topics: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        topics[claim.topic if catalog.keeps_case else claim.topic.casefold()].append(claim)
    return topics.values()


def _rank_of_file(claim: Claim) -> tuple[bool, bool]:
    """Return the rank of a file among those with its topic: a lower-case name is higher, then `.yaml` before `.yml`."""
    return claim.topic == claim.topic.casefold(), claim.file.suffix == ".yaml"


def problem_of_new(claim: Claim, claims: Iterable[Claim], catalog: Catalog) -> Problem | None:
    """Return the problem of a topic file that does not exist yet, by the rules above.

    The new file may not take a table that a topic reads. Nor may it take the name of
    another topic's default table: the file of that topic would then be wrong.
    """
    others, names = list(claims), {name.casefold() for name in claim.names()}
    if readers := [other for other in others if other.reads is not None and other.reads.casefold() in names]:
        return _table_problem(claim, f"a table that no topic reads: {readers[0].file.name} does (source.table)")
    problems = claim_problems([*others, claim], catalog)
    if claim.file not in problems and (lost := problems.keys() - claim_problems(others, catalog).keys()):
        for name in sorted(other.file.name for other in others if other.file in lost and other.strength > EXPLICIT):
            return _table_problem(claim, f"a table that takes no name from another topic: {name} has one of its names")
    return problems.get(claim.file)


def _same_topic(claim: Claim, others: Sequence[Claim]) -> Problem:
    names = ", ".join(sorted(other.file.name for other in others))
    is_lost = any(_rank_of_file(other) > _rank_of_file(claim) for other in others)
    until = "give this file another name" if is_lost else "neither has it until one file is deleted or has another name"
    allowed = f"also the topic of {names}: {until}"
    return Problem("topic", not_allowed(claim.topic), allowed, claim.topic, line=_line(claim.file, "topic"))


def _same_name(claim: Claim, name: str, others: Sequence[tuple[Claim, str]]) -> Problem:
    """Return the problem of a name that other files claim, too. Each of `others` has the name as its own file spells
    it.
    """
    theirs = ", ".join(
        f"{other.names()[name_there].replace('its', 'the', 1)} of {other.file.name}" for other, name_there in others
    )
    subject = "" if name == claim.table else f"{claim.names()[name]} {name} would be "
    also = "also " if name == claim.table else ""
    is_lost = any(other.strength > claim.strength for other, _ in others)
    until = "name another table" if is_lost else "neither topic has it until one of the files names another table"
    return _table_problem(claim, f"{subject}{also}{theirs}: {until}")


def _read_problem(claim: Claim, owners: Sequence[tuple[Claim, str]], whose: str) -> Problem:
    """Return the problem of a topic that reads a table of Cleantail. `owners`: files that claim the name of that
    table. `whose`: names the owner in the message, if no file claims the table."""
    if not owners:
        whose = f"it is {whose}"
    elif any(owner.file == claim.file for owner, _ in owners):
        whose = "it is the topic's own"
    else:
        owner, name = owners[0]
        whose = f"it is {owner.names()[name].replace('its', 'the', 1)} of {owner.file.name}"
    line = line_of(("source", "table", "name"), key_lines(claim.file))
    allowed = f"a table that another writer fills, and {whose}"
    return Problem("source.table.name", not_allowed(claim.reads), allowed, claim.reads, line=line)


def _table_problem(claim: Claim, allowed: str) -> Problem:
    return Problem("table", not_allowed(claim.table), allowed, claim.table, line=_line(claim.file, "table"))


def _line(file: Path, key: str) -> int | None:
    return line_of((key,), key_lines(file))


KAFKA: KeyPath = ("source", "kafka", "topic")
GROUP: KeyPath = ("source", "kafka", "group.id")
PATH: KeyPath = ("source", "path")
_KINDS: Mapping[KeyPath, str] = {KAFKA: "kafka", GROUP: "group", PATH: "path"}
"""Key of a source -> prefix of its entries in platform.shared_sources."""


@dataclass(frozen=True, slots=True)
class SourceClaim:
    """A source that a file claims.

    `parts` are those of an absolute path. `is_better`: the source has the name of the topic. `is_written`: the file
    names the source; else it belongs to the topic by its name.
    """

    file: Path
    key: KeyPath
    text: str
    parts: tuple[str, ...] = ()
    is_better: bool = False
    is_written: bool = True

    def meets(self, other: SourceClaim) -> bool:
        if self.key != other.key or self.file == other.file:
            return False
        if self.key == PATH:
            return _meet(self.parts, other.parts, keeps_case=self.is_better and other.is_better)
        return self.text == other.text


def source_claims(
    file: Path, topic: Topic | Mapping[str, Any], platform: PlatformSettings, home: Path
) -> Iterator[SourceClaim]:
    """Yield what one file claims. `topic` is the content of the file if it is broken."""
    stem = file.stem
    folders = [(root, (*_parts(root, home), stem)) for root in platform.sources]
    for root, folder in folders:
        yield SourceClaim(file, PATH, f"{root}/{stem}/", (*folder, "**"), _is_own(folder, home / root), False)
    if not isinstance(topic, Topic):
        # the broken part may be the one that names the source
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
    """Return path, topic in Kafka and consumer group."""
    if isinstance(topic, Topic):
        kafka = topic.source.kafka
        return topic.source.path, topic.kafka_topic if kafka else None, kafka.group_id if kafka else None
    source = topic.get("source")
    source = source if isinstance(source, dict) else {}
    kafka = source.get("kafka")
    name, group = (kafka.get("topic") or stem, kafka.get("group.id")) if isinstance(kafka, dict) else (None, None)
    texts = (source.get("path"), name, group)
    return tuple(text if isinstance(text, str) else None for text in texts)  # type: ignore[return-value]


def source_problems(claims: Sequence[SourceClaim], shared: Sequence[str]) -> dict[Path, Problem]:
    """Return file -> the first source that it may not read. `shared` is platform.shared_sources."""
    problems: dict[Path, Problem] = {}
    alone = [claim for claim in claims if not is_listed(f"{_KINDS[claim.key]}:{claim.text}", shared)]
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


def is_listed(text: str, entries: Sequence[str]) -> bool:
    """Return whether a text is an entry, or has a prefix that is an entry with * at its end."""
    return any(text == entry or (entry.endswith("*") and text.startswith(entry[:-1])) for entry in entries)


def _parts(pattern: str, home: Path) -> tuple[str, ...]:
    return PurePosixPath(os.path.normpath(home / pattern)).parts


def _is_own(folder: Sequence[str], root: Path) -> bool:
    """Return whether a folder below `root` is the topic's by its name.

    On a disk that folds the case, only a lower-case name has its own folder.
    """
    name = folder[-1]
    other_case = root.with_name(root.name.swapcase())
    return name == name.casefold() or not (root.exists() and other_case.exists() and root.samefile(other_case))


def _meet(one: Sequence[str], other: Sequence[str], keeps_case: bool) -> bool:
    """Return whether one file may match both patterns. `**` may mean any folders."""
    for a, b in zip_longest(one, other):
        if a is None or b is None:
            return False
        if "**" in (a, b):
            return True
        if not (_may_be_one(a, b) if keeps_case else _may_be_one(a.casefold(), b.casefold())):
            return False
    return True


def _may_be_one(one: str, other: str) -> bool:
    """Return whether one name may match both patterns of a part of a path, by their fixed beginnings and ends."""
    begins, ends = [], []
    for text in (one, other):
        pieces = MAGIC.split(text)
        if len(pieces) == 1 and not MAGIC.search(one + other):
            return one == other
        begins.append(pieces[0])
        ends.append(pieces[-1].rpartition("]")[2] if len(pieces) > 1 else pieces[0])
    same_begin = begins[0].startswith(begins[1]) or begins[1].startswith(begins[0])
    return same_begin and (ends[0].endswith(ends[1]) or ends[1].endswith(ends[0]))


def in_its_sources(file: Path, topic: Topic | ConfigError) -> Topic | ConfigError:
    """Return the topic, or the error if a link leads its source.path out of the folders of sources. Reads the disk."""
    if isinstance(topic, ConfigError) or not topic.source.path:
        return topic
    allowed = path_problem(topic.source.path, topic.platform)
    if allowed is None:
        return topic
    path, line = topic.source.path, line_of(("source", "path"), key_lines(file))
    return ConfigError(file, [Problem("source.path", not_allowed(path), allowed, path, line=line)])


def platform_problems(topic: Topic) -> Iterator[tuple[KeyPath, Problem]]:
    """Yield the problems of names that the platform does not allow, each with its key path in the topic's file."""
    platform, path = topic.platform, topic.source.path
    if path and (allowed := written_problem(path, platform.home, platform.sources)):
        yield _refused(("source", "path"), path, allowed)
    yield from _kafka_problems(topic)
    yield from _table_problems(topic)
    for number, alert in enumerate(topic.alerts):
        if allowed := connection_problem(alert, platform):
            yield _refused(("alerts", number, "conn_id"), getattr(alert, "conn_id", None), allowed)
    for number, check in enumerate(topic.checks):
        if is_own(check.expectation) and check.expectation not in platform.expectations:
            allowed = _listed_text("an expectation", "expectations", platform.expectations)
            yield _refused(("checks", number, "expectation"), check.expectation, allowed)


def _refused(key_path: KeyPath, value: object, allowed: str) -> tuple[KeyPath, Problem]:
    return key_path, Problem(key_text(key_path), not_allowed(value), allowed, value)


def connection_problem(alert: Alert, platform: PlatformSettings) -> str | None:
    """Return the allowed values if an alert uses a connection that is not for alerts, else None.

    Otherwise a topic's YAML could send messages with the credentials of any connection.
    """
    conn_id = None if isinstance(alert, FileAlert) else alert.conn_id
    return None if conn_id is None else _unlisted(conn_id, "alert_connections", platform.alert_connections)


def _unlisted(conn_id: str, key: str, names: Sequence[str]) -> str | None:
    """Return the allowed values if a connection is not in a list of the platform, else None."""
    if is_listed(conn_id, names):
        return None
    return _listed_text("a connection", key, names)


def _listed_text(what: str, key: str, names: Sequence[str]) -> str:
    return f"{what} that platform.{key} in defaults.yaml lists: {', '.join(names) or 'none'}; list it there"


def _kafka_problems(topic: Topic) -> Iterator[tuple[KeyPath, Problem]]:
    """Yield the problems of names in source.kafka that the platform does not allow.

    Otherwise a topic's YAML could read with the login of any connection, or make Cleantail connect to any host.
    """
    kafka, platform = topic.source.kafka, topic.platform
    if kafka is None:
        return
    conn_id = kafka.connection
    if conn_id and (allowed := _unlisted(conn_id, "kafka_connections", platform.kafka_connections)):
        yield _refused(("source", "kafka", "connection"), conn_id, allowed)
    if conn_id:
        yield from _access_problems(topic, conn_id)
    servers, names = kafka.bootstrap_servers or "", platform.kafka_servers
    if servers and "*" not in names and not set(servers.split(",")) <= set(names):
        listed = ", ".join(names) or "none"
        allowed = f"brokers that platform.kafka_servers in defaults.yaml lists: {listed}; list them there"
        yield _refused(("source", "kafka", ADDRESS), servers, allowed)


def _access_problems(topic: Topic, conn_id: str) -> Iterator[tuple[KeyPath, Problem]]:
    """Yield the problems of names that the connection may not read (platform.kafka_access)."""
    group = topic.source.kafka.group_id if topic.source.kafka else None
    for name, access in topic.platform.kafka_access.items():
        if not is_listed(conn_id, (name,)):
            continue
        for key, text, listed in (("topic", topic.kafka_topic, access.topics), ("group.id", group, access.groups)):
            if text and not is_listed(text, listed):
                kind = "topics" if key == "topic" else "groups"
                allowed = (
                    f"one of the {kind} that platform.kafka_access.{name} in defaults.yaml lists: "
                    f"{', '.join(listed) or 'none'}; list it there"
                )
                yield _refused(("source", "kafka", key), text, allowed)


def _table_problems(topic: Topic) -> Iterator[tuple[KeyPath, Problem]]:
    """Yield the problems of a source.table that the platform does not allow.

    Otherwise a topic could show any table that the platform may read.
    """
    table, platform = topic.source.table, topic.platform
    if table is None:
        return
    if table.catalog is not None and table.catalog not in platform.source_catalogs:
        listed = ", ".join(sorted(platform.source_catalogs)) or "none"
        allowed = f"a catalog that platform.source_catalogs in defaults.yaml has: {listed}"
        yield _refused(("source", "table", "catalog"), table.catalog, allowed)
        return
    name = table.named_in(platform.catalog.name)
    if not is_listed(name, platform.source_tables):
        listed = ", ".join(platform.source_tables) or "none"
        allowed = f"a table that platform.source_tables in defaults.yaml lists: {listed}; list {name} there"
        yield _refused(("source", "table", "name"), table.name, allowed)

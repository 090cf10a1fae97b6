"""Says which topic has which name in the catalog: every name has one owner at most. Pure.

1. A topic has the name of its file. So the directory says who owns what, and a review by file (CODEOWNERS) is one by
   topic.
2. A topic file claims the name of its table, and of two side tables and a view beside it. All topics together have the
   table of the evidence, which none may claim.
3. Of two files that claim a name the better claim has it, and only the other file is wrong. From the best on:
   (a) the topic's name is the name of its table, letter by letter;
   (b) the topic's name makes that of its table: `.` and `-` become `_`, and a catalog may fold the case;
   (c) the file names the table (`table:`).
   A claim is as good for what lies beside the table as for the table. No name of (a) and (b) lies beside another table
   of (a) and (b): default_table sees to that. Equal claims leave the name to neither file until one gives way, since
   nothing here knows which file was first.
4. Names that differ in their case alone are one name. Where the catalog keeps the case, two topics whose names make
   their tables are two all the same.
5. A table that a topic reads (source.table, in the same catalog) is no topic's: its own it would read from itself, and
   of another's the rounds remove records, which a read would take for changes of a sink.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cleantail.config.catalog import Catalog
from cleantail.config.claims.dag_ids import ID_CHARS, dag_id_of
from cleantail.config.topic import Topic, default_table
from cleantail.config.topic_table import EVIDENCE, KEYLESS_SUFFIX, LATEST_SUFFIX, LEDGER_SUFFIX, UNHOLDABLE_SUFFIX
from cleantail.config.yaml_file import key_lines, line_of
from cleantail.errors import Problem, not_allowed

_SIDE_NAMES = {
    KEYLESS_SUFFIX: "its side table of records without a key",
    LEDGER_SUFFIX: "its side table of deleted versions",
    UNHOLDABLE_SUFFIX: "its side table of records that it cannot hold",
    LATEST_SUFFIX: "its view of the current state",
}
"""Ending of a name -> what the name is for the topic."""
EXPLICIT, MADE, OWN = 0, 1, 2
"""How good a claim is, by rule 3: (c), (b) and (a)."""
_AS_A_TABLE = re.compile("[A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True)
class Claim:
    """Describes what one topic file claims. `table` is None where it claims none; `reads` is the table in the same
    catalog that it reads, None where there is none; `strength`: EXPLICIT, MADE or OWN.

    A file that is broken elsewhere still claims: while its owner mends it, no other topic may take its table.
    """

    file: Path
    table: str | None
    reads: str | None = None
    strength: int = EXPLICIT

    @classmethod
    def of(cls, file: Path, table: str, catalog: Catalog, reads: str | None = None) -> Claim:
        """Return the claim of a file with this table."""
        if table != default_table(catalog.namespace, file.stem):
            return cls(file, table, reads)
        is_own = _AS_A_TABLE.fullmatch(file.stem) and (catalog.keeps_case or file.stem == file.stem.casefold())
        return cls(file, table, reads, OWN if is_own else MADE)

    @property
    def topic(self) -> str:
        """Returns the name that the file gives its topic."""
        return self.file.stem

    def names(self) -> Mapping[str, str]:
        """Returns every name in the catalog that the topic takes -> what it is for the topic."""
        if self.table is None:
            return {}
        return {self.table: "its table", **{self.table + suffix: text for suffix, text in _SIDE_NAMES.items()}}


def name_problem(file: Path, topic: Topic, dag_prefix: str) -> Problem | None:
    """Returns what is wrong with a topic's name, or None.

    1. A file has the name of its topic.
    2. A file that is a link leads to a file of the same name.
    3. The name is short enough for the id of a DAG.
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
    return None


def claim_problems(claims: Sequence[Claim], catalog: Catalog) -> dict[Path, Problem]:
    """Returns file -> the first thing that is wrong with what it claims."""
    # 1. who claims which topic and which name
    evidence = f"{catalog.namespace}.{EVIDENCE}"
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
    # 3. the name of the evidence
    for claim in claims:
        if claim.table and claim.table.casefold() == evidence.casefold():
            problems.setdefault(
                claim.file, _table_problem(claim, "it is the evidence of all topics: name another table")
            )
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
    # 5. a topic that reads what is a topic's, or the evidence
    for claim in claims:
        if claim.reads is None:
            continue
        owners = names.get(claim.reads.casefold(), ())
        if owners or claim.reads.casefold() == evidence.casefold():
            problems.setdefault(claim.file, _read_problem(claim, owners))
    return problems


def superseded(claims: Sequence[Claim], catalog: Catalog) -> frozenset[Path]:
    """Return the files whose topic is that of a better file: they claim nothing else either."""
    return frozenset(
        claim.file
        for namesakes in _by_topic(claims, catalog)
        for claim in namesakes
        if _rank_of_file(claim) < max(map(_rank_of_file, namesakes))
    )


def _by_topic(claims: Sequence[Claim], catalog: Catalog) -> Iterable[list[Claim]]:
    """Return the claims of each topic together."""
    topics: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        topics[claim.topic if catalog.keeps_case else claim.topic.casefold()].append(claim)
    return topics.values()


def _rank_of_file(claim: Claim) -> tuple[bool, bool]:
    """Return how good a file is for the topic of its name: small letters are better, then `.yaml` than `.yml`."""
    return claim.topic == claim.topic.casefold(), claim.file.suffix == ".yaml"


def problem_of_new(claim: Claim, claims: Iterable[Claim], catalog: Catalog) -> Problem | None:
    """Returns what would be wrong with a topic file that is not there yet, by the rules above. It may not take a table
    that a topic reads, or a name from a topic that has the table of its own name: that one would be wrong then."""
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
    until = (
        "give this file another name" if is_lost else "neither has it until the other file is gone or has another name"
    )
    allowed = f"also the topic of {names}: {until}"
    return Problem("topic", not_allowed(claim.topic), allowed, claim.topic, line=_line(claim.file, "topic"))


def _same_name(claim: Claim, name: str, others: Sequence[tuple[Claim, str]]) -> Problem:
    """Returns the problem of a name that other files claim as well.

    `name` is as this file has it; each of `others` is a claim and the same name as that file has it, which may differ
    in its case.
    """
    theirs = ", ".join(
        f"{other.names()[name_there].replace('its', 'the', 1)} of {other.file.name}" for other, name_there in others
    )
    subject = "" if name == claim.table else f"{claim.names()[name]} {name} would be "
    also = "also " if name == claim.table else ""
    is_lost = any(other.strength > claim.strength for other, _ in others)
    until = "name another table" if is_lost else "neither topic has it until one of the files names another table"
    return _table_problem(claim, f"{subject}{also}{theirs}: {until}")


def _read_problem(claim: Claim, owners: Sequence[tuple[Claim, str]]) -> Problem:
    """Returns the problem of a topic that reads a table that Cleantail has made. `owners`: who claims its name."""
    if not owners:
        whose = "it is the evidence of all topics"
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

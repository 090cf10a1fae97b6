"""All errors that Cleantail raises on purpose; anything else that escapes is a defect.

A job and the command line exit with an error's `exit_code`: 2 for input, configuration or table, 3 for a conflict, 4
for what failed outside (disk, network, Java) and may be tried again, 5 for what a person has to decide.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_VALUE_CHARS = 80


class CleantailError(Exception):
    """Is the base of all errors with a message for a person: no traceback is needed to act on one. A message may quote
    names and texts that others wrote into a table: it is printable whatever they are."""

    exit_code = 2

    def __str__(self) -> str:
        return printable(super().__str__())


def printable(text: str) -> str:
    """Returns a text for a terminal or a log without what commands it: escape sequences, other control characters, and
    those that turn the order of letters round. Line breaks and tabs stay."""
    return text if text.isprintable() else "".join(c for c in text if c.isprintable() or c in "\n\t")


@dataclass(frozen=True)
class Problem:
    """Describes one thing that is wrong in one file.

    key     dotted path of the key in the file, "" where the whole file is meant
    fact    what is wrong with it, e.g. "1.5 is not allowed"
    value   the offending value; None for a missing or secret key
    allowed what would be right
    nearest the closest name or value that would be right, if there is one
    line    where the key is in the file, counted from 1; None where it is not written there
    """

    key: str
    fact: str
    allowed: str
    value: object = None
    nearest: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        text = ": ".join(part for part in (self.key, self.fact, self.allowed) if part)
        return f"{text} (did you mean {self.nearest}?)" if self.nearest else text


def kind_of(value: object) -> str:
    """Returns of what kind a value is and how long, and nothing of what it says."""
    sizes = {str: "character", dict: "key", list: "entry"}
    names = {str: "a text", dict: "a mapping", list: "a list"}
    for kind, unit in sizes.items():
        if isinstance(value, kind):
            plural = "entries" if unit == "entry" else f"{unit}s"
            return f"{names[kind]} of {len(value)} {unit if len(value) == 1 else plural}"
    return "nothing" if value is None else "true or false" if isinstance(value, bool) else "a number"


def not_allowed(value: object) -> str:
    """Returns the fact for a wrong value: short, on one line and printable, whatever the file holds."""
    return f"{shown(value)} is not allowed"


def shown(value: object) -> str:
    """Returns a value as it may stand in a message, and nothing of what a mapping holds: it may be a secret under any
    name."""
    if isinstance(value, dict) or (isinstance(value, list | tuple) and any(isinstance(v, dict | list) for v in value)):
        return kind_of(value)
    text = json.dumps(value, default=str)
    return text if len(text) <= _VALUE_CHARS else text[:_VALUE_CHARS] + "…"


class ConfigError(CleantailError):
    """Is raised for a configuration file that cannot be used, with everything that is wrong in it.

    `key`, `value`, `allowed` and `nearest` are those of the first problem; `str()` has one line for each problem.
    """

    def __init__(self, file: Path | str, problems: Sequence[Problem]) -> None:
        super().__init__(file, problems)
        self.file = Path(file)
        self.problems = tuple(problems)

    @property
    def key(self) -> str:
        return self.problems[0].key

    @property
    def value(self) -> object:
        return self.problems[0].value

    @property
    def allowed(self) -> str:
        return self.problems[0].allowed

    @property
    def nearest(self) -> str | None:
        return self.problems[0].nearest

    @property
    def locations(self) -> list[str]:
        """Returns file, line and key of each problem, without the values: for those who may not see the file."""
        return [self._line(problem, problem.key or "the whole file") for problem in self.problems]

    def _line(self, problem: Problem, text: object) -> str:
        return f"{self.file}{f':{problem.line}' if problem.line else ''}: {text}"

    def __str__(self) -> str:
        return "\n".join(self._line(problem, problem) for problem in self.problems)


class BadLineError(CleantailError):
    """Is raised for a line of an input file that is not a record; nothing of the run was appended.

    `line_number` counts from 1.
    """

    def __init__(self, file: Path | str, line_number: int, reason: str) -> None:
        super().__init__(file, line_number, reason)
        self.file = Path(file)
        self.line_number = line_number
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.file}:{self.line_number}: {self.reason}"


class ContradictionError(CleantailError):
    """Is raised for two different records at one (partition, offset), of which ingestion would append one; nothing was
    appended.

    `contradictions` has one Contradiction (cleantail.log.rules) for each log; the message has neither keys nor
    values.
    """

    def __init__(self, message: str, contradictions: Sequence[object]) -> None:
        super().__init__(message)
        self.contradictions = tuple(contradictions)


class TableError(CleantailError):
    """Is raised for a table that is missing, broken or not Cleantail's, and for a catalog that is none."""


class ConflictError(CleantailError):
    """Is raised where another writer changed the table in a way that makes this result void; the round starts over."""

    exit_code = 3


class OvertakenError(ConflictError):
    """Another commit was faster; what was read still holds, and the same change may be tried again."""


class HeldError(CleantailError):
    """Is raised for a round that waits for a person's approval, or whose approval is void since the table has
    changed."""

    exit_code = 5


class OutsideError(CleantailError):
    """Is raised where something that Cleantail needs failed: a catalog, a disk, a network, Java. It may work at another
    time."""

    exit_code = 4


class UnknownCommitError(OutsideError):
    """Is raised where a catalog has not answered whether it took a commit. No file of that commit may be deleted."""

    def __init__(self, said: str) -> None:
        super().__init__(
            f"whether the catalog took the commit is unknown: {said}. No file was deleted. Look at the table "
            "(`cleantail status`) when the catalog answers again, and repeat the command if the commit is not there"
        )


class TargetError(CleantailError):
    """Is raised where a topic in Kafka is not one that a restore can write into, or go on writing into. Trying again
    does not help: a person has to decide."""


class TargetUnreachableError(OutsideError):
    """Is raised where brokers do not answer a restore, or do not take what it writes. The same command goes on where it
    stopped."""


class RestoreMismatchError(CleantailError):
    """Is raised where a record in Kafka is not the archive's, or is one too many, or is missing: a restore's check
    failed."""

    exit_code = 1


class SourceError(CleantailError):
    """Is raised where a topic's source, in Kafka or in a table, is not what its table was read from, or may not be
    read; nothing was appended. Trying again does not help: a person has to decide."""


class SegmentError(SourceError):
    """Is raised where a segment of a broker's log is cut off, damaged or missing; the message names file and position,
    and nothing was appended."""


class UnholdableError(SourceError):
    """Is raised for a record that the table cannot hold, where `cleantail.unholdable.policy` is `fail`; the message
    names partition and offset, and nothing was appended."""


class SourceUnreachableError(OutsideError):
    """Is raised where brokers do not answer, or a read stands still; nothing was appended. It may work at another
    time."""


class SilentBrokersError(SourceUnreachableError):
    """Is raised where no broker answers at all, whatever it is asked."""

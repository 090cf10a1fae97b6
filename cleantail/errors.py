"""All errors that Cleantail raises on purpose. Any other exception that escapes is a defect.

A job and the command line exit with an error's `exit_code`: 2 for input, configuration or table; 3 for a conflict; 4
for an outside failure (disk, network, Java) that may pass; 5 for a decision that a person has to make.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cleantail.human import AsWritten

_VALUE_CHARS = 80


class CleantailError(Exception):
    """Base of all errors whose message is for a person. The message is printable, although it may quote names and
    texts that others wrote into a table."""

    exit_code = 2

    def __str__(self) -> str:
        return printable(super().__str__())


def printable(text: str) -> str:
    """Remove escape sequences, control characters and characters that change the direction of text. Keep line breaks
    and tabs."""
    return text if text.isprintable() else "".join(c for c in text if c.isprintable() or c in "\n\t")


@dataclass(frozen=True)
class Problem:
    """One problem in one file.

    key     dotted path of the key in the file, "" for the whole file
    fact    the problem as text, e.g. "1.5 is not allowed"
    value   the offending value; None for a missing or secret key
    allowed the allowed values as text
    nearest the closest allowed name or value, if there is one
    line    line of the key in the file, counted from 1; None if the key is not in the file
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
    """Return the type and length of a value, without its content."""
    sizes = {str: "character", dict: "key", list: "entry"}
    names = {str: "a text", dict: "a mapping", list: "a list"}
    for kind, unit in sizes.items():
        if isinstance(value, kind):
            plural = "entries" if unit == "entry" else f"{unit}s"
            return f"{names[kind]} of {len(value)} {unit if len(value) == 1 else plural}"
    return "nothing" if value is None else "true or false" if isinstance(value, bool) else "a number"


def not_allowed(value: object) -> str:
    """Return the fact for a wrong value: short, printable, and on one line."""
    return f"{shown(value)} is not allowed"


def shown(value: object) -> str:
    """Return a value for a message. Of a mapping return only its size: any of its values may be a secret."""
    if isinstance(value, dict) or (isinstance(value, list | tuple) and any(isinstance(v, dict | list) for v in value)):
        return kind_of(value)
    if isinstance(value, AsWritten):
        return value.text
    text = json.dumps(value, default=str)
    return text if len(text) <= _VALUE_CHARS else text[:_VALUE_CHARS] + "…"


class ConfigError(CleantailError):
    """A configuration file that cannot be used, with every problem in it.

    `key`, `value`, `allowed` and `nearest` are those of the first problem. `str()` has one line for each problem.
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
        """File, line and key of each problem without the values, for people who may not read the file."""
        return [self._line(problem, problem.key or "the whole file") for problem in self.problems]

    def _line(self, problem: Problem, text: object) -> str:
        return f"{self.file}{f':{problem.line}' if problem.line else ''}: {text}"

    def __str__(self) -> str:
        return "\n".join(self._line(problem, problem) for problem in self.problems)


class BadLineError(CleantailError):
    """A line of an input file is not a record. Nothing of the run was appended. `line_number` counts from 1."""

    def __init__(self, file: Path | str, line_number: int, reason: str) -> None:
        super().__init__(file, line_number, reason)
        self.file = Path(file)
        self.line_number = line_number
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.file}:{self.line_number}: {self.reason}"


class ContradictionError(CleantailError):
    """Two different records have one (partition, offset), and nothing was appended.

    `contradictions` has one Contradiction (cleantail.log.rules) for each log. The message has no keys and no values.
    """

    def __init__(self, message: str, contradictions: Sequence[object]) -> None:
        super().__init__(message)
        self.contradictions = tuple(contradictions)


class TableError(CleantailError):
    """A table or catalog is missing or damaged, or the table does not belong to Cleantail."""


class NoSnapshotError(TableError):
    """A table does not have the snapshot that a person named by its id."""

    def __init__(self, message: str, snapshot_id: int) -> None:
        super().__init__(message)
        self.snapshot_id = snapshot_id


class ConflictError(CleantailError):
    """Another writer changed the table so that this result is void. The round starts over."""

    exit_code = 3


class OvertakenError(ConflictError):
    """Another commit was faster, but the data that was read is still valid. The same change may be tried again."""


class HeldError(CleantailError):
    """A round waits for approval, or its approval is void because the table has changed."""

    exit_code = 5


class OutsideError(CleantailError):
    """Something outside failed: a catalog, a disk, a network, Java. A later try may succeed."""

    exit_code = 4


class UnknownCommitError(OutsideError):
    """A catalog has not answered whether it took a commit. No file of that commit may be deleted."""

    def __init__(self, error: str) -> None:
        super().__init__(
            f"it is unknown whether the catalog accepted the commit: {error}. No file was deleted. When it answers "
            "again, check the table with `cleantail status`, and repeat the command if the commit is missing"
        )


class TargetError(CleantailError):
    """A restore cannot write into this topic in Kafka, or cannot continue. A person has to decide."""


class TargetUnreachableError(OutsideError):
    """Brokers do not answer a restore or refuse its writes. The same command continues from where it stopped."""


class RestoreMismatchError(CleantailError):
    """The check of a restore failed: a record in Kafka is missing, additional, or differs from the archive."""

    exit_code = 1


class CertificateError(CleantailError):
    """A certificate of an erasure was changed after its signature."""

    exit_code = 1


class SourceError(CleantailError):
    """A topic's source differs from the one its table was read from, or may not be read. Nothing was appended. A
    person has to decide."""


class SegmentError(SourceError):
    """A segment of a broker's log is cut off, damaged or missing. The message names file and position. Nothing was
    appended."""


class UnholdableError(SourceError):
    """The table cannot hold a record, and `cleantail.unholdable.policy` is `fail`. The message names partition and
    offset. Nothing was appended."""


class SourceUnreachableError(OutsideError):
    """Brokers do not answer, or a read makes no progress. Nothing was appended. A later try may succeed."""


class SilentBrokersError(SourceUnreachableError):
    """No broker answers any request."""

"""Kinds of data files: all that decides how the records of a file become columns of a topic table, as a short digest.

A kind is the file's Parquet schema with its field ids, the program that wrote it, its partition spec, and the layout:
where the table's schema has the mapped columns, and under which names. Tasks open the files anyway, and note what they
meet. Spark brings it to the driver (an accumulator), which compares a kind before a round first decides on it
(spark_jobs.engine.compared_readers).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from pyspark.accumulators import Accumulator, AccumulatorParam

EXAMPLES = 3
"""Maximum number of files that stand for a kind: those with the most records."""
REMEMBERED = 64
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class MetKind:
    """Holds some files of a kind as (records, path), and the logs that have such files; None stands for a file that
    several logs share."""

    files: frozenset[tuple[int, str]]
    logs: frozenset[int | None]

    def __or__(self, other: MetKind) -> MetKind:
        files = sorted(self.files | other.files, reverse=True)
        return MetKind(frozenset(files[:EXAMPLES]), self.logs | other.logs)


Kinds = dict[str, MetKind]
KindsMet = Accumulator[Kinds]


class _Union(AccumulatorParam[Kinds]):
    def zero(self, value: Kinds) -> Kinds:
        return {}

    def addInPlace(self, value1: Kinds, value2: Kinds) -> Kinds:  # noqa: N802  Spark's name
        return value1 | {kind: value1[kind] | met if kind in value1 else met for kind, met in value2.items()}


def kinds_met(context: Any) -> KindsMet:
    """Return an empty collection that tasks add to."""
    met: KindsMet = context.accumulator({}, _Union())
    return met


_noted: Kinds | None = None
"""What the running task has met; None outside of `noting`. A Python worker runs one task at a time."""


@contextmanager
def noting(met: KindsMet | None) -> Iterator[None]:
    """Add the kinds of all files that are opened inside to `met`."""
    global _noted  # noqa: PLW0603  the files are opened deep below
    before, _noted = _noted, {}
    try:
        yield
    finally:
        noted, _noted = _noted, before
        if met is not None and noted:
            met.add(noted)


def each_noting(met: KindsMet, work: Callable[..., Iterator[R]], *arguments: Any) -> Iterator[R]:
    """Yield what a task's generator yields, and note what it opens."""
    with noting(met):
        yield from work(*arguments)


def note_kind(parquet: Any, file: Any, layout: Mapping[str, Any]) -> None:
    """Note the kind of a file that was opened. `parquet`: pyarrow's ParquetFile; `file`: a LogFile."""
    if _noted is not None:
        # whether the partition has a value, or a null, for a column that the file may lack
        partition = (file.spec_id, *((number, value is None) for number, value in file.constants))
        met = MetKind(frozenset({(file.records, file.path)}), frozenset({file.log}))
        kind = _kind_of(parquet, partition, layout)
        _noted[kind] = _noted[kind] | met if kind in _noted else met


_recent: list[tuple[Any, str]] = []


def _kind_of(parquet: Any, partition: tuple[Any, ...], layout: Mapping[str, Any]) -> str:
    """Return the digest. Schemas are compared first: to write one as text takes longer than to open a small file."""
    parts = (parquet.metadata.created_by, partition, parquet.schema, parquet.schema_arrow, layout)
    for known, kind in _recent:
        if _is_same(parts, known):
            return kind
    created_by, _, physical, arrow, _ = parts
    columns = str(physical).partition("\n")[2]  # the first line has an address in memory
    ids = arrow.to_string(truncate_metadata=False, show_schema_metadata=False)
    kind = digest(created_by, partition, columns, ids, sorted(layout.items()))
    _recent.insert(0, (parts, kind))
    del _recent[REMEMBERED:]
    return kind


def _is_same(one: Any, other: Any) -> bool:
    return bool(
        one[:2] == other[:2]
        and one[2].equals(other[2])
        and one[3].equals(other[3], check_metadata=True)
        and one[4] == other[4]
    )


def digest(*parts: object) -> str:
    """Return a short name of these values, by their representation."""
    text = "\n".join(part if isinstance(part, str) else repr(part) for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:12]

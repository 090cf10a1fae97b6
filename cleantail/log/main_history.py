"""Decides whether others rewrote the history of `main`, so that what a table remembers is void. Pure.

Iceberg's rollback_to_snapshot, set_current_snapshot and CREATE OR REPLACE TABLE take commits out of the ancestry of
`main`, and leave the table's properties as they are.

1. A table remembers the snapshot of its last published round, and that of its last ingestion: the marks. Sequence
   numbers descend along an ancestry, and no two snapshots of a table have the same one.
2. A mark holds if its snapshot is in the ancestry.
3. It is lost if the ancestry reaches a snapshot with a lower sequence number, or its first commit, without meeting the
   mark; also if the properties came from another table.
4. Otherwise the ancestry ends at a snapshot that expired, and the mark expired with it: it holds.
5. A table whose last round was published by a version without marks has the sequence number that this round had read.
   The round's own snapshot has a higher one. The round is lost if the ancestry reaches back to what it had read, and no
   snapshot of a round after that is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cleantail.codec import Codec

PROPERTY_HISTORY = "cleantail.history"
"""Table property: the Marks as JSON."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Is a snapshot that has to be in the ancestry of `main`."""

    snapshot_id: int
    sequence_number: int


@dataclass(frozen=True, slots=True)
class Marks:
    """Holds the marks of a table. `published` is None as long as no round is published, `ingested` as long as nothing
    is ingested."""

    table_uuid: str
    published: Mark | None = None
    ingested: Mark | None = None


_MARKS_JSON: Codec[Marks] = Codec(Marks)


@dataclass(frozen=True, slots=True)
class MainHistory:
    """Describes the ancestry of `main`, as far as it is kept.

    `current` is None for a table without a snapshot. `has` returns whether a snapshot is in the ancestry.
    `oldest_sequence_number` is that of its oldest kept snapshot; `is_whole`: that one is the first commit.
    `last_round` returns the newest round of ours in it, and is only called for a table without a mark of one.
    """

    table_uuid: str
    current: Mark | None
    has: Callable[[int], bool]
    oldest_sequence_number: int
    is_whole: bool
    last_round: Callable[[], Mark | None] = lambda: None

    def lost(self, mark: Mark | None, table_uuid: str) -> bool:
        """Return whether others took a mark out of the ancestry, by the rules of the module docstring."""
        if mark is None or (table_uuid == self.table_uuid and self.has(mark.snapshot_id)):
            return False
        return table_uuid != self.table_uuid or self.is_whole or self.oldest_sequence_number <= mark.sequence_number

    def lost_round_after(self, sequence_number: int) -> bool:
        """Return whether others took a round without a mark out of the ancestry, which had read that sequence number:
        rule 5 of the module docstring."""
        if not (self.is_whole or self.oldest_sequence_number <= sequence_number):
            return False
        last = self.last_round()
        return last is None or last.sequence_number <= sequence_number


def marks_of(properties: Mapping[str, str], table: str, table_uuid: str) -> Marks:
    """Return the marks that a table's properties hold. Raises TableError if they cannot be read."""
    text = properties.get(PROPERTY_HISTORY)
    return _MARKS_JSON.value(text, f"{table}: property {PROPERTY_HISTORY}") if text is not None else Marks(table_uuid)


def property_of_marks(marks: Marks) -> dict[str, str]:
    """Return the table property that has the marks."""
    return {PROPERTY_HISTORY: _MARKS_JSON.text(marks)}

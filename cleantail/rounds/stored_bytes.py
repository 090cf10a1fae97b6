"""What a topic takes on disks, for the metrics alone. Pure.

A `reclaim` that expires snapshots measures it, because it lists the table's folder anyway. Its commit sets a table
property: a scrape lists nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from cleantail.codec import Codec
from cleantail.errors import TableError

PROPERTY_STORED = "cleantail.stored"


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """Bytes before that reclaim has removed anything, which is the most since the reclaim before.

    at_ms      when they were measured (Unix ms)
    data       files below the table's folder, without those of `metadata`
    metadata   files of the table's folder `metadata`
    data_docs  results and pages of the topic in CLEANTAIL_HOME
    evidence   data files of the evidence of all topics
    """

    at_ms: int
    data: int
    metadata: int
    data_docs: int
    evidence: int

    @classmethod
    def parsed(cls, text: str | None) -> StoredBytes | None:
        """Parse what `as_json` wrote. None if that fails, because a metric must not stop a scrape."""
        try:
            return _JSON.value(text or "", PROPERTY_STORED)
        except TableError:
            return None

    def as_json(self) -> str:
        return _JSON.text(self)


_JSON: Codec[StoredBytes] = Codec(StoredBytes)

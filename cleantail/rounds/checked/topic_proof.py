"""A full proof of a topic: all keys below the clean points, and all offsets, counted anew."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from pydantic import JsonValue

from cleantail.log.rules import Contradiction


@dataclass(frozen=True, slots=True)
class ProvenLog:
    """Describes one log: its keys below `end_offset`, the clean point, and how many of them are there more than
    once."""

    partition: int
    end_offset: int
    keys: int = 0
    duplicate_keys: int = 0


@dataclass(frozen=True, slots=True)
class Proof:
    """Holds all logs of a topic that have a clean point, and the offsets that have two different records."""

    partitions: tuple[ProvenLog, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()

    @property
    def ok(self) -> bool:
        """Returns whether no key and no offset is there twice."""
        return not self.contradictions and not any(log.duplicate_keys for log in self.partitions)

    def as_json(self) -> dict[str, JsonValue]:
        """Returns what `cleantail check --json` prints."""
        logs: list[JsonValue] = [asdict(log) for log in self.partitions]
        return {"ok": self.ok, "partitions": logs, "contradictions": [c.as_json() for c in self.contradictions]}

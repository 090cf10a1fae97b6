"""Requests to erase keys, and their states, from recorded events. Pure.

1. A request is a list of events. Events are only appended, and the state follows from them.
2. The steps come in the order of STEPS. Each step reads the table again and can be repeated. So an interrupted request
   continues with the first step that has no event.
3. From its approval on, the request's keys stay out of the table (the *denylist*), until a person lifts it.
4. Events have counts and ids in their details, never a key, a value or a mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cleantail.codec import Codec
from cleantail.config.kafka_configs import KafkaConfigs

REQUESTED: Final = "requested"
APPROVED: Final = "approved"
REJECTED: Final = "rejected"
HIDDEN: Final = "hidden"
REWRITTEN: Final = "rewritten"
REMOVED: Final = "removed"
PROVEN: Final = "proven"
CERTIFIED: Final = "certified"
FAILED: Final = "failed"
LIFTED: Final = "lifted"
TOMBSTONING: Final = "tombstoning"
"""Tombstones are about to be written to the topic in Kafka. Not a step: the state stays what it is."""
PUBLISHING: Final = "publishing"
"""A round that hides records is about to be published. Not a step: a later run reads in the table whether it was."""
EXCLUDED: Final = "excluded"
"""A person excluded more names after the request. Not a step either."""
STEPS: Final = (REQUESTED, APPROVED, HIDDEN, REWRITTEN, REMOVED, PROVEN, CERTIFIED)
"""The steps of a request that is not rejected, in their order."""
ENDS: Final = (CERTIFIED, REJECTED, LIFTED)
"""Events after which nothing more is done for a request."""
DEFAULT_DEADLINE_MS = 30 * 86_400_000
"""Time from the request to its deadline, if max.compaction.lag.ms has Kafka's default, which sets no limit."""
DUE_SOON_PART = 5
"""An open request is due soon in the last fifth of its time."""
DETAILS_JSON: Codec[dict[str, Any]] = Codec(dict[str, Any])


@dataclass(frozen=True, slots=True)
class ErasureEvent:
    """One thing that happened to a request. `at_ms`: Unix ms. `by`: who did it, for people.

    `certificate`: the text of a certificate, of event CERTIFIED only."""

    topic: str
    request: str
    event: str
    at_ms: int
    by: str
    details: Mapping[str, Any] = field(default_factory=dict)
    certificate: str | None = None


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """A request, folded from its events, which are in the order of their times."""

    topic: str
    id: str
    events: tuple[ErasureEvent, ...]

    def first(self, event: str) -> ErasureEvent | None:
        return next((e for e in self.events if e.event == event), None)

    def last(self, event: str) -> ErasureEvent | None:
        return next((e for e in reversed(self.events) if e.event == event), None)

    @property
    def asked(self) -> Mapping[str, Any]:
        """The details of the request itself."""
        return self.events[0].details

    @property
    def requested_ms(self) -> int:
        return self.events[0].at_ms

    @property
    def requested_by(self) -> str:
        return self.events[0].by

    @property
    def deadline_ms(self) -> int:
        return int(self.asked["deadline_ms"])

    @property
    def keys(self) -> int:
        """The number of different keys."""
        return int(self.asked["keys"])

    @property
    def excluded(self) -> tuple[str, ...]:
        """What the person excluded by name."""
        later = (name for e in self.events if e.event == EXCLUDED for name in e.details["exclude"])
        return tuple(dict.fromkeys([*self.asked.get("exclude", ()), *later]))

    @property
    def expired_snapshots(self) -> frozenset[int]:
        """The snapshots, of any table, that expire because they reach records of the keys."""
        of_tables = (e.details.get("snapshots", {}).values() for e in self.events if e.event == REWRITTEN)
        return frozenset(int(number) for tables in of_tables for numbers in tables for number in numbers)

    @property
    def state(self) -> str:
        """Return the last event that is a step, or FAILED, or one of ENDS."""
        for final in ENDS:
            if self.first(final):
                return final
        return next(
            e.event for e in reversed(self.events) if e.event not in (LIFTED, TOMBSTONING, PUBLISHING, EXCLUDED)
        )

    @property
    def is_open(self) -> bool:
        return self.state not in ENDS

    @property
    def is_lifted(self) -> bool:
        return self.first(LIFTED) is not None

    @property
    def denies(self) -> bool:
        """Whether its keys stay out of the table."""
        return self.first(APPROVED) is not None and self.first(REJECTED) is None and not self.is_lifted

    def is_overdue(self, now_ms: int) -> bool:
        return self.is_open and now_ms >= self.deadline_ms

    def is_due_soon(self, now_ms: int) -> bool:
        """Whether the last fifth of the time has begun, and the deadline is still ahead."""
        soon_ms = self.deadline_ms - (self.deadline_ms - self.requested_ms) // DUE_SOON_PART
        return self.is_open and soon_ms <= now_ms < self.deadline_ms


def requests_of(events: Iterable[ErasureEvent]) -> list[ErasureRequest]:
    """Return the requests of events in any order, oldest first. Events without their request are left out."""
    by_request: dict[tuple[str, str], list[ErasureEvent]] = {}
    for event in events:
        by_request.setdefault((event.topic, event.request), []).append(event)
    folded = []
    for (topic, name), of_request in by_request.items():
        # times of several machines may differ a little: the request itself is always first
        of_request.sort(key=lambda e: (e.event != REQUESTED, e.at_ms, _rank(e.event)))
        if of_request[0].event == REQUESTED:
            folded.append(ErasureRequest(topic, name, tuple(of_request)))
    return sorted(folded, key=lambda r: (r.requested_ms, r.id))


def _rank(event: str) -> int:
    return STEPS.index(event) if event in STEPS else len(STEPS)


def default_deadline_ms(configs: KafkaConfigs) -> int:
    """Return the time from a request to its deadline (ms): max.compaction.lag.ms, or 30 days if that has no limit."""
    lag_ms = configs.max_compaction_lag_ms
    return lag_ms if lag_ms < NO_LIMIT_MS else DEFAULT_DEADLINE_MS


NO_LIMIT_MS = (1 << 63) - 1

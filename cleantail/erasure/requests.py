"""Requests to erase keys, and their states, from recorded events. Pure.

1. A request is a list of events. Events are only appended. They determine the state.
2. The steps come in the order of STEPS. Each step reads the table again and can be repeated. So an interrupted request
   continues with the first step that has no event.
3. From its approval on, the request's keys stay out of the table (the *denylist*), until a person lifts the request.
4. The details of events have counts and ids, never a key, a value or a mark.
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
"""The event before tombstones are written to the topic in Kafka. Not a step: the state does not change."""
PUBLISHING: Final = "publishing"
"""The event before the publish of a round that hides records. Not a step: the table shows whether it was published."""
EXCLUDED: Final = "excluded"
"""The event of a person who excluded more names after the request. Not a step."""
STEPS: Final = (REQUESTED, APPROVED, HIDDEN, REWRITTEN, REMOVED, PROVEN, CERTIFIED)
"""The steps of a request, in their order, unless a person rejects it."""
ENDS: Final = (CERTIFIED, REJECTED, LIFTED)
"""Events that end the work on a request."""
DEFAULT_DEADLINE_MS = 30 * 86_400_000
"""Time from the request to its deadline, if max.compaction.lag.ms sets no limit (Kafka's default)."""
DUE_SOON_PART = 5
"""An open request is due soon in the last fifth of its time."""
DETAILS_JSON: Codec[dict[str, Any]] = Codec(dict[str, Any])


@dataclass(frozen=True, slots=True)
class ErasureEvent:
    """One event of a request. `at_ms`: Unix ms. `by`: the user, for people.

    `certificate`: the text of the certificate, only for the event CERTIFIED."""

    topic: str
    request: str
    event: str
    at_ms: int
    by: str
    details: Mapping[str, Any] = field(default_factory=dict)
    certificate: str | None = None


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """A request, from its events in the order of their times."""

    topic: str
    id: str
    events: tuple[ErasureEvent, ...]

    def first(self, event: str) -> ErasureEvent | None:
        return next((e for e in self.events if e.event == event), None)

    def last(self, event: str) -> ErasureEvent | None:
        return next((e for e in reversed(self.events) if e.event == event), None)

    @property
    def asked(self) -> Mapping[str, Any]:
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
        return int(self.asked["keys"])

    @property
    def excluded(self) -> tuple[str, ...]:
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
        """Whether the request's keys must stay out of the table."""
        return self.first(APPROVED) is not None and self.first(REJECTED) is None and not self.is_lifted

    def is_overdue(self, now_ms: int) -> bool:
        return self.is_open and now_ms >= self.deadline_ms

    def is_due_soon(self, now_ms: int) -> bool:
        """Whether the last fifth of the time has begun, and the deadline is still ahead."""
        soon_ms = self.deadline_ms - (self.deadline_ms - self.requested_ms) // DUE_SOON_PART
        return self.is_open and soon_ms <= now_ms < self.deadline_ms


def requests_of(events: Iterable[ErasureEvent]) -> list[ErasureRequest]:
    """Return the requests, oldest first. `events`: in any order. Events without their request are left out."""
    by_request: dict[tuple[str, str], list[ErasureEvent]] = {}
    for event in events:
        by_request.setdefault((event.topic, event.request), []).append(event)
    folded = []
    for (topic, name), of_request in by_request.items():
        # clocks of machines may differ, but the request itself is always first
        of_request.sort(key=lambda e: (e.event != REQUESTED, e.at_ms, _rank(e.event)))
        if of_request[0].event == REQUESTED:
            folded.append(ErasureRequest(topic, name, tuple(of_request)))
    return sorted(folded, key=lambda r: (r.requested_ms, r.id))


def _rank(event: str) -> int:
    return STEPS.index(event) if event in STEPS else len(STEPS)


def default_deadline_ms(configs: KafkaConfigs) -> int:
    """Return the ms from a request to its deadline: max.compaction.lag.ms, or 30 days if that sets no limit."""
    lag_ms = configs.max_compaction_lag_ms
    return lag_ms if lag_ms < NO_LIMIT_MS else DEFAULT_DEADLINE_MS


NO_LIMIT_MS = (1 << 63) - 1

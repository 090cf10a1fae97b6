"""Says what one Spark application is to do for a pack of topics, and what became of each of them by itself.

The outcomes are written one by one as the application goes through the pack, so that those before a crash are known to
the next try.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from cleantail.codec import Codec
from cleantail.errors import CleantailError, HeldError
from cleantail.human import counted
from cleantail.rounds.checked.round_results import RoundResult
from cleantail.rounds.reclaim_results import ReclaimResult

PASSED_OVER = "its rounds may wait for a person: it has a DAG of its own"
NOTHING_DUE = "nothing is due"
INGEST, EVALUATE, COMPACT, RECONCILE = "ingest", "evaluate", "compact", "reconcile"
EXPIRE_TOMBSTONES, RECLAIM = "expire_tombstones", "reclaim"
"""The stations of a topic, in their order, by the names of the tasks that show them. Check and publish are parts of a
round: what they say is in its result."""
FINAL = (CleantailError.exit_code, HeldError.exit_code)
"""Exit codes of errors after which trying again does not help: bad input or configuration, a person has to decide."""


@dataclass(frozen=True, slots=True)
class PackRequest:
    """Says what to do for which topics, the most urgent first. `now_ms`: the clock of the run (Unix ms); `force`,
    `partition` and `reconcile`: as a person asked; `outcomes`: the file in CLEANTAIL_HOME that keeps the outcomes."""

    topics: tuple[str, ...]
    now_ms: int
    force: bool = False
    partition: int | None = None
    reconcile: bool = False
    outcomes: str = ""


@dataclass(frozen=True, slots=True)
class Ingested:
    """Says how many records were appended to a topic's table, and what a person should know of them."""

    records: int
    warnings: tuple[str, ...] = ()

    def __add__(self, later: Ingested) -> Ingested:
        return Ingested(self.records + later.records, (*self.warnings, *later.warnings))


@dataclass(frozen=True, slots=True)
class TopicOutcome:
    """Says what became of one topic. `ok`: nothing of it failed, and no log was held back.

    A station that had nothing to do has None. `station`: where `error` ended the topic's work; `may_retry`: trying
    again may help. `reason`: why there was nothing to do, empty where there was.
    """

    topic: str
    ok: bool = True
    ingested: Ingested | None = None
    compacted: RoundResult | None = None
    reconciled: RoundResult | None = None
    expired: RoundResult | None = None
    reclaimed: ReclaimResult | None = None
    reason: str = ""
    station: str = ""
    error: str = ""
    may_retry: bool = False

    @property
    def rounds(self) -> Mapping[str, RoundResult]:
        """Returns station -> the result of its round, for those that had one."""
        results = {COMPACT: self.compacted, RECONCILE: self.reconciled, EXPIRE_TOMBSTONES: self.expired}
        return {station: result for station, result in results.items() if result is not None}

    @property
    def published(self) -> tuple[int, ...]:
        """Returns the partitions of which some round was published."""
        return tuple(sorted({p for result in self.rounds.values() for p in result.published}))

    @property
    def held_back(self) -> tuple[int, ...]:
        """Returns the partitions of which some round was held back."""
        return tuple(sorted({p for result in self.rounds.values() for p in result.held_back}))

    def failed_at(self, station: str, error: str, exit_code: int | None) -> TopicOutcome:
        """Returns the outcome of a topic whose work ended at a station. `exit_code`: that of the error, None of one
        that nobody foresaw."""
        return replace(self, ok=False, station=station, error=error, may_retry=exit_code not in (None, *FINAL))

    def in_short(self) -> TopicOutcome:
        """Returns the outcome without what the evidence has of the rounds: of a log that passed nothing is told."""
        compacted, reconciled, expired = map(_in_short, (self.compacted, self.reconciled, self.expired))
        return replace(self, compacted=compacted, reconciled=reconciled, expired=expired)

    def after(self, earlier: TopicOutcome) -> TopicOutcome:
        """Returns this outcome where an earlier try of the same run had come to another one. What a station had done
        or found then stays known: the second try finds a published log clean, and a red one in quarantine."""
        appended = [ingested for ingested in (earlier.ingested, self.ingested) if ingested]
        both = replace(
            self,
            ingested=sum(appended[1:], appended[0]) if appended else None,
            compacted=_joined(earlier.compacted, self.compacted),
            reconciled=_joined(earlier.reconciled, self.reconciled),
            expired=_joined(earlier.expired, self.expired),
            reclaimed=self.reclaimed or earlier.reclaimed,
        )
        return replace(both, ok=self.ok and not both.held_back, reason="" if both.rounds else self.reason)


@dataclass(frozen=True, slots=True)
class PackResult:
    """Describes the result of a pack: whether all of it went well, what a person should know, and each topic's own
    part."""

    ok: bool = True
    reason: str = ""
    topics: tuple[TopicOutcome, ...] = ()

    @classmethod
    def of(cls, outcomes: Iterable[TopicOutcome]) -> PackResult:
        """Returns the result of these topics; the reason names those that failed."""
        topics = tuple(outcomes)
        failed = [outcome.topic for outcome in topics if not outcome.ok]
        named = f": {', '.join(failed)}" if failed else ""
        return cls(not failed, f"{counted(len(failed), 'topic')} of {len(topics)} failed{named}", topics)

    def in_short(self) -> PackResult:
        """Returns the result as Airflow keeps it."""
        return replace(self, topics=tuple(outcome.in_short() for outcome in self.topics))


def done(result: RoundResult) -> RoundResult | None:
    """Returns a round's result, None of one that had nothing to do."""
    return None if result.round is None else result


def _in_short(result: RoundResult | None) -> RoundResult | None:
    if result is None:
        return None
    verdicts = tuple(verdict for verdict in result.verdicts if verdict.warnings or not verdict.passed)
    return replace(result, measures=(), verdicts=verdicts, sample=(), ends={})


def _joined(earlier: RoundResult | None, later: RoundResult | None) -> RoundResult | None:
    """Returns both rounds of one station as one. A log that the later round published is not held back any more, unless
    retention alone was published of it."""
    if earlier is None or later is None:
        return earlier or later
    released = set(later.published) - set(later.retained)
    still = tuple(p for p in earlier.held_back if p not in released)
    verdicts = tuple(verdict for verdict in earlier.verdicts if verdict.partition not in released)
    return replace(earlier, held_back=still, verdicts=verdicts, ok=not still).then(later)


PACK_REQUEST_JSON: Codec[PackRequest] = Codec(PackRequest)
TOPIC_OUTCOME_JSON: Codec[TopicOutcome] = Codec(TopicOutcome)
PACK_RESULT_JSON: Codec[PackResult] = Codec(PackResult)

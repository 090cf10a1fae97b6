"""Says what one Spark application is to do for a pack of topics, and what became of each of them by itself.

The outcomes are written one by one as the application goes through the pack, so that those before a crash are known to
the next try.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cleantail.codec import Codec
from cleantail.errors import CleantailError, HeldError, TableError
from cleantail.home.private_files import append_line
from cleantail.human import counted
from cleantail.rounds.checked_round import RoundResult
from cleantail.rounds.station_results import ReclaimResult

logger = logging.getLogger("cleantail.packs")

BEGUN = "the Spark application of its pack ended while it was at this; the log of run_pack says why"
WAITS = "the Spark application of its pack ended before its round was checked; the log of run_pack says why"
SUSPECTED = "the Spark application of its pack ended while it was at this, and comes to it last when it is tried again"
KEPT_S = 7 * 24 * 3600
"""After so long nobody tries a pack again."""
PASSED_OVER = "its rounds may wait for a person: it has a DAG of its own"
NOTHING_DUE = "nothing is due"
INGEST, EVALUATE, COMPACT, RECONCILE = "ingest", "evaluate", "compact", "reconcile"
EXPIRE_TOMBSTONES, RECLAIM = "expire_tombstones", "reclaim"
"""The stations of a topic, in their order, by the names of the tasks that show them. Check and publish are parts of a
round: what they say is in its result."""
FINAL = (CleantailError.exit_code, HeldError.exit_code)
"""Exit codes of errors after which trying again does not help: bad input or configuration, a person has to decide."""


class PackOutcomes:
    """Holds what became of the topics of a pack so far, in this try and in earlier ones, and writes it down.

    `path`: the file in the home; empty keeps nothing."""

    def __init__(self, home: Path, path: str) -> None:
        self._home, self._path = home, path
        self._earlier = read_outcomes(home, path)
        self._outcomes = dict(self._earlier)
        if path:
            _forget_old((home / path).parent)
        for begun in [outcome for outcome in self._earlier.values() if outcome.error == BEGUN]:
            self._earlier[begun.topic] = suspect = replace(begun, error=SUSPECTED)
            self._write(suspect)

    def __getitem__(self, topic: str) -> TopicOutcome:
        return self._outcomes[topic]

    def batches(self, topics: Iterable[str], size: int) -> list[list[str]]:
        """Returns the topics that are not done, in their order, at most `size` together; last come those of which the
        application may have died, each by itself."""
        left = [topic for topic in dict.fromkeys(topics) if not self._is_done(topic)]
        # in the order of their last lines: the one at which the try before this one has died has the last of all
        alone = [topic for topic in self._earlier if topic in left and self._is_suspect(topic)]
        others = [topic for topic in left if topic not in alone]
        return [*(others[start : start + size] for start in range(0, len(others), size)), *([one] for one in alone)]

    def published_last(self, most: int) -> list[TopicOutcome]:
        """Returns the topics, of the last `most` that an earlier try came to the end of, of which it has published
        something."""
        ended = [outcome for outcome in self._earlier.values() if outcome.error not in (BEGUN, WAITS, SUSPECTED)]
        return [outcome for outcome in ended[-most:] if outcome.published]

    def died_at(self, topic: str) -> TopicOutcome | None:
        """Returns what an earlier try that ended while it was at this topic came to tell of it; None where none did."""
        earlier = self._earlier.get(topic)
        return earlier if earlier is not None and earlier.error in (BEGUN, WAITS, SUSPECTED) else None

    def found(self, earlier: TopicOutcome) -> None:
        """Takes what an earlier try had done, where it did not come to tell all of it."""
        self._earlier[earlier.topic] = earlier

    def begun(self, outcome: TopicOutcome, station: str) -> None:
        """Takes how far a topic has come when a station begins with it."""
        error = SUSPECTED if self._is_suspect(outcome.topic) else BEGUN
        self._write(replace(outcome, ok=False, station=station, error=error, may_retry=True))

    def waits(self, outcome: TopicOutcome, station: str) -> None:
        """Takes how far a topic has come whose round waits to be checked."""
        self._write(replace(outcome, ok=False, station=station, error=WAITS, may_retry=True))

    def ended(self, outcome: TopicOutcome) -> None:
        """Takes the outcome of a topic, joined to that of an earlier try. Raises CleantailError where the file cannot
        be written."""
        logger.info("%s", "; ".join(_lines(self._write(outcome))))

    def _is_done(self, topic: str) -> bool:
        """Returns whether an earlier try did all of the topic's work."""
        return topic in self._earlier and self._earlier[topic].ok

    def _is_suspect(self, topic: str) -> bool:
        return topic in self._earlier and self._earlier[topic].error == SUSPECTED

    def _write(self, outcome: TopicOutcome) -> TopicOutcome:
        earlier = self._earlier.get(outcome.topic)
        self._outcomes[outcome.topic] = joined = outcome if earlier is None else outcome.after(earlier)
        if self._path:
            append_line(self._home, self._path, TOPIC_OUTCOME_JSON.text(joined))
        return joined


def read_outcomes(home: Path, path: str) -> dict[str, TopicOutcome]:
    """Returns topic -> its latest outcome, that of the last line last. A line that a killed application has cut is left
    out."""
    file = home / path
    outcomes: dict[str, TopicOutcome] = {}
    for line in file.read_text(errors="replace", encoding="utf-8").splitlines() if path and file.is_file() else []:
        try:
            outcome = TOPIC_OUTCOME_JSON.value(line, str(file))
        except TableError:
            continue
        outcomes.pop(outcome.topic, None)
        outcomes[outcome.topic] = outcome
    return outcomes


def _forget_old(folder: Path) -> None:
    """Removes the files of packs that ended long ago."""
    for file in folder.glob("*.jsonl"):
        if file.stat().st_mtime < time.time() - KEPT_S:
            file.unlink(missing_ok=True)


def _lines(outcome: TopicOutcome) -> Iterator[str]:
    """Yields what became of a topic, for the log of the application."""
    if outcome.ingested and outcome.ingested.records:
        yield f"{outcome.topic}: {counted(outcome.ingested.records, 'record')} appended"
    for station, result in outcome.rounds.items():
        yield f"{outcome.topic}: {station} published {_named(result.published)}, held back {_named(result.held_back)}"
    if outcome.error:
        yield f"{outcome.topic}: {outcome.station} failed: {outcome.error}"
    elif not outcome.rounds:
        yield f"{outcome.topic}: {outcome.reason or 'space was reclaimed'}"


def _named(partitions: Iterable[int]) -> str:
    return ", ".join(map(str, partitions)) or "nothing"


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

"""What one Spark application has to do for a pack of topics, what happened to each, and the file that keeps the
outcomes.

`PackOutcomes` appends one line to a file in CLEANTAIL_HOME each time a topic makes progress:

1. If an application crashes in the middle of a pack, its next try reads in the file what was published. Without a next
   try, the task that reports reads the file.
2. When a station begins with a topic, a line records that the station has not ended. If that is the topic's last line,
   the application ended there.
3. A topic whose round waits to be checked with others gets such a line too, with another text: the application did not
   end there.
4. A topic that was in progress during a crash may have caused it. The next try handles these topics last, and one at a
   time. If it crashes again, the topic of that crash comes last in the try after it.

If Airflow's workers share no CLEANTAIL_HOME, a try on another machine starts without the file. Nothing is published
twice, because published logs are clean by then. Only the report of the first try is lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from cleantail.codec import FORMAT, Codec, FormatNumber
from cleantail.errors import TableError
from cleantail.home.home_folder import append_line
from cleantail.human import counted
from cleantail.rounds.stations import TOPIC_OUTCOME_JSON, TopicOutcome

logger = logging.getLogger("cleantail.packs")

BEGUN = "the Spark application of its pack ended during this station; the log of run_pack has the reason"
WAITS = "the Spark application of its pack ended before its round was checked; the log of run_pack has the reason"
SUSPECTED = "the Spark application of its pack ended during this station; the next try handles this topic last"
KEPT_S = 7 * 24 * 3600
"""Age after which a pack is never tried again, in seconds."""
PASSED_OVER = "its rounds may wait for approval: it has a DAG of its own"


@dataclass(frozen=True, slots=True)
class PackRequest:
    """The topics of a pack, the most urgent first, and the work to do.

    `now_ms`: the clock of the run (Unix ms). `force`, `partition` and `reconcile`: as the user requested. `outcomes`:
    the file in CLEANTAIL_HOME.
    """

    topics: tuple[str, ...]
    now_ms: int
    force: bool = False
    partition: int | None = None
    reconcile: bool = False
    outcomes: str = ""
    format: FormatNumber = FORMAT


@dataclass(frozen=True, slots=True)
class PackResult:
    """The result of a pack: whether every topic succeeded, the reason, and each topic's outcome."""

    ok: bool = True
    reason: str = ""
    topics: tuple[TopicOutcome, ...] = ()
    format: FormatNumber = FORMAT

    @classmethod
    def of(cls, outcomes: Iterable[TopicOutcome]) -> PackResult:
        """Return the result of these topics. The reason names those that failed."""
        topics = tuple(outcomes)
        failed = [outcome.topic for outcome in topics if not outcome.ok]
        named = f": {', '.join(failed)}" if failed else ""
        return cls(not failed, f"{counted(len(failed), 'topic')} of {len(topics)} failed{named}", topics)

    def in_short(self) -> PackResult:
        return replace(self, topics=tuple(outcome.in_short() for outcome in self.topics))


PACK_REQUEST_JSON: Codec[PackRequest] = Codec(PackRequest)
PACK_RESULT_JSON: Codec[PackResult] = Codec(PackResult)


class PackOutcomes:
    """What happened to the topics of a pack so far, in this try and in earlier ones. With an empty `path`, nothing is
    stored."""

    def __init__(self, home: Path, path: str) -> None:
        self._home, self._path = home, path
        self._earlier = read_outcomes(home, path)
        self._outcomes = dict(self._earlier)
        if path:
            for file in (home / path).parent.glob("*.jsonl"):
                if file.stat().st_mtime < time.time() - KEPT_S:
                    file.unlink(missing_ok=True)
        for begun in [outcome for outcome in self._earlier.values() if outcome.error == BEGUN]:
            self._earlier[begun.topic] = suspect = replace(begun, error=SUSPECTED)
            self._write(suspect)

    def __getitem__(self, topic: str) -> TopicOutcome:
        return self._outcomes[topic]

    def batches(self, topics: Iterable[str], size: int) -> list[list[str]]:
        """Return the topics that are not done, in their order, at most `size` together.

        Topics that may have caused a crash come last, one at a time.
        """
        left = [topic for topic in dict.fromkeys(topics) if not (topic in self._earlier and self._earlier[topic].ok)]
        # in the order of their last lines: the topic at which the previous try died is the very last
        alone = [topic for topic in self._earlier if topic in left and self._is_suspect(topic)]
        others = [topic for topic in left if topic not in alone]
        return [*(others[start : start + size] for start in range(0, len(others), size)), *([one] for one in alone)]

    def published_last(self, most: int) -> list[TopicOutcome]:
        """Return the topics with something published, among the last `most` that earlier tries finished."""
        ended = [outcome for outcome in self._earlier.values() if outcome.error not in (BEGUN, WAITS, SUSPECTED)]
        return [outcome for outcome in ended[-most:] if outcome.published]

    def died_at(self, topic: str) -> TopicOutcome | None:
        """Return the outcome so far of a topic that was in progress when an earlier try ended, or None."""
        earlier = self._earlier.get(topic)
        return earlier if earlier is not None and earlier.error in (BEGUN, WAITS, SUSPECTED) else None

    def found(self, earlier: TopicOutcome) -> None:
        """Set the outcome of an earlier try that ended before it wrote the whole outcome."""
        self._earlier[earlier.topic] = earlier

    def begun(self, outcome: TopicOutcome, station: str) -> None:
        """Write the outcome so far when a station begins with a topic."""
        error = SUSPECTED if self._is_suspect(outcome.topic) else BEGUN
        self._write(replace(outcome, ok=False, station=station, error=error, may_retry=True))

    def waits(self, outcome: TopicOutcome, station: str) -> None:
        """Write the outcome so far of a topic whose round waits to be checked."""
        self._write(replace(outcome, ok=False, station=station, error=WAITS, may_retry=True))

    def ended(self, outcome: TopicOutcome) -> None:
        """Write the outcome of a topic, joined to that of an earlier try. Raises CleantailError if the file cannot be
        written."""
        logger.info("%s", "; ".join(_lines(self._write(outcome))))

    def _is_suspect(self, topic: str) -> bool:
        return topic in self._earlier and self._earlier[topic].error == SUSPECTED

    def _write(self, outcome: TopicOutcome) -> TopicOutcome:
        earlier = self._earlier.get(outcome.topic)
        self._outcomes[outcome.topic] = joined = outcome if earlier is None else outcome.after(earlier)
        if self._path:
            append_line(self._home, self._path, TOPIC_OUTCOME_JSON.text(joined))
        return joined


def read_outcomes(home: Path, path: str) -> dict[str, TopicOutcome]:
    """Return topic -> its latest outcome, in the order of their last lines. A line that a killed application cut is
    skipped."""
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


def _lines(outcome: TopicOutcome) -> Iterator[str]:
    """Yield what happened to a topic, for the log of the application."""
    if outcome.ingested and outcome.ingested.records:
        yield f"{outcome.topic}: {counted(outcome.ingested.records, 'record')} appended"
    for station, result in outcome.rounds.items():
        yield f"{outcome.topic}: {station} published {_named(result.published)}, blocked {_named(result.held_back)}"
    if outcome.error:
        yield f"{outcome.topic}: {outcome.station} failed: {outcome.error}"
    elif not outcome.rounds:
        yield f"{outcome.topic}: {outcome.reason or 'space was reclaimed'}"


def _named(partitions: Iterable[int]) -> str:
    return ", ".join(map(str, partitions)) or "nothing"

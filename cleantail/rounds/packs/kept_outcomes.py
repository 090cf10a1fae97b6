"""The file in CLEANTAIL_HOME that keeps what became of the topics of a pack, one line each time that one went on.

1. An application that crashed in the middle of a pack has told nobody what it had published. Its next try reads it
   here, and so does the task that tells, where there is no next try.
2. A topic that a station begins with gets a line that it did not end: who finds that as the last one of its topic knows
   that the application ended there.
3. A topic whose round waits to be checked with others gets such a line as well: the application was not at it.
4. A topic that the application was at may be what it died of. The next try comes to these topics last, and to each
   alone: the others do not wait for them. Where it dies again, the try after it comes last to the one of that.

Where the workers of Airflow share no CLEANTAIL_HOME a try on another machine starts without it: nothing is published
twice, since what was published is clean by then; only what the first try had to tell of it is missing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from cleantail.errors import TableError
from cleantail.home.private_files import append_line
from cleantail.human import counted
from cleantail.rounds.pack_results import TOPIC_OUTCOME_JSON, TopicOutcome

logger = logging.getLogger("cleantail.packs")

BEGUN = "the Spark application of its pack ended while it was at this; the log of run_pack says why"
WAITS = "the Spark application of its pack ended before its round was checked; the log of run_pack says why"
SUSPECTED = "the Spark application of its pack ended while it was at this, and comes to it last when it is tried again"
KEPT_S = 7 * 24 * 3600
"""After so long nobody tries a pack again."""


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

"""The file in CLEANTAIL_HOME that keeps what became of the topics of a pack, one line each, written as they end.

An application that crashed in the middle of a pack has told nobody what it had published. Its next try reads it here.
Where the workers of Airflow share no CLEANTAIL_HOME a try on another machine starts without it: nothing is published
twice, since what was published is clean by then; only what the first try had to tell of it is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from cleantail.errors import TableError
from cleantail.home.private_files import append_line
from cleantail.human import counted
from cleantail.rounds.pack_results import TOPIC_OUTCOME_JSON, TopicOutcome

logger = logging.getLogger("cleantail.packs")


class PackOutcomes:
    """Holds what became of the topics of a pack so far, in this try and in earlier ones, and writes it down.

    `path`: the file in the home; empty keeps nothing."""

    def __init__(self, home: Path, path: str) -> None:
        self._home, self._path = home, path
        self._outcomes = _read(home / path) if path else {}

    def __getitem__(self, topic: str) -> TopicOutcome:
        return self._outcomes[topic]

    def is_done(self, topic: str) -> bool:
        """Returns whether an earlier try did all of the topic's work."""
        return topic in self._outcomes and self._outcomes[topic].ok

    def ended(self, outcome: TopicOutcome) -> None:
        """Takes the outcome of a topic, joined to that of an earlier try. Raises CleantailError where the file cannot
        be written."""
        earlier = self._outcomes.get(outcome.topic)
        self._outcomes[outcome.topic] = joined = outcome if earlier is None else outcome.after(earlier)
        if self._path:
            append_line(self._home, self._path, TOPIC_OUTCOME_JSON.text(joined))
        logger.info("%s", "; ".join(_lines(joined)))


def _read(file: Path) -> dict[str, TopicOutcome]:
    """Returns topic -> its latest outcome. A line that a killed application has cut is left out."""
    outcomes: dict[str, TopicOutcome] = {}
    for line in file.read_text(errors="replace").splitlines() if file.is_file() else []:
        try:
            outcome = TOPIC_OUTCOME_JSON.value(line, str(file))
        except TableError:
            continue
        outcomes[outcome.topic] = outcome
    return outcomes


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

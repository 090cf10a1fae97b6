"""The file in CLEANTAIL_HOME that keeps what became of the topics of a pack, one line each, written as they end.

An application that crashed in the middle of a pack has told nobody what it had published. Its next try reads it here.
Where the workers of Airflow share no CLEANTAIL_HOME a try on another machine starts without it: nothing is published
twice, since what was published is clean by then; only what the first try had to tell of it is missing.
"""

from __future__ import annotations

from pathlib import Path

from cleantail.errors import TableError
from cleantail.home.private_files import append_line
from cleantail.rounds.pack_results import TOPIC_OUTCOME_JSON, TopicOutcome


def kept_outcomes(home: Path, path: str) -> dict[str, TopicOutcome]:
    """Returns topic -> its latest outcome. A last line that a killed application has cut is left out."""
    if not path or not (file := home / path).is_file():
        return {}
    outcomes: dict[str, TopicOutcome] = {}
    for line in file.read_text(errors="replace").splitlines():
        try:
            outcome = TOPIC_OUTCOME_JSON.value(line, str(file))
        except TableError:
            continue
        outcomes[outcome.topic] = outcome
    return outcomes


def keep_outcome(home: Path, path: str, outcome: TopicOutcome) -> None:
    """Appends the outcome of a topic. Raises CleantailError where the file cannot be written."""
    if path:
        append_line(home, path, TOPIC_OUTCOME_JSON.text(outcome))

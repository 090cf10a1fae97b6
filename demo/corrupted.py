"""The round that is damaged on purpose, and the checks of its outcome."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cleantail.config.platform import Platform
from cleantail.sources.kcat import Record
from demo.home import Home
from demo.records import TopicInput
from demo.rounds import Round, Scheduler
from demo.tables import live_records, log_starts

RULE = "missing_winners"
"""The built-in expectation that must catch deleted winners."""


@dataclass(frozen=True, slots=True)
class CorruptedRound:
    """The outcome of the damaged round. `claims`: text about the outcome -> whether it is true."""

    expectations: tuple[str, ...]
    alert: str
    claims: dict[str, bool]


def run_corrupted(scheduler: Scheduler, home: Home, platform: Platform, topic: TopicInput) -> CorruptedRound:
    """Run the damaged DAG after the arrival of the second batch, and return the outcome."""
    before = live_records(platform, topic.topic)
    ended = scheduler.run(f"{topic.topic}-corrupted", "corrupted")
    after = live_records(platform, topic.topic)
    alerts = _alerts(home)
    failures = [failure for alert in alerts for failure in alert["failures"]]
    log = "\n".join(scheduler.api.log(ended.task("check_quality")))
    return CorruptedRound(
        expectations=tuple(sorted({failure["expectation"] for failure in failures})),
        alert=alerts[0]["text"] if alerts else "none",
        claims={
            "check_quality failed, and so did the run": _is_red(ended),
            f"the task's log names {RULE}": RULE in log,
            f"the alert in the file names {RULE}": any(f["expectation"] == RULE for f in failures),
            "main has the same records as before, the ingested ones, and none past retention": _same(
                after, retained([*before, *topic.batches[1]], log_starts(platform, topic.topic))
            ),
        },
    )


def _is_red(ended: Round) -> bool:
    return ended.state == "failed" and {task["task_id"] for task in ended.failed} == {"check_quality", "outcome"}


def _alerts(home: Home) -> list[dict[str, Any]]:
    """Return the alerts of check_quality."""
    lines = home.alerts.read_text().splitlines() if home.alerts.exists() else []
    return [alert for alert in map(json.loads, lines) if alert["task"] == "check_quality"]


def retained(records: Iterable[Record], starts: Mapping[int, int]) -> list[Record]:
    """Return the records at or above the log start of their partition, because a failed check does not stop
    retention."""
    return [record for record in records if record.offset >= starts.get(record.partition, 0)]


def _same(left: list[Any], right: list[Any]) -> bool:
    """Return whether both have the same records: offset, timestamp, key, value, headers."""
    return len(left) == len(right) and set(left) == set(right)

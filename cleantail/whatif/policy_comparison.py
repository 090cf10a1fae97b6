"""Compare two policies of a topic on its real history: as configured, and as proposed.

The table has the history: appended files with their times, and the records that published rounds dropped. The history
reaches as far back as the table's snapshots. Older files count as present from the start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.loading import run_schedule_of, scan_topics
from cleantail.config.platform import Platform
from cleantail.config.run_schedule import parts_of, run_times
from cleantail.config.topic import Topic
from cleantail.config.validation_errors import validate
from cleantail.errors import CleantailError, ConfigError, OutsideError, Problem
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.evaluate import log_states
from cleantail.lake.recorded_rounds import load_evidence, read_evidence
from cleantail.lake.table_metadata import ancestry, files_added_by, history_of, live_files, table_facts
from cleantail.log.round_state import COMPACT
from cleantail.log.triggers import decide
from cleantail.rounds.past_rounds import PUBLISHED, Round, with_undone
from cleantail.rounds.rollback_plan import rollbacks
from cleantail.whatif.replay import (
    Arrival,
    Basis,
    ObservedRound,
    Outcome,
    ReplayHistory,
    changed_values,
    next_expiry,
    simulate,
)

if TYPE_CHECKING:
    from pyiceberg.table import Table


DROPS_BY_ROUNDS = ("superseded", "copies", "invalid")
"""Reasons for which a round's own rules drop records. The segments show what retention drops."""


def read_history(table: Table, rounds: Iterable[Round], now_ms: int) -> ReplayHistory | None:
    """Return the history of a table, None if it has no records.

    `rounds`: rounds in the evidence. Rollbacks are read from the table, because a killed rollback may have no evidence.
    """
    chain = list(ancestry(table, table.current_snapshot()))[::-1]  # of main, oldest first
    if not chain:
        return None
    oldest = chain[0]
    arrivals = [Arrival(oldest.timestamp_ms, file) for file in live_files(table, oldest.snapshot_id)]
    for snapshot in chain[1:]:
        arrivals += [Arrival(snapshot.timestamp_ms, file) for file in files_added_by(table, snapshot)]
    end_ms = max(now_ms, chain[-1].timestamp_ms)
    real = with_undone(rounds, rollbacks(list(history_of(table))))
    return ReplayHistory(oldest.timestamp_ms, end_ms, tuple(arrivals), tuple(observed_rounds(real)))


def observed_rounds(rounds: Iterable[Round]) -> list[ObservedRound]:
    """Return the published compactions by log, without undone ones.

    The records of an undone round are back, and a later round drops them again. The time of a round is by the wall
    clock, as in snapshots.
    """
    return [
        ObservedRound(
            partition=log.partition,
            at_ms=round_.checked_at_ms,
            first_dirty_offset=log.first_dirty_offset,
            end_offset=log.end_offset,
            dropped=sum(log.deleted.get(reason, 0) for reason in DROPS_BY_ROUNDS),
        )
        for round_ in rounds
        if round_.kind == COMPACT
        for log in round_.logs
        if log.outcome == PUBLISHED
    ]


SET = Path("--set")
"""Replaces the file's name in errors about `--set`."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One side of a comparison. `due`: partitions that a run would compact now, an exact value from metadata."""

    outcome: Outcome
    due: tuple[int, ...]
    reason: str
    next_expiry_ms: int | None
    next_expiry_basis: Basis | None


@dataclass(frozen=True, slots=True)
class PolicyComparison:
    """Two policies of one topic. `changes` maps a key to (before, after).

    Without a history, both sides are None, and `note` has the reason. `observed_rounds`: number of real compactions of
    a log that were published within the history.
    """

    topic: str
    changes: Mapping[str, tuple[object, object]]
    before: Policy | None = None
    after: Policy | None = None
    start_ms: int = 0
    days: float = 0.0
    whole_days: int = 0
    observed_rounds: int = 0
    note: str = ""


def with_settings(topic: Topic, settings: Sequence[str]) -> Topic:
    """Return the topic with changed configs, each `name=value`. Raises ConfigError as for a topic's YAML."""
    pairs = [setting.partition("=") for setting in settings]
    without_value = [name for name, equals, _ in pairs if not equals or not name]
    if without_value:
        allowed = "name=value, such as min.cleanable.dirty.ratio=0.2"
        raise ConfigError(SET, [Problem("", f"{without_value[0]!r} has no value", allowed)])
    configs_now = {_alias(name): getattr(topic.config, name) for name in KafkaConfigs.model_fields}
    configs = validate(KafkaConfigs, configs_now | {name: _value(text) for name, _, text in pairs}, SET)
    return topic.model_copy(update={"config": configs})


def _alias(field: str) -> str:
    return KafkaConfigs.model_fields[field].alias or field


def _value(text: str) -> int | float | str:
    """Return a value as YAML reads it: `0.2` is a number, `compact,delete` is text."""
    if re.fullmatch(r"[-+]?(0|[1-9][0-9_]*)", text):
        return int(text)
    return float(text) if re.fullmatch(r"[-+]?[0-9]*\.[0-9]+|[-+]?[0-9]+\.", text) else text


Counting = Callable[[Sequence[Any], str], Iterable[Any]]
"""Yields the same items and shows progress. The text is their noun."""


def _uncounted(items: Sequence[Any], noun: str) -> Iterable[Any]:
    return items


def compare(before: Topic, after: Topic, now_ms: int, counting: Counting = _uncounted) -> PolicyComparison:
    """Compare both policies on the history of the topic's present table. Raises TableError if it cannot be read."""
    # 1. the table, and its history
    changes = changes_between(before, after)
    catalog = open_catalog(before.platform)
    table = load_table(catalog, before)
    if table is None:
        return PolicyComparison(
            before.topic, changes, note="nothing was ingested yet: there is no history to compare on"
        )
    evidence = load_evidence(catalog, before.platform)
    rounds = read_evidence(evidence, before.topic) if evidence is not None else []
    history = read_history(table, rounds, now_ms)
    if history is None:
        return PolicyComparison(
            before.topic, changes, note="the table has no records: there is no history to compare on"
        )
    # 2. both policies on it
    facts = table_facts(table)
    old, new = (
        _policy(
            topic,
            parts_of(run_schedule_of(topic, before.platform.config_dir))[0],  # times of updates of assets are unknown
            history,
            log_states(topic, facts, now_ms),
            now_ms,
            counting,
        )
        for topic in (before, after)
    )
    real = sum(r.at_ms >= history.start_ms for r in history.rounds)
    return PolicyComparison(
        before.topic, changes, old, new, history.start_ms, history.days, history.whole_days, real, _note(history)
    )


def _policy(
    topic: Topic, cron: str | None, history: ReplayHistory, logs: Sequence[Any], now_ms: int, counting: Counting
) -> Policy:
    ticks = run_times(cron, history.start_ms, history.end_ms, (a.at_ms for a in history.arrivals))
    decisions = [decide(log, topic.config, now_ms) for log in logs]
    due = tuple(d.partition for d in decisions if d.compact)
    reasons = [d.reason for d in decisions if d.compact == bool(due)]
    expiry = next_expiry(logs, topic.config, now_ms) or (None, None)
    outcome = simulate(history, topic.config, counting(ticks, "replayed run"))
    return Policy(outcome, due, reasons[0] if reasons else "no records", *expiry)


def _note(history: ReplayHistory) -> str:
    if not history.rounds:
        return "no round was published yet: the number of records that a round drops is unknown"
    return "" if history.whole_days else "a history of less than a day gives no daily rates"


def changes_between(before: Topic, after: Topic) -> dict[str, tuple[object, object]]:
    """Return the effective differences, by keys of the YAML: key -> (before, after)."""
    configs = changed_values(_configs(before), _configs(after))
    rest = changed_values(_rest(before), _rest(after))
    return configs | rest


def _configs(topic: Topic) -> dict[str, object]:
    values = {_alias(name): getattr(topic.config, name) for name in KafkaConfigs.model_fields}
    return {name: ",".join(sorted(v)) if isinstance(v, frozenset) else v for name, v in values.items()}


def _rest(topic: Topic) -> dict[str, object]:
    return {name: value for name, value in topic.model_dump(mode="json", by_alias=True).items() if name != "config"}


@dataclass(frozen=True, slots=True)
class ConfigurationDifference:
    """Topics of two configurations with another effective policy, new topics and removed topics, ordered by name.

    `broken_in_base` and `broken`: errors in files of the base and of the proposal. Their topics are unknown.
    """

    changed: tuple[PolicyComparison, ...]
    added: tuple[Topic, ...]
    removed: tuple[Topic, ...]
    broken_in_base: tuple[str, ...]
    broken: tuple[str, ...]


def differences(
    base_dir: Path, config_dir: Path, platform: Platform, now_ms: int, counting: Counting = _uncounted
) -> ConfigurationDifference:
    """Compare the topics of `config_dir` with the topics of `base_dir`. A broken file does not hide the others.

    Raises ConfigError if a directory does not exist.
    """
    old, wrong_before = _topics(base_dir)
    new, wrong = _topics(config_dir)
    both = sorted(old.keys() & new.keys())
    differing = [t for t in both if changes_between(old[t][1], new[t][1])]
    changed = [_compared(old[t][1], new[t][1], now_ms) for t in counting(differing, "topic")]
    return ConfigurationDifference(
        tuple(changed),
        tuple(new[t][1] for t in sorted(new.keys() - old.keys()) if new[t][0] not in wrong_before),
        tuple(old[t][1] for t in sorted(old.keys() - new.keys()) if old[t][0] not in wrong),
        tuple(dict.fromkeys(map(str, wrong_before.values()))),  # a broken defaults.yaml breaks every file
        tuple(dict.fromkeys(map(str, wrong.values()))),
    )


def _topics(config_dir: Path) -> tuple[dict[str, tuple[str, Topic]], dict[str, ConfigError]]:
    """Return topic -> (name of its file, the topic), and name of a broken file -> its error."""
    topics_by_file = [(file.name, topic) for file, topic in scan_topics(config_dir)]
    topics = {topic.topic: (name, topic) for name, topic in topics_by_file if isinstance(topic, Topic)}
    return topics, {name: topic for name, topic in topics_by_file if isinstance(topic, ConfigError)}


def _compared(before: Topic, after: Topic, now_ms: int) -> PolicyComparison:
    """Compare one topic. An unreadable table becomes a note. An unreachable catalog fails the whole command."""
    try:
        return compare(before, after, now_ms)
    except OutsideError:
        raise
    except CleantailError as e:
        return PolicyComparison(before.topic, changes_between(before, after), note=str(e))

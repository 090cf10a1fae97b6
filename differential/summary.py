"""The printed report: a line per topic, the declared differences with their reasons, and how to repeat a failure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from differential.comparison import Declared
from differential.trial import Trial

SHOWN = 10


def print_summary(console: Console, trials: Sequence[Trial], seed: int) -> None:
    console.print(_topics(trials))
    console.print(_declared(trials))
    for trial in trials:
        _print_unexplained(console, trial, seed)


def _topics(trials: Sequence[Trial]) -> Table:
    table = Table(title="Logs after every round: Kafka's cleaner against Cleantail")
    numbers = ["histories", "records in", "left (broker)", "left (archive)", "comparisons"]
    for name in ["topic", "tried", "read from", *numbers, "equal"]:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for t in trials:
        row = (len(t.plan.histories), t.records_in, t.broker_records, t.archive_records, t.comparisons)
        table.add_row(t.plan.topic, t.plan.family.about, t.plan.family.source, *(f"{n:,}" for n in row), _verdict(t))
    return table


def _verdict(trial: Trial) -> str:
    if trial.unexplained:
        return f"NO: {len(trial.unexplained)} differ"
    declared = sum(d.is_record for d in trial.differences)
    return f"yes, except {declared:,} declared" if declared else "yes"


def _declared(trials: Sequence[Trial]) -> Table:
    table = Table(title="Declared differences that occurred (semantics, part 3): records that only the broker had")
    for name in ("number", "reason", "records", "logs x rounds", "topics"):
        table.add_column(name, justify="right" if name in ("records", "logs x rounds") else "left", overflow="fold")
    for declared in Declared:
        counts = {t.plan.topic: t.count(declared) for t in trials}
        records, logs = (sum(c[i] for c in counts.values()) for i in (0, 1))
        topics = ", ".join(topic for topic, (_, met) in counts.items() if met) or "none"
        table.add_row(declared.section, declared.reason, f"{records:,}", f"{logs:,}", topics)
    return table


def _print_unexplained(console: Console, trial: Trial, seed: int) -> None:
    """Print how to repeat each difference. A seed makes the same history, regardless of the number of histories."""
    for d in trial.unexplained[:SHOWN]:
        shape = trial.plan.histories[d.partition].shape
        where = f"seed {seed}, topic {trial.plan.topic}, partition {d.partition} ({shape}), round {d.round + 1}"
        console.print(f"DIFFERENT  {where}: {d.what}", markup=False, soft_wrap=True)
    if len(trial.unexplained) > SHOWN:
        console.print(f"... and {len(trial.unexplained) - SHOWN} more in {trial.plan.topic}")

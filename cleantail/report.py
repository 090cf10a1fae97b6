"""What the command line prints: tables for people, one JSON document for machines. Progress goes to stderr."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from cleantail.approval import held_message
from cleantail.approval_text import sample_lines
from cleantail.config import ConfigError, Topic
from cleantail.evaluate import RunPlan
from cleantail.latest import Latest
from cleantail.log_state import LogState
from cleantail.partition_state import Quarantine
from cleantail.readers import Reader
from cleantail.rollback import RollbackPlan
from cleantail.rolling_back import LogUndo
from cleantail.run_schedule import schedule_words
from cleantail.words import instant, size

LIVE_BYTES_NOTE = "bytes are data-file bytes x live fraction"
RECLAIMED = (
    "rewritten_files",
    "new_files",
    "expired_snapshots",
    "orphans_removed",
    "failed_branches_dropped",
    "evidence_files_merged",
)
"""Counts of a reclaim, as its job names them."""


def _print_json(document: Any) -> None:
    print(json.dumps(document, default=str))


def _console() -> Console:
    """A terminal's own width; a pipe's lines are not folded."""
    return Console(width=None if sys.stdout.isatty() else 160, highlight=False)


@contextmanager
def progress(for_machines: bool) -> Iterator[Callable[[str], None]]:
    """A bar on stderr while long work runs; each call names the step. One line a step where stderr is no terminal."""
    if for_machines:
        yield lambda _: None
        return
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        started = time.monotonic()
        yield lambda text: console.print(f"{time.monotonic() - started:6.1f}s  {text}", markup=False)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(24), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda text: bar.update(task, description=text)


def configuration(found: Sequence[tuple[Path, Topic | ConfigError]], for_machines: bool) -> None:
    """One row a topic file; the problems below."""
    errors = [error for _, error in found if isinstance(error, ConfigError)]
    if for_machines:
        topics = [{"file": str(f), "topic": t.topic, "table": t.table} for f, t in found if isinstance(t, Topic)]
        problems = [{"file": str(e.file), "key": p.key, "problem": str(p)} for e in errors for p in e.problems]
        _print_json({"ok": not errors, "topics": topics, "problems": problems})
        return
    table = Table("file", "topic", "table", "policy", "strategy", "schedule", title=f"{len(found)} topic files")
    for file, topic in found:
        if isinstance(topic, Topic):
            policy = ",".join(sorted(topic.config.cleanup_policy))
            when = schedule_words(topic.schedule)
            row = (file.name, topic.topic, topic.table, policy, topic.config.compaction_strategy, when)
            table.add_row(*(escape(text) for text in row))
        else:
            table.add_row(escape(file.name), "[red]wrong[/red]", "", "", "", "")
    _console().print(table)
    for error in errors:
        print(error, file=sys.stderr)


def status(topics: Sequence[tuple[Topic, Sequence[LogState]]], now_ms: int, for_machines: bool) -> None:
    """One row a log."""
    if for_machines:
        _print_json({"now_ms": now_ms, "topics": {t.topic: [log_json(log) for log in logs] for t, logs in topics}})
        return
    for topic, logs in topics:
        columns = ("partition", "log start", "checkpoint", "first dirty", "uncleanable", "log end", "records")
        sizes = ("clean", "cleanable", "dirty ratio", "tombstones", "next horizon", "note")
        table = Table(*columns, *sizes, title=escape(f"{topic.topic}  ({topic.table})"), caption=LIVE_BYTES_NOTE)
        for log in logs:
            table.add_row(*(escape(text) for text in _status_row(log)))
        _console().print(table if logs else escape(f"{topic.topic}: no records yet"))


def _status_row(log: LogState) -> list[str]:
    return [
        str(log.partition),
        str(log.log_start_offset),
        "-" if log.checkpoint is None else str(log.checkpoint),
        str(log.first_dirty_offset),
        str(log.first_uncleanable_offset),
        str(log.log_end_offset),
        str(log.records),
        size(log.clean_bytes),
        size(log.cleanable_bytes),
        f"{log.dirty_ratio:.3f}",
        str(log.pending_tombstones),
        "-" if log.next_horizon_ms is None else instant(log.next_horizon_ms),
        _note(log),
    ]


def _note(log: LogState) -> str:
    if log.warnings:
        return log.warnings[0]
    held = log.state.quarantine
    branch = f"; branch {held.branch}" if held and held.branch else ""
    word = "quarantined: " if held and held.check_failed else ""
    return f"{word}{held.reason}{branch}" if held else ""


def log_json(log: LogState) -> dict[str, Any]:
    """Everything that is known of a log, computed values included; bytes are live bytes, times Unix ms."""
    fields = asdict(log)
    fields["segments"] = [asdict(s) for s in log.segments]
    computed = ("dirty_ratio", "total_bytes", "pending_tombstones", "next_horizon_ms")
    return fields | {name: getattr(log, name) for name in computed}


def plan(planned: RunPlan, joins: Sequence[str], for_machines: bool) -> None:
    """Decision and reason for each log, then how each work unit would be joined, sweep and reclaim."""
    document = planned.as_json() | {"joins": list(joins)}
    if for_machines:
        _print_json(document)
        return
    table = Table("partition", "action", "first dirty", "end", "dirty ratio", "reason", title=escape(planned.reason))
    for row in document["partitions"]:
        cells = (row["partition"], row["action"], row["first_dirty_offset"], row["end_offset"])
        table.add_row(*(str(c) for c in cells), f"{row['dirty_ratio']:.3f}", escape(row["reason"]))
    _console().print(table)
    for number, join in enumerate(joins):
        _console().print(f"unit {number}: {join}", markup=False)
    _console().print(f"sweep: {planned.sweep_reason}\nreclaim: {planned.reclaim.reason}", markup=False)
    _print_warnings(planned)


def _print_warnings(planned: RunPlan) -> None:
    """Repaired checkpoints and late records: on stderr, one line each."""
    for log in planned.logs:
        for text in log.warnings:
            print(f"warning: partition {log.partition}: {text}", file=sys.stderr)


def ingested(topic: Topic, result: dict[str, Any], for_machines: bool) -> None:
    if for_machines:
        _print_json({"topic": topic.topic, **result})
        return
    for row in result["files"]:
        print(f"{row['file']}: {'already in the table, nothing added' if row['skipped'] else 'appended'}")
    print(f"{topic.topic}: {result['records']} records appended")


def compacted(planned: RunPlan, result: dict[str, Any], for_machines: bool) -> None:
    """What the run did to each log, and what its checks said."""
    if for_machines:
        _print_json({"plan": planned.as_json(), **result})
        return
    _print_warnings(planned)
    if not planned.due:
        print(f"{planned.topic}: {planned.reason}\nsweep: {planned.sweep_reason}")
        return
    columns = ("partition", "records in", "records out", "superseded", "expired", "other", "tombstones", "checks")
    table = Table(*columns, title=escape(f"{planned.topic}: {planned.reason}; {planned.sweep_reason}"))
    for stage in ("compacted", "expired"):
        verdicts = {v["partition"]: v for v in result[stage]["verdicts"]}
        for m in result[stage]["measures"]:
            table.add_row(*_run_row(m, verdicts[m["partition"]]["passed"]))
    _console().print(table)
    _print_checks(result)


def _run_row(m: dict[str, Any], passed: bool) -> list[str]:
    gone = m["deleted"]
    other = sum(n for reason, n in gone.items() if reason not in ("superseded", "expired"))
    counts = (
        m["partition"],
        m["records_in"],
        m["records_out"],
        gone.get("superseded", 0),
        gone.get("expired", 0),
        other,
    )
    return [
        *(str(c) for c in counts),
        str(m["tombstones_out"]),
        "[green]passed[/green]" if passed else "[red]failed[/red]",
    ]


def _print_checks(result: dict[str, Any]) -> None:
    stages = [result["compacted"], result["expired"]]
    print(f"{sum(s['checks_passed'] for s in stages)} of {sum(s['checks_total'] for s in stages)} checks passed")
    for verdict in (v for s in stages for v in s["verdicts"]):
        for failure in (*verdict["failures"], *verdict["warnings"]):
            what = f"{failure['expectation']} ({failure['rule']}): {failure['observed']}"
            print(f"{failure['severity']}: partition {verdict['partition']}: {what}", file=sys.stderr)
    for r in (r for s in stages for r in s["left_behind"]):
        where = f"reader {r['name']} is at offset {r['offset']} of partition {r['partition']}"
        overrun = "tombstones that it has not read are gone: cleantail.readers.hold.cap.ms has passed"
        print(f"warning: {where}; {overrun}", file=sys.stderr)
    docs = next((s["data_docs"] for s in stages if s["data_docs"]), None)
    if docs:
        print(f"data docs: {docs}")


def held(topic: Topic, result: dict[str, Any], for_machines: bool) -> bool:
    """Whether a round of the run waits for approval; for people with counts, a sample, and what to do (stderr)."""
    stages = [result[name] for name in ("compacted", "expired") if result.get(name, {}).get("holds")]
    for stage in stages:
        print(f"error: {held_message(topic.topic, stage['holds'])}", file=sys.stderr)
        if not for_machines:
            print("\n".join(sample_lines(stage["sample"]) or ["nothing would go"]), file=sys.stderr)
            print(f"cleantail compact {topic.topic} --approve makes the round anew and publishes it", file=sys.stderr)
    return bool(stages)


def rollback(
    topic: Topic, planned: RollbackPlan, logs: Sequence[LogUndo], snapshot_id: int | None, for_machines: bool
) -> None:
    """What a rollback does, or has done where there is its snapshot."""
    if for_machines:
        document = {"topic": topic.topic, **planned.as_json(), "partitions": [asdict(log) for log in logs]}
        _print_json(document | {"ok": True, "snapshot_id": snapshot_id})
        return
    for undone in planned.undone:
        print(f"{topic.topic}: undoes {undone.kind} round {undone.round} of {instant(undone.at_ms)} UTC")
    rewrites = f", undoes {planned.rewrites} rewrites of files" if planned.rewrites else ""
    print(f"  back to snapshot {planned.to_snapshot_id} of {instant(planned.to_at_ms)} UTC{rewrites}")
    print(f"  keeps what {len(planned.appends)} commits have appended since")
    table = Table("partition", "checkpoint", "checkpoint after", "records", "records after")
    for log in logs:
        checkpoints = ("-" if c is None else str(c) for c in (log.checkpoint, log.checkpoint_after))
        table.add_row(str(log.partition), *checkpoints, str(log.records), str(log.records_after))
    _console().print(table)
    if snapshot_id is None:
        for e in planned.earlier:
            print(
                f"  --to {e.before_snapshot_id} would undo {e.kind} round {e.round} of {instant(e.at_ms)} UTC as well"
            )
        print("nothing was changed: --dry-run")
    else:
        print(f"done, as snapshot {snapshot_id}; the next run compacts anew by the policy in force")


def proven(topic: Topic, result: dict[str, Any], for_machines: bool) -> None:
    """The keys below every clean point, how many of them are there more than once, and which offsets are."""
    if for_machines:
        _print_json({"topic": topic.topic, **result})
        return
    for log in result["partitions"]:
        keys, end, twice = log["keys"], log["end_offset"], log["duplicate_keys"]
        found = f"{twice} of {keys} keys are there more than once" if twice else f"all {keys} keys are unique"
        print(f"{topic.topic}: partition {log['partition']}: {found} below {end}")
    for log in result["contradictions"]:
        print(f"{topic.topic}: partition {log['partition']}: {log['text']}")
    if not result["contradictions"]:
        print(f"{topic.topic}: no offset has two different records")


def reclaimed(topic: Topic, result: dict[str, Any], for_machines: bool) -> None:
    if for_machines:
        _print_json({"topic": topic.topic, **result})
        return
    print(f"{topic.topic}: {'; '.join(result['reasons'])}")
    for name in RECLAIMED:
        print(f"  {name.replace('_', ' ')}: {result[name]}")


def released(topic: Topic, partition: int, was: Quarantine, for_machines: bool) -> None:
    """What the log was held back for."""
    if for_machines:
        _print_json({"topic": topic.topic, "partition": partition, "released": asdict(was)})
        return
    print(f"{topic.topic}: partition {partition} is out of quarantine; the next run tries it")
    print(f"  it was there since {instant(was.since_ms)} UTC, {was.attempts} attempts: {was.reason}")


def positions(topic: Topic, state: Latest, file: Path | None, quiet: bool) -> None:
    """The snapshot and the next offset of every log: to a file, and to a person on stderr."""
    if file is not None:
        offsets = {str(p): offset for p, offset in sorted(state.positions.items())}
        document = {"topic": topic.topic, "snapshot_id": state.snapshot_id, "positions": offsets}
        file.write_text(json.dumps(document) + "\n")
    if not quiet:
        found = ", ".join(f"{p} at {offset}" for p, offset in sorted(state.positions.items()))
        print(f"snapshot {state.snapshot_id}; go on from: partition {found}", file=sys.stderr)


def readers(topic: Topic, found: Sequence[Reader], for_machines: bool) -> None:
    """One row a reader and log."""
    if for_machines:
        _print_json({"topic": topic.topic, "readers": [asdict(r) for r in found]})
        return
    table = Table("reader", "partition", "next offset", "said at", title=escape(f"readers of {topic.topic}"))
    for r in found:
        table.add_row(escape(r.name), str(r.partition), str(r.offset), instant(r.at_ms))
    _console().print(table if found else escape(f"{topic.topic}: no readers are registered"))

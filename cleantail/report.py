"""What the other commands print: tables for people, one JSON document for machines.

That of `status` is in status_report, that of `plan` and `compact` in run_report.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.markup import escape

from cleantail.config import ConfigError, Topic
from cleantail.console import console, folding_table, print_json
from cleantail.latest import Latest
from cleantail.partition_state import Quarantine
from cleantail.readers import Reader
from cleantail.rollback import RollbackPlan
from cleantail.rolling_back import LogUndo
from cleantail.run_schedule import schedule_words
from cleantail.words import counted, instant

RECLAIMED = (
    "rewritten_files",
    "new_files",
    "expired_snapshots",
    "orphans_removed",
    "failed_branches_dropped",
    "evidence_files_merged",
    "side_snapshots_expired",
    "side_orphans_removed",
)
"""Counts of a reclaim, as its job names them."""


def configuration(
    found: Sequence[tuple[Path, Topic | ConfigError]], warnings: Sequence[str], for_machines: bool
) -> None:
    """One row a topic file; problems and warnings below, on stderr."""
    errors = [error for _, error in found if isinstance(error, ConfigError)]
    if for_machines:
        topics = [{"file": str(f), "topic": t.topic, "table": t.table} for f, t in found if isinstance(t, Topic)]
        problems = [
            {"file": str(e.file), "key": p.key, "problem": str(p), "line": p.line} for e in errors for p in e.problems
        ]
        print_json({"ok": not errors, "topics": topics, "problems": problems, "warnings": list(warnings)})
        return
    title = counted(len(found), "topic file")
    table = folding_table("file", "topic", "table", "policy", "strategy", "schedule", title=title)
    for file, topic in found:
        if isinstance(topic, Topic):
            policy = ",".join(sorted(topic.config.cleanup_policy))
            when = schedule_words(topic.schedule)
            row = (file.name, topic.topic, topic.table, policy, topic.config.compaction_strategy, when)
            table.add_row(*(escape(text) for text in row))
        else:
            table.add_row(escape(file.name), "[red]wrong[/red]", "", "", "", "")
    console().print(table)
    for error in errors:
        print(error, file=sys.stderr)
    for text in warnings:
        print(f"warning: {text}", file=sys.stderr)


def ingested(topic: Topic, result: dict[str, Any], for_machines: bool) -> None:
    if for_machines:
        print_json({"topic": topic.topic, **result})
        return
    for row in result["files"]:
        print(f"{row['file']}: {'already in the table, nothing added' if row['skipped'] else 'appended'}")
    print(f"{topic.topic}: {counted(result['records'], 'record')} appended")
    for text in result["warnings"]:
        print(f"warning: {text}", file=sys.stderr)


def rollback(
    topic: Topic, planned: RollbackPlan, logs: Sequence[LogUndo], snapshot_id: int | None, for_machines: bool
) -> None:
    """What a rollback does, or has done where there is its snapshot."""
    if for_machines:
        document = {"topic": topic.topic, **planned.as_json(), "partitions": [asdict(log) for log in logs]}
        print_json(document | {"ok": True, "snapshot_id": snapshot_id})
        return
    for undone in planned.undone:
        print(f"{topic.topic}: undoes {undone.kind} round {undone.round} of {instant(undone.at_ms)} UTC")
    rewrites = f", undoes {counted(planned.rewrites, 'rewrite')} of files" if planned.rewrites else ""
    print(f"  back to snapshot {planned.to_snapshot_id} of {instant(planned.to_at_ms)} UTC{rewrites}")
    print(f"  commits that have appended since, and are kept: {len(planned.appends)}")
    table = folding_table("partition", "checkpoint", "checkpoint after", "records", "records after")
    for log in logs:
        checkpoints = ("-" if c is None else str(c) for c in (log.checkpoint, log.checkpoint_after))
        table.add_row(str(log.partition), *checkpoints, str(log.records), str(log.records_after))
    console().print(table)
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
        print_json({"topic": topic.topic, **result})
        return
    if not result["partitions"]:
        print(f"{topic.topic}: no record is below a clean point yet, so no key is proven")
    for log in result["partitions"]:
        keys, end, twice = log["keys"], log["end_offset"], log["duplicate_keys"]
        found = (
            f"keys that are there more than once: {twice} of {keys}" if twice else f"no key is there twice, of {keys}"
        )
        print(f"{topic.topic}: partition {log['partition']}: {found} below {end}")
    for log in result["contradictions"]:
        print(f"{topic.topic}: partition {log['partition']}: {log['text']}")
    if not result["contradictions"]:
        print(f"{topic.topic}: no offset has two different records")


def reclaimed(topic: Topic, result: dict[str, Any], for_machines: bool) -> None:
    if for_machines:
        print_json({"topic": topic.topic, **result})
        return
    print(f"{topic.topic}: {'; '.join(result['reasons'])}")
    for name in RECLAIMED:
        print(f"  {name.replace('_', ' ')}: {result[name]}")


def released(topic: Topic, partition: int, was: Quarantine, for_machines: bool) -> None:
    """What the log was held back for."""
    if for_machines:
        print_json({"topic": topic.topic, "partition": partition, "released": asdict(was)})
        return
    print(f"{topic.topic}: partition {partition} is out of quarantine; the next run tries it")
    print(f"  it was there since {instant(was.since_ms)} UTC, {counted(was.attempts, 'attempt')}: {was.reason}")


def positions(topic: Topic, state: Latest, file: Path | None, quiet: bool) -> None:
    """The snapshot and the next offset of every log: to a file, and to a person on stderr."""
    if file is not None:
        offsets = {str(p): offset for p, offset in sorted(state.positions.items())}
        document = {"topic": topic.topic, "snapshot_id": state.snapshot_id, "positions": offsets}
        file.write_text(json.dumps(document) + "\n")
    if not quiet:
        found = ", ".join(f"{p} at {offset}" for p, offset in sorted(state.positions.items()))
        where = f"partition {found}" if found else "the start of every partition, the table has no records yet"
        print(f"snapshot {state.snapshot_id}; go on from: {where}", file=sys.stderr)


def readers(topic: Topic, found: Sequence[Reader], for_machines: bool) -> None:
    """One row a reader and log."""
    if for_machines:
        print_json({"topic": topic.topic, "readers": [asdict(r) for r in found]})
        return
    title = f"readers of {topic.topic}"
    table = folding_table("reader", "partition", "next offset", "said at (UTC)", title=title)
    for r in found:
        table.add_row(escape(r.name), str(r.partition), str(r.offset), instant(r.at_ms))
    console().print(table if found else escape(f"{topic.topic}: no readers are registered"))

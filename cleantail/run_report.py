"""What `cleantail plan` and `cleantail compact` print of a run: decisions with their reasons, and what came of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rich.markup import escape

from cleantail.approval import held_message
from cleantail.approval_text import sample_lines
from cleantail.config import Platform, Topic
from cleantail.console import console, folding_table, print_json
from cleantail.evaluate import RunPlan
from cleantail.retention import NO_DELETE
from cleantail.sampled import sampled_records
from cleantail.status_report import print_holds
from cleantail.words import counted, until


def plan(planned: RunPlan, joins: Sequence[str], for_machines: bool) -> None:
    """Decision and reason for each log, then how each work unit would be joined, sweep and reclaim."""
    document = planned.as_json() | {"joins": list(joins)}
    if for_machines:
        print_json(document)
        return
    print(f"{planned.topic}: {planned.reason}")
    table = folding_table("partition", "action", "first dirty", "end", "dirty ratio", "reason")
    for row in document["partitions"]:
        cells = (row["partition"], row["action"], row["first_dirty_offset"], row["end_offset"])
        table.add_row(*(str(c) for c in cells), f"{row['dirty_ratio']:.3f}", escape(row["reason"]))
    if planned.logs:
        console().print(table)
    for number, join in enumerate(joins):
        print(f"unit {number}: {join}")
    for row in document["partitions"]:
        if row["keyless"] and row["keyless"] not in row["warnings"]:
            print(f"partition {row['partition']}: {row['keyless']}")
    print(f"sweep: {planned.sweep_reason}")
    for log, retention in zip(planned.logs, planned.retentions, strict=True):
        if retention.reason != NO_DELETE:
            print(f"retention: partition {log.partition}: {retention.reason}")
    print(f"reclaim: {planned.reclaim.reason}")
    print_holds(planned.holds)
    print_warnings(planned)
    _print_held_back(planned)


def print_warnings(planned: RunPlan) -> None:
    """Repaired checkpoints and late records: on stderr, one line each."""
    for log in planned.logs:
        for text in log.warnings:
            print(f"warning: partition {log.partition}: {text}", file=sys.stderr)


def _print_held_back(planned: RunPlan) -> None:
    """Logs that a scheduled run leaves alone, though this plan, as a person's `compact`, does not: on stderr."""
    for log in planned.logs:
        held = log.state.quarantine
        if held is not None and planned.now_ms < held.retry_at_ms:
            waits = f"a scheduled run leaves it alone {until(held.retry_at_ms)}, `cleantail compact` does not"
            print(f"warning: partition {log.partition}: held back: {held.reason}; {waits}", file=sys.stderr)


def compacted(planned: RunPlan, result: dict[str, Any], for_machines: bool) -> None:
    """What the run did to each log, and what its checks said."""
    if for_machines:
        print_json({"plan": planned.as_json(), **result})
        return
    print_warnings(planned)
    if not planned.due:
        print(f"{planned.topic}: {planned.reason}\nsweep: {planned.sweep_reason}")
        return
    columns = ("partition", "records in", "records out", "superseded", "expired", "other", "tombstones", "checks")
    print(f"{planned.topic}: {planned.reason}; {planned.sweep_reason}")
    table = folding_table(*columns)
    for stage in ("compacted", "expired"):
        verdicts = {v["partition"]: v for v in result[stage]["verdicts"]}
        for m in result[stage]["measures"]:
            table.add_row(*_run_row(m, verdicts[m["partition"]]["passed"]))
    console().print(table)
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
    total = counted(sum(s["checks_total"] for s in stages), "check")
    print(f"{sum(s['checks_passed'] for s in stages)} of {total} passed")
    for verdict in (v for s in stages for v in s["verdicts"]):
        for failure in (*verdict["failures"], *verdict["warnings"]):
            what = f"{failure['expectation']} ({failure['rule']}): {failure['observed']}"
            held = failure in verdict["failures"] and failure["severity"] != "critical"
            weight = f"{failure['severity']}, and yet held back" if held else failure["severity"]
            print(f"{weight}: partition {verdict['partition']}: {what}", file=sys.stderr)
    for r in (r for s in stages for r in s["left_behind"]):
        where = f"reader {r['name']} is at offset {r['offset']} of partition {r['partition']}"
        overrun = "tombstones that it has not read are gone: cleantail.readers.hold.cap.ms has passed"
        print(f"warning: {where}; {overrun}", file=sys.stderr)
    docs = next((s["data_docs"] for s in stages if s["data_docs"]), None)
    if docs:
        print(f"data docs: {docs}")


def held(topic: Topic, platform: Platform, result: dict[str, Any], for_machines: bool) -> bool:
    """Whether a round of the run waits for approval; for people with counts, a sample, and what to do (stderr)."""
    stages = [result[name] for name in ("compacted", "expired") if result.get(name, {}).get("holds")]
    for stage in stages:
        print(f"error: {held_message(topic.topic, stage['holds'])}", file=sys.stderr)
        if not for_machines:
            lines = sample_lines(stage["sample"], sampled_records(topic, platform, stage["sample"]))
            print("\n".join(lines or ["nothing would go"]), file=sys.stderr)
            print(f"cleantail compact {topic.topic} --approve makes the round anew and publishes it", file=sys.stderr)
    return bool(stages)

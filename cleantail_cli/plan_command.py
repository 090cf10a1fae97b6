"""`plan`: print what a run would do and why, or compare policies on the history of topics.

Any user may propose the YAML with the names and values, so the Markdown escapes all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, ConfigError
from cleantail.human import AsWritten, counted, duration, instant, interval, readable_reason, size, until
from cleantail.lake.evaluate import evaluate_topic
from cleantail.log.due_work import NO_DELETE, NO_SOURCE
from cleantail.log.task_shares import task_plan
from cleantail.rounds.run_plan import EvaluatedTopic
from cleantail.whatif import policy_comparison
from cleantail.whatif.replay import Basis
from cleantail_cli import parameters
from cleantail_cli.command import Invocation, command, directories
from cleantail_cli.output import ConsoleOutput, Lines
from cleantail_cli.parameters import FILE, clock, config_names
from cleantail_cli.status_command import print_holds

if TYPE_CHECKING:
    from cleantail.whatif.policy_comparison import ConfigurationDifference, Policy, PolicyComparison


@command(
    "plan",
    parameters.optional_topic,
    parameters.now,
    parameters.partition,
    parameters.force,
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        shell_complete=config_names,
        help="Replay the topic's history with this config changed; may be repeated.",
    ),
    click.option(
        "--diff",
        "base_dir",
        type=FILE,
        metavar="BASE_DIR",
        shell_complete=directories,
        help="Compare all topics with those of another configuration.",
    ),
    examples=[
        "cleantail plan customer-cdc",
        "cleantail plan customer-cdc --set min.cleanable.dirty.ratio=0.2",
        "cleantail plan --diff base/config > comment.md",
    ],
)
def plan(
    call: Invocation,
    topic: str | None,
    now: int | None,
    partition: int | None,
    force: bool,
    settings: tuple[str, ...],
    base_dir: Path | None,
) -> int:
    """Show what a run would do and why; changes nothing.

    With --set or --diff it shows what another policy would have done.
    """
    require_one_kind(topic, settings, base_dir, partition is not None or force)
    if base_dir is not None:
        return compare_topics(call, base_dir, clock(now))
    configured = call.topic(str(topic))
    if settings:
        with call.output.progress() as progress:
            progress(f"replaying the history of {configured.topic}")
            other = policy_comparison.with_settings(configured, settings)
            compared = policy_comparison.compare(configured, other, clock(now), progress.counting)
        call.output.show(OnePolicy(compared))
        return 0
    planned = evaluated(configured, now, force, partition)
    plans = [task_plan(unit, call.platform, configured.config, planned.shared_files) for unit in planned.units]
    call.output.show(ShownPlan(planned, plans))
    return 0


def evaluated(topic: Topic, now: int | None, force: bool, partition: int | None) -> EvaluatedTopic:
    """Return the run's plan, including quarantined logs whose pause is not over: a user has decided to retry."""
    return evaluate_topic(topic, now_ms=clock(now), force=force, partition=partition, retry_quarantined=True)


@dataclass(frozen=True)
class ShownPlan:
    """Answer of `plan`: the decision for each log, then the work units, tombstones, retention and reclaim.

    `unit_tasks`: how many tasks each unit has, and why. Their JSON key `joins` is part of the format.
    """

    planned: EvaluatedTopic
    unit_tasks: Sequence[str]

    def document(self) -> dict[str, Any]:
        return self.planned.as_json() | {"joins": list(self.unit_tasks)}

    def print_on(self, page: ConsoleOutput) -> None:
        planned, by_log = self.planned, self.planned.by_log
        page.paragraph(f"{planned.topic}: {planned.reason}")
        if planned.logs:
            decided = [(of_log.decision, of_log.action) for of_log in by_log]
            rows = [
                (d.partition, action, d.first_dirty_offset, d.end_offset, f"{d.dirty_ratio:.3f}", d.reason)
                for d, action in decided
            ]
            page.table(("partition", "action", "first dirty", "end", "dirty ratio", "reason"), rows)
        for tasks in self.unit_tasks:
            page.paragraph(tasks)
        for of_log in by_log:
            if of_log.keyless and of_log.keyless not in of_log.log.warnings:
                page.line(f"partition {of_log.log.partition}: {of_log.keyless}")
        page.paragraph(f"tombstones: {planned.sweep_reason}")
        for of_log in by_log:
            if of_log.retention.reason != NO_DELETE:
                page.paragraph(f"retention: partition {of_log.log.partition}: {of_log.retention.reason}")
        page.paragraph(f"reclaim: {planned.reclaim.reason}")
        if planned.reconcile.reason != NO_SOURCE:
            page.paragraph(f"reconcile: {planned.reconcile.reason}")
        print_holds(planned.holds, page)
        print_warnings(planned, page)
        print_held_back(planned, page)


def print_warnings(planned: EvaluatedTopic, page: ConsoleOutput) -> None:
    """Warn on stderr of checkpoints outside their log, late records and records without a key."""
    for log in planned.logs:
        for text in log.warnings:
            where = f"partition {log.partition}: "  # texts about skipped records begin like this
            page.warning(text if text.startswith(where) else f"{where}{text}")


def print_held_back(planned: EvaluatedTopic, page: ConsoleOutput) -> None:
    """Warn on stderr of quarantined logs that this plan retries, although a scheduled run would still wait."""
    for log in planned.logs:
        quarantine = log.state.quarantine
        if quarantine is not None and planned.now_ms < quarantine.retry_at_ms:
            waits = f"a scheduled run skips it {until(quarantine.retry_at_ms)}, `cleantail compact` does not"
            page.warning(f"partition {log.partition}: blocked: {quarantine.reason}; {waits}")


def require_one_kind(topic: str | None, settings: Sequence[str], base_dir: Path | None, narrowed: bool) -> None:
    """Raise CleantailError for arguments that exclude each other. `narrowed`: --partition or --force is given."""
    if base_dir and (topic or settings):
        raise CleantailError("--diff compares all topics: remove TOPIC and --set")
    if not topic and not base_dir:
        raise CleantailError("plan needs a TOPIC, or --diff BASE_DIR to compare all topics")
    if (settings or base_dir) and narrowed:
        raise CleantailError("--set and --diff replay whole topics: remove --partition and --force")


def compare_topics(call: Invocation, base_dir: Path, now_ms: int) -> int:
    """Compare all topics with another configuration, and show Markdown. A broken file makes the exit code 2."""
    with call.output.progress() as progress:
        progress("replaying histories")
        compared = policy_comparison.differences(base_dir, call.config, call.platform, now_ms, progress.counting)
    document = {
        "changed": [as_json(c) for c in compared.changed],
        "added": [t.topic for t in compared.added],
        "removed": [t.topic for t in compared.removed],
        "broken_in_base": list(compared.broken_in_base),
        "broken": list(compared.broken),
    }
    call.output.show(Lines(document, [markdown(compared).removesuffix("\n")]))
    for text in compared.broken:
        call.output.error(text)
    return ConfigError.exit_code if compared.broken else 0


_MARKUP = re.compile(r"([\\`*_{}\[\]()#+!|~-])")
_BASES = "measured: known from real rounds or metadata; estimated: from the share that real rounds dropped"


@dataclass(frozen=True)
class OnePolicy:
    """Answer of `plan --set`: a topic under another policy, as a table."""

    compared: PolicyComparison

    def document(self) -> dict[str, Any]:
        return as_json(self.compared)

    def print_on(self, page: ConsoleOutput) -> None:
        compared = self.compared
        changes = (
            ", ".join(f"{key}: {_text(key, b)} -> {_text(key, a)}" for key, (b, a) in compared.changes.items())
            or "nothing changes"
        )
        page.paragraph(f"{compared.topic}: {changes}")
        if compared.before is not None:
            page.table(("", "now", "changed", "known"), rows(compared), caption=_BASES)
        page.paragraph(headline(compared))


def as_json(compared: PolicyComparison) -> dict[str, Any]:
    """Return both sides with all numbers. Rates are per whole day of the history, null below one day."""
    document = asdict(compared)
    document["changes"] = {key: {"before": b, "after": a} for key, (b, a) in compared.changes.items()}
    for name, side in (("before", compared.before), ("after", compared.after)):
        if side is not None:
            rates = {"rounds_per_day": _rate(side.outcome.whole_days_rounds, compared.whole_days)}
            rates |= {"runs_per_day": _rate(side.outcome.whole_days_runs, compared.whole_days)}
            document[name] |= rates | {"dropped": side.outcome.dropped}
    return document


def rows(compared: PolicyComparison) -> list[tuple[str, str, str, str]]:
    """Return rows of (what, before, after, how it is known); none without a history."""
    before, after = compared.before, compared.after
    if before is None or after is None:
        return []
    others = _cells(after, compared)
    return [(what, text, others[what], _basis(what, before, after)) for what, text in _cells(before, compared).items()]


def _cells(side: Policy, compared: PolicyComparison) -> dict[str, str]:
    outcome = side.outcome
    span = duration(round(compared.days * 86_400_000))
    expiry = "-" if side.next_expiry_ms is None else f"{instant(side.next_expiry_ms)} UTC"
    return {
        "rounds": _count_text(_rate(outcome.whole_days_rounds, compared.whole_days), outcome.rounds, span),
        "runs": _count_text(_rate(outcome.whole_days_runs, compared.whole_days), outcome.runs, span),
        "rows dropped": "?" if outcome.dropped is None else str(outcome.dropped),
        "… past retention": str(outcome.past_retention),
        "bytes freed": "?" if outcome.bytes_freed is None else size(outcome.bytes_freed),
        "bytes that rounds read": size(outcome.read_bytes),
        "due now": f"{'yes' if side.due else 'no'}: {readable_reason(side.reason)}",
        "next expiry": expiry,
    }


def _basis(what: str, before: Policy, after: Policy) -> str:
    if what == "due now":
        return Basis.MEASURED
    if what == "next expiry":
        bases = {s.next_expiry_basis for s in (before, after)} - {None}
        return ", ".join(sorted(str(b) for b in bases)) or "-"
    if what == "rows dropped":
        return max(before.outcome.basis, after.outcome.basis, key=list(Basis).index)
    return Basis.UNKNOWN if Basis.UNKNOWN in (before.outcome.basis, after.outcome.basis) else Basis.ESTIMATED


def _rate(count: int, whole_days: int) -> float | None:
    return count / whole_days if whole_days else None


def _count_text(rate: float | None, count: int, span: str) -> str:
    """Return `96.0 a day`, or `3 (history: 8.9 min)` if the history is shorter than a day."""
    return f"{count} (history: {span})" if rate is None else f"{rate:.1f} a day"


def headline(compared: PolicyComparison) -> str:
    if compared.before is None:
        return compared.note
    since = f"{instant(compared.start_ms)} UTC"
    span = duration(round(compared.days * 86_400_000))
    rounds = counted(compared.observed_rounds, "round")
    text = f"replayed: {span} of appends since {since}; published in that time: {rounds}"
    return f"{text}; {compared.note}" if compared.note else text


def markdown(difference: ConfigurationDifference) -> str:
    total = len(difference.changed) + len(difference.added) + len(difference.removed)
    if not (total or difference.broken_in_base or difference.broken):
        return "### Cleantail: no topic's policy changes\n"
    parts = [f"### Cleantail: {counted(total, 'topic')} {'changes' if total == 1 else 'change'}"]
    parts += [f"Cannot be read: {plain(text)}" for text in difference.broken]
    parts += [_section(c) for c in difference.changed]
    parts += [f"#### {plain(t.topic)}: new\n\nIts table is {_code(t.table)}." for t in difference.added]
    parts += [
        f"#### {plain(t.topic)}: removed\n\nIt is no longer compacted. Its table {_code(t.table)} is kept."
        for t in difference.removed
    ]
    parts += [f"Cannot be read in the base: {plain(text)}" for text in difference.broken_in_base]
    return "\n\n".join(parts) + (f"\n\n<sub>{_BASES}</sub>\n" if difference.changed else "\n")


def _section(compared: PolicyComparison) -> str:
    changes = _markdown_table(
        ("setting", "before", "after"),
        ((_code(key), _code(_text(key, b)), _code(_text(key, a))) for key, (b, a) in compared.changes.items()),
    )
    cells = _markdown_table(("", "before", "after", "known"), (tuple(map(plain, row)) for row in rows(compared)))
    body = f"{changes}\n\n{cells}" if compared.before is not None else changes
    return f"#### {plain(compared.topic)}\n\n{body}\n\n{plain(headline(compared))}"


def _text(key: str, value: object) -> str:
    """Return a setting's value as it was written, else a time with its unit."""
    if isinstance(value, AsWritten) or (key.endswith(".ms") and isinstance(value, int) and value > 0):
        return interval(value)
    return "none" if value is None or value == "" else str(value)


def _markdown_table(head: tuple[str, ...], body: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *body)]
    return "\n".join(lines)


def plain(text: str) -> str:
    """Escape a text for one line of Markdown: no markup, HTML, links or mentions, and no invisible characters.

    The tag after @ separates it from the name, so that no user is mentioned.
    """
    line = " ".join(text.split())
    printable = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in line)
    html = _MARKUP.sub(r"\\\1", printable.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
    return html.replace("@", "&#64;<wbr>").replace("://", ":&#47;&#47;").replace("www.", "www&#46;")


def _code(text: str) -> str:
    return f"<code>{plain(text)}</code>"

"""Comparisons of policies for people: a table on a terminal, Markdown for a pull request, JSON for machines.

Names and values come from YAML that anybody may propose, so in Markdown nothing of them is markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from cleantail.human import counted, duration, instant, interval, readable_reason, size
from cleantail.whatif.observed_history import Basis
from cleantail.whatif.policy_comparison import Comparison, Difference, Policy
from cleantail_cli.output import Page

ROWS = (
    "rounds",
    "runs",
    "rows dropped",
    "… past retention",
    "bytes freed",
    "bytes that rounds read",
    "due now",
    "next expiry",
)
_MARKUP = re.compile(r"([\\`*_{}\[\]()#+!|~-])")
_BASES = "measured: known from real rounds or metadata; estimated: from the share that real rounds dropped"


@dataclass(frozen=True)
class OnePolicy:
    """Is the answer of `plan --set`: a topic under another policy, as a table."""

    compared: Comparison

    def document(self) -> dict[str, Any]:
        return as_json(self.compared)

    def tell(self, page: Page) -> None:
        tell_comparison(self.compared, page)


@dataclass(frozen=True)
class AllPolicies:
    """Is the answer of `plan --diff`: all topics whose policy differs, as Markdown."""

    difference: Difference

    def document(self) -> dict[str, Any]:
        return difference_json(self.difference)

    def tell(self, page: Page) -> None:
        page.line(markdown(self.difference).removesuffix("\n"))


def as_json(compared: Comparison) -> dict[str, Any]:
    """Returns both sides with all numbers; rates are of the history's whole days, null where it has none."""
    document = asdict(compared)
    document["changes"] = {key: {"before": b, "after": a} for key, (b, a) in compared.changes.items()}
    for name, side in (("before", compared.before), ("after", compared.after)):
        if side is not None:
            rates = {"rounds_per_day": _rate(side.outcome.whole_days_rounds, compared.whole_days)}
            rates |= {"runs_per_day": _rate(side.outcome.whole_days_runs, compared.whole_days)}
            document[name] |= rates | {"dropped": side.outcome.dropped}
    return document


def difference_json(difference: Difference) -> dict[str, Any]:
    return {
        "changed": [as_json(c) for c in difference.changed],
        "added": [t.topic for t in difference.added],
        "removed": [t.topic for t in difference.removed],
        "broken_in_base": list(difference.broken_in_base),
        "broken": list(difference.broken),
    }


def rows(compared: Comparison) -> list[tuple[str, str, str, str]]:
    """Returns rows of (what, before, after, how it is known); none where there was no history."""
    before, after = compared.before, compared.after
    if before is None or after is None:
        return []
    cells = zip(ROWS, _cells(before, compared), _cells(after, compared), strict=True)
    return [(what, b, a, _basis(what, before, after)) for what, b, a in cells]


def _cells(side: Policy, compared: Comparison) -> list[str]:
    outcome = side.outcome
    span = duration(round(compared.days * 86_400_000))
    expiry = "-" if side.next_expiry_ms is None else f"{instant(side.next_expiry_ms)} UTC"
    return [
        _count_text(_rate(outcome.whole_days_rounds, compared.whole_days), outcome.rounds, span),
        _count_text(_rate(outcome.whole_days_runs, compared.whole_days), outcome.runs, span),
        "?" if outcome.dropped is None else str(outcome.dropped),
        str(outcome.past_retention),
        "?" if outcome.bytes_freed is None else size(outcome.bytes_freed),
        size(outcome.read_bytes),
        f"{'yes' if side.due else 'no'}: {readable_reason(side.reason)}",
        expiry,
    ]


def _basis(what: str, before: Policy, after: Policy) -> str:
    if what == "due now":
        return Basis.MEASURED
    if what == "next expiry":
        bases = {s.next_expiry_basis for s in (before, after)} - {None}
        return ", ".join(sorted(str(b) for b in bases)) or "-"
    if what == "rows dropped":
        return _worst(before.outcome.basis, after.outcome.basis)
    return Basis.UNKNOWN if Basis.UNKNOWN in (before.outcome.basis, after.outcome.basis) else Basis.ESTIMATED


def _worst(*bases: Basis) -> Basis:
    return max(bases, key=list(Basis).index)


def _rate(count: int, whole_days: int) -> float | None:
    return count / whole_days if whole_days else None


def _count_text(rate: float | None, count: int, span: str) -> str:
    """Returns `96.0 a day`; of less than a day only what was in it, `3 in 8.9 min`."""
    return f"{count} in {span}" if rate is None else f"{rate:.1f} a day"


def headline(compared: Comparison) -> str:
    """Says what the history is."""
    if compared.before is None:
        return compared.note
    since = f"{instant(compared.start_ms)} UTC"
    span = duration(round(compared.days * 86_400_000))
    rounds = counted(compared.observed_rounds, "round")
    text = f"replayed: {span} of appends since {since}; really published in it: {rounds}"
    return f"{text}; {compared.note}" if compared.note else text


def tell_comparison(compared: Comparison, page: Page) -> None:
    """Writes one comparison for a terminal."""
    from rich.markup import escape

    from cleantail_cli.console import folding_table

    changes = (
        ", ".join(f"{key}: {_text(key, b)} -> {_text(key, a)}" for key, (b, a) in compared.changes.items())
        or "nothing changes"
    )
    page.line(f"{compared.topic}: {changes}")
    table = folding_table("", "now", "changed", "known", caption=_BASES)
    for row in rows(compared):
        table.add_row(*(escape(cell) for cell in row))
    if compared.before is not None:
        page.table(table)
    page.line(headline(compared))


def markdown(difference: Difference) -> str:
    """Writes the comment of a pull request."""
    total = len(difference.changed) + len(difference.added) + len(difference.removed)
    if not (total or difference.broken_in_base or difference.broken):
        return "### Cleantail: no topic's policy changes\n"
    parts = [f"### Cleantail: {counted(total, 'topic')} {'changes' if total == 1 else 'change'}"]
    parts += [f"Cannot be used: {plain(text)}" for text in difference.broken]
    parts += [_section(c) for c in difference.changed]
    parts += [f"#### {plain(t.topic)}: new\n\nIts table is {_code(t.table)}." for t in difference.added]
    parts += [
        f"#### {plain(t.topic)}: removed\n\nIt is compacted no more. Its table {_code(t.table)} stays as it is."
        for t in difference.removed
    ]
    parts += [f"In the base, not readable: {plain(text)}" for text in difference.broken_in_base]
    return "\n\n".join(parts) + (f"\n\n<sub>{_BASES}</sub>\n" if difference.changed else "\n")


def _section(compared: Comparison) -> str:
    changes = _markdown_table(
        ("setting", "before", "after"),
        ((_code(key), _code(_text(key, b)), _code(_text(key, a))) for key, (b, a) in compared.changes.items()),
    )
    cells = _markdown_table(("", "before", "after", "known"), (tuple(map(plain, row)) for row in rows(compared)))
    body = f"{changes}\n\n{cells}" if compared.before is not None else changes
    return f"#### {plain(compared.topic)}\n\n{body}\n\n{plain(headline(compared))}"


def _text(key: str, value: object) -> str:
    """Returns a setting's value as text; of a time also in words."""
    if key.endswith(".ms") and isinstance(value, int) and value > 0:
        return f"{value} ({interval(value)})"
    return "none" if value is None or value == "" else str(value)


def _markdown_table(head: tuple[str, ...], body: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *body)]
    return "\n".join(lines)


def plain(text: str) -> str:
    """Returns a text that Markdown shows as it is, on one line: no markup, no HTML, no mention of anybody, and nothing
    that is not seen or turns the order of letters round. The tag after @ parts it from the name, which nobody is called
    by."""
    line = " ".join(text.split())
    printable = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in line)
    html = _MARKUP.sub(r"\\\1", printable.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
    return html.replace("@", "&#64;<wbr>").replace("://", ":&#47;&#47;").replace("www.", "www&#46;")


def _code(text: str) -> str:
    """Writes text as code, in HTML: a backtick in it cannot end it."""
    return f"<code>{plain(text)}</code>"

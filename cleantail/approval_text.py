"""What a person sees who is asked to approve a round: counts by log, and a sample of the records that would go.

Everything that comes from data is quoted, printable and short, one record a line, and stands in a fenced block:
neither Markdown nor HTML nor a template can be made of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cleantail.approval import removed
from cleantail.words import counted, instant

KEY_CHARS, VALUE_CHARS = 60, 100
LINE_CHARS = 72
"""So wide is a line of the sample at most."""
FENCE = "```"


def subject(checked: Mapping[str, Any]) -> str:
    """One line: what would go, of which topic."""
    gone = sum(removed(m) for m in _green(checked))
    what = "tombstones" if checked["kind"] == "expire" else "records"
    logs = len(_green(checked))
    return f"{checked['topic']}: {gone} {what} would go from {logs} {'partition' if logs == 1 else 'partitions'}"


@dataclass(frozen=True, slots=True)
class Question:
    """Around what is asked: until when (Unix ms) an answer is awaited, and where to look at more."""

    until_ms: int
    page: str
    data_docs: str


def body(checked: Mapping[str, Any], question: Question | None = None) -> str:
    """Markdown: why the round waits, counts, sample, until when, and what each answer does."""
    now_ms = checked["units"][0]["now_ms"]
    red = [str(v["partition"]) for v in checked["verdicts"] if not v["passed"]]
    held_back = [f"Held back whatever is answered, since a check is red: partition {', '.join(red)}."] if red else []
    return "\n\n".join(
        [
            f"Round `{checked['round']}` ({checked['kind']}), its clock {instant(now_ms)} UTC: "
            f"{checked['checks_passed']} of {checked['checks_total']} checks passed.",
            *([_deadline(question), _links(question)] if question else []),
            *held_back,
            "**Why it waits**",
            _fenced([f"partition {h['partition']}: {h['reason']}" for h in checked["holds"]]),
            "**What would go**",
            _fenced(count_lines(checked)),
            f"**A sample of it, and what stays in its place** ({counted(len(checked['sample']), 'record')})",
            _fenced(sample_lines(checked["sample"]) or ["nothing would go"]),
            "Approve publishes exactly this. Reject drops it, and the partitions rest for cleantail.approval.pause.ms "
            "or until they are released.",
        ]
    )


def _deadline(question: Question) -> str:
    return (
        f"**Answer until {instant(question.until_ms)} UTC.** No answer by then is a Reject: nothing of this round is "
        "published, and no record goes."
    )


def _links(question: Question) -> str:
    """Our own addresses, of names that a configured topic may have: nothing in them is data."""
    return f"[The topic's page]({question.page}) · [Data Docs of its checks]({question.data_docs})"


def _fenced(lines: Sequence[str]) -> str:
    """No line can close the block: none begins with the fence, and none has a line break."""
    return "\n".join([f"{FENCE}text", *lines, FENCE])


def _green(checked: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    passed = {v["partition"] for v in checked["verdicts"] if v["passed"]}
    return sorted((m for m in checked["measures"] if m["partition"] in passed), key=lambda m: int(m["partition"]))


def count_lines(checked: Mapping[str, Any]) -> list[str]:
    """A table, one line a log that would be published: records in, dropped by reason, share, tombstones kept."""
    logs = _green(checked)
    reasons = sorted({reason for m in logs for reason, n in m["deleted"].items() if n} | {"superseded", "expired"})
    head = ["partition", "records in", *reasons, "share", "tombstones kept"]
    rows = [
        [
            str(m["partition"]),
            str(m["records_in"]),
            *(str(m["deleted"].get(reason, 0)) for reason in reasons),
            f"{100 * removed(m) / m['records_in']:.1f} %" if m["records_in"] else "-",
            str(m["tombstones_out"]),
        ]
        for m in logs
    ]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]]


def sample_lines(sample: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each record in short lines, which no narrow box cuts: its place, what stays instead, key, value."""
    return [line for record in sample for line in _record_lines(record)]


def _record_lines(record: Mapping[str, Any]) -> list[str]:
    place = f"partition {record['partition']}, offset {record['offset']} goes"
    if "kept_offset" in record:  # a round that waits since an earlier version does not say it
        kept = record["kept_offset"]
        place += f"; offset {kept} of the same key stays" if kept is not None else "; nothing of its key stays"
    pieces = [f"key   {record['key']}", f"value {record['value']}"]
    return [place, *(f"{indent}{line}" for piece in pieces for indent, line in _wrapped(piece))]


def _wrapped(text: str) -> Iterator[tuple[str, str]]:
    """In lines of at most LINE_CHARS; further ones stand under the first one's value."""
    yield "  ", text[: LINE_CHARS - 2]
    for start in range(LINE_CHARS - 2, len(text), LINE_CHARS - 8):
        yield "        ", text[start : start + LINE_CHARS - 8]


def shown(data: bytes | None, length: int | None, chars: int) -> str:
    """A key or value as one printable, bounded word: text in JSON's quotes, other bytes in hex, null as it is.

    `data` may be only the beginning of `length` bytes.
    """
    if data is None:
        return "null"
    cut = "…" if length is not None and length > len(data) else ""
    text = _text(data, bool(cut))
    if text is None:
        return f"0x{data[: chars // 2].hex()}{cut or ('…' if len(data) > chars // 2 else '')}"
    return f"{_quoted(text[:chars])}{cut or ('…' if len(text) > chars else '')}"


def _text(data: bytes, is_cut: bool) -> str | None:
    """None where the bytes are not UTF-8; what was cut may end in the middle of a character."""
    try:
        return data.decode()
    except UnicodeDecodeError as e:
        return data[: e.start].decode() if is_cut and e.start >= len(data) - 3 else None


def _quoted(text: str) -> str:
    """JSON, and whatever is not printable (line breaks, marks of direction) as an escape."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in quoted)

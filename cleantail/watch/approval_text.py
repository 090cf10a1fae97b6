"""What a person is asked who is to approve a round: counts by log, which records would go, and where to see them.

Airflow keeps the question, so it holds offsets and nothing of what is in the records. The topic's page reads the
records when it is opened, and the command line when it asks (`cleantail.lake.records.shown_records`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cleantail.human import counted, instant
from cleantail.lake.records.shown_records import ShownRecord
from cleantail.rounds.approval import removed

LINE_CHARS = 72
"""The width of the longest line of the sample."""
FENCE = "```"


def subject(checked: Mapping[str, Any]) -> str:
    """Returns one line: what would go, of which topic."""
    removed_records = sum(removed(m) for m in _green(checked))
    noun = "tombstones" if checked["kind"] == "expire" else "records"
    logs = counted(len(_green(checked)), "partition")
    return f"{checked['topic']}: {removed_records} {noun} would go from {logs}"


@dataclass(frozen=True, slots=True)
class Question:
    """Describes what stands around a question: until when (Unix ms) an answer is awaited, and where to see more.

    `records` is the page that shows the sample. `shown` is the digest that says what exactly an answer is for
    (cleantail.rounds.answers).
    """

    until_ms: int
    page: str
    data_docs: str
    records: str
    shown: str = ""


def body(checked: Mapping[str, Any], question: Question | None = None) -> str:
    """Returns Markdown: why the round waits, counts, sample, until when, and what each answer does."""
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
            f"**A sample of it, and what stays in its place** ({counted(len(checked['sample']), 'record')}"
            + (f": [look at the records]({question.records}))" if question and checked["sample"] else ")"),
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
    """Returns links to pages of ours, made of names that a configured topic may have: nothing in them is data."""
    links = f"[The topic's page]({question.page}) · [Data Docs of its checks]({question.data_docs})"
    return f"{links} · `{question.shown}`" if question.shown else links


def _fenced(lines: Sequence[str]) -> str:
    """Returns the lines as a block of code. No line can close it: none begins with the fence, and none has a line
    break."""
    return "\n".join([f"{FENCE}text", *lines, FENCE])


def _green(checked: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    passed = {v["partition"] for v in checked["verdicts"] if v["passed"]}
    return sorted((m for m in checked["measures"] if m["partition"] in passed), key=lambda m: int(m["partition"]))


def count_lines(checked: Mapping[str, Any]) -> list[str]:
    """Returns a table with a line for each log that would be published: records in, dropped by reason, share,
    tombstones kept."""
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


Records = Mapping[tuple[int, int], ShownRecord]
NO_RECORDS: Records = {}


def sample_lines(sample: Sequence[Mapping[str, Any]], records: Records = NO_RECORDS) -> list[str]:
    """Returns, for each record of the sample, its offset and what stays in its place.

    Where `records` (by partition and offset) has the record, its key and value follow, in short lines, which no narrow
    box cuts.
    """
    return [line for going in sample for line in _record_lines(going, records)]


def _record_lines(going: Mapping[str, Any], records: Records) -> list[str]:
    text = f"partition {going['partition']}, offset {going['offset']} goes"
    if "kept_offset" in going:  # a round that waits since an earlier version does not say it
        kept_offset = going["kept_offset"]
        text += (
            f"; offset {kept_offset} of the same key stays" if kept_offset is not None else "; nothing of its key stays"
        )
    record = records.get((going["partition"], going["offset"]))
    pieces = [f"key   {record.key}", f"value {record.value}"] if record else []
    return [text, *(f"{indent}{line}" for piece in pieces for indent, line in _wrapped(piece))]


def _wrapped(text: str) -> Iterator[tuple[str, str]]:
    """Yields (indent, line) of a text, in lines of at most LINE_CHARS; further ones stand under the first one's
    value."""
    yield "  ", text[: LINE_CHARS - 2]
    for start in range(LINE_CHARS - 2, len(text), LINE_CHARS - 8):
        yield "        ", text[start : start + LINE_CHARS - 8]

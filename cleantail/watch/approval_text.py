"""Says what a person is asked who is to approve a round: counts by log, which records would go, and where to see them.

Airflow keeps the question, so it holds offsets and nothing of what is in the records. The topic's page reads the
records when it is opened, and the command line when it asks (`cleantail.lake.records.shown_records`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cleantail.human import counted, instant
from cleantail.lake.records.shown_records import ShownRecord
from cleantail.log.round_state import EXPIRE
from cleantail.log.rules import LogMeasure
from cleantail.rounds.check_results import RemovedRecord
from cleantail.rounds.checked_round import CheckedRound

LINE_CHARS = 72
"""The width of the longest line of the sample."""
FENCE = "```"


def subject(checked: CheckedRound) -> str:
    """Returns one line: what would go, of which topic."""
    removed = sum(m.removed for m in _green(checked))
    what = "tombstones" if checked.kind == EXPIRE else "records"
    return f"{checked.topic}: {removed} {what} would go from {counted(len(checked.green), 'partition')}"


@dataclass(frozen=True, slots=True)
class Question:
    """Describes what stands around a question: until when (Unix ms) an answer is awaited, and where to see more.

    `records` is the page that shows the sample. `shown` is the digest that says what exactly an answer is for
    (cleantail.rounds.approval).
    """

    until_ms: int
    page: str
    data_docs: str
    records: str
    shown: str = ""


def body(checked: CheckedRound, question: Question | None = None) -> str:
    """Returns Markdown: why the round waits, counts, sample, until when, and what each answer does."""
    red = ", ".join(map(str, checked.red))
    held_back = [f"Held back whatever is answered, since a check is red: partition {red}."] if red else []
    return "\n\n".join(
        [
            f"Round `{checked.round}` ({checked.kind}), its clock {instant(checked.now_ms)} UTC: "
            f"{checked.checks_passed} of {checked.checks_total} checks passed.",
            *([_deadline(question), _links(question)] if question else []),
            *held_back,
            "**Why it waits**",
            _fenced([f"partition {hold.partition}: {hold.reason}" for hold in checked.holds]),
            "**What would go**",
            _fenced(count_lines(checked)),
            f"**A sample of it, and what stays in its place** ({counted(len(checked.sample), 'record')}"
            + (f": [look at the records]({question.records}))" if question and checked.sample else ")"),
            _fenced(sample_lines(checked.sample) or ["nothing would go"]),
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


def _green(checked: CheckedRound) -> list[LogMeasure]:
    return [checked.measure_of(partition) for partition in checked.green]


def count_lines(checked: CheckedRound) -> list[str]:
    """Returns a table with a line for each log that would be published: records in, dropped by reason, share,
    tombstones kept."""
    logs = _green(checked)
    reasons = sorted({reason for m in logs for reason, n in m.deleted.items() if n} | {"superseded", "expired"})
    head = ["partition", "records in", *reasons, "share", "tombstones kept"]
    rows = [
        [
            str(m.partition),
            str(m.records_in),
            *(str(m.deleted.get(reason, 0)) for reason in reasons),
            f"{100 * m.removed / m.records_in:.1f} %" if m.records_in else "-",
            str(m.tombstones_out),
        ]
        for m in logs
    ]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]]


Records = Mapping[tuple[int, int], ShownRecord]
NO_RECORDS: Records = {}


def sample_lines(sample: Sequence[RemovedRecord], records: Records = NO_RECORDS) -> list[str]:
    """Returns, for each record of the sample, its offset and what stays in its place.

    Where `records` (by partition and offset) has the record, its key and value follow, in short lines, which no narrow
    box cuts.
    """
    return [line for removed in sample for line in _record_lines(removed, records)]


def _record_lines(removed: RemovedRecord, records: Records) -> list[str]:
    kept = removed.kept_offset
    instead = f"offset {kept} of the same key stays" if kept is not None else "nothing of its key stays"
    head = f"partition {removed.partition}, offset {removed.offset} goes; {instead}"
    record = records.get((removed.partition, removed.offset))
    pieces = [f"key   {record.key}", f"value {record.value}"] if record else []
    return [head, *(f"{indent}{line}" for piece in pieces for indent, line in _wrapped(piece))]


def _wrapped(text: str) -> Iterator[tuple[str, str]]:
    """Yields (indent, line) of a text, in lines of at most LINE_CHARS; further ones stand under the first one's
    value."""
    yield "  ", text[: LINE_CHARS - 2]
    for start in range(LINE_CHARS - 2, len(text), LINE_CHARS - 8):
        yield "        ", text[start : start + LINE_CHARS - 8]

"""The question to the user who approves a round: counts by log, a sample of removed records, and links to see them.

Airflow stores the question, so it contains offsets but no content of records. The topic's page and the command line
read the records themselves (`cleantail.lake.records.shown_records`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cleantail.human import counted, instant
from cleantail.lake.records.shown_records import ShownRecord
from cleantail.log.round_state import EXPIRE
from cleantail.log.rules import LogMeasure
from cleantail.rounds.check_results import RemovedRecord, checks_text
from cleantail.rounds.checked_round import CheckedRound

LINE_CHARS = 72
"""Width of the longest line of the sample."""
FENCE = "```"


def subject(checked: CheckedRound) -> str:
    """Return one line: the topic, and the number of records that the round would remove."""
    removed = sum(m.removed for m in _green(checked))
    what = "tombstones" if checked.kind == EXPIRE else "records"
    return f"{checked.topic}: {removed} {what} would be removed from {counted(len(checked.green), 'partition')}"


@dataclass(frozen=True, slots=True)
class Question:
    """The surroundings of a question: the deadline (Unix ms), and pages with more details.

    `records`: the page that shows the sample. `shown`: the digest of the round as shown
    (cleantail.rounds.approval.shown_of).
    """

    until_ms: int
    page: str
    data_docs: str
    records: str
    shown: str = ""


def body(checked: CheckedRound, question: Question | None = None) -> str:
    """Return Markdown: why the round waits, counts, sample, deadline, and the effect of each answer."""
    red = ", ".join(map(str, checked.red))
    blocked = [f"Blocked regardless of the answer, because a check failed: partition {red}."] if red else []
    return "\n\n".join(
        [
            f"Round `{checked.round}` ({checked.kind}), planned {instant(checked.now_ms)} UTC: "
            f"{checks_text(checked.checks_passed, checked.checks_total, len(checked.measures))}.",
            *([_deadline(question), _links(question)] if question else []),
            *blocked,
            "**Why it waits**",
            _fenced(_reasons(checked)),
            "**Records that would be removed**",
            _fenced(count_lines(checked)),
            f"**A sample of them, and the record that replaces each** ({counted(len(checked.sample), 'record')}"
            + (f": [show the records]({question.records}))" if question and checked.sample else ")"),
            _fenced(sample_lines(checked.sample) or ["nothing would be removed"]),
            "Approve publishes exactly this. Reject drops it, and the partitions rest for cleantail.approval.pause.ms "
            "or until they are released.",
        ]
    )


def _reasons(checked: CheckedRound) -> list[str]:
    """Return why the round waits, as a line for each partition, or as one line if all partitions have the same
    reason."""
    shared = {hold.reason for hold in checked.holds}
    if len(shared) == 1 and len(checked.holds) == len(checked.green):
        return list(shared)
    return [f"partition {hold.partition}: {hold.reason}" for hold in checked.holds]


def _deadline(question: Question) -> str:
    return (
        f"**Answer until {instant(question.until_ms)} UTC.** Without an answer by then the round counts as "
        "rejected: nothing of it is published, and no record is removed."
    )


def _links(question: Question) -> str:
    """Return links to Cleantail's pages. They contain names from the configuration and no data."""
    links = f"[The topic's page]({question.page}) · [Data Docs of its checks]({question.data_docs})"
    return f"{links} · checksum of this round: `{question.shown}`" if question.shown else links


def _fenced(lines: Sequence[str]) -> str:
    """Return the lines as a block of code. No line can close the block, because none begins with the fence."""
    return "\n".join([f"{FENCE}text", *lines, FENCE])


def _green(checked: CheckedRound) -> list[LogMeasure]:
    return [checked.measure_of(partition) for partition in checked.green]


def count_lines(checked: CheckedRound) -> list[str]:
    """Return a table with a line for each log to publish: records in, dropped by reason, share, tombstones kept."""
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
    """Return the offset of each record of the sample, and the record that replaces it.

    If `records` (by partition and offset) has the record, its key and value follow in short lines.
    """
    return [line for removed in sample for line in _record_lines(removed, records)]


def _record_lines(removed: RemovedRecord, records: Records) -> list[str]:
    kept = removed.kept_offset
    instead = f"offset {kept} of its key stays" if kept is not None else "no record of its key stays"
    head = f"partition {removed.partition}, offset {removed.offset} dropped; {instead}"
    record = records.get((removed.partition, removed.offset))
    pieces = [f"key   {record.key}", f"value {record.value}"] if record else []
    return [head, *(f"{indent}{line}" for piece in pieces for indent, line in _wrapped(piece))]


def _wrapped(text: str) -> Iterator[tuple[str, str]]:
    """Yield (indent, line) of a text, in lines of at most LINE_CHARS.

    Further lines are indented below the first value.
    """
    yield "  ", text[: LINE_CHARS - 2]
    for start in range(LINE_CHARS - 2, len(text), LINE_CHARS - 8):
        yield "        ", text[start : start + LINE_CHARS - 8]

"""`status`: print the state of every partition.

A terminal gets a table if the lines fit, else a block for each partition. A pipe or a file always gets blocks, so that
the format that a script reads does not depend on the numbers.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cleantail.config.topic import Topic
from cleantail.errors import ConfigError
from cleantail.human import counted, duration, instant, one_line, size
from cleantail.kafka.read_plan import SourceLag
from cleantail.log.horizons import ReaderHold, hold_lines
from cleantail.log.log_state import LogState
from cleantail.log.source_position import ReadPosition, SourcePosition
from cleantail.log.triggers import RATIO, decide
from cleantail.watch.source_watch import Lag
from cleantail.watch.topic_states import TopicStatus, status_of, status_of_all, with_lags
from cleantail_cli import parameters
from cleantail_cli.command import Invocation, command
from cleantail_cli.output import ConsoleOutput, line_width, wrapped
from cleantail_cli.parameters import clock


@command(
    "status",
    parameters.optional_topic,
    parameters.now,
    examples=["cleantail status", "cleantail status customer-cdc --json"],
)
def status(call: Invocation, topic: str | None, now: int | None) -> int:
    """Show the state of every partition from metadata, and how far the table is behind its source.

    Without TOPIC it shows all topics. If one of them is broken, the others are shown and the exit code is 2. Bytes are
    estimates: the size of the data files times the share of records that are not deleted.
    """
    now_ms = clock(now)
    if topic:
        call.output.show(Status(with_lags([status_of(call.topic(topic), now_ms)], now_ms), now_ms))
        return 0
    with call.output.progress() as progress:
        progress("reading metadata")
        readable, broken = status_of_all(call.config, call.platform, now_ms, progress.counting)
    call.output.show(Status(with_lags(readable, now_ms), now_ms, broken))
    return ConfigError.exit_code if broken else 0


COLUMNS = (
    "partition",
    "log start",
    "first dirty",
    "first uncleanable",
    "log end",
    "records",
    "clean",
    "cleanable",
    "uncleanable",
    "active",
    "dirty ratio",
    "tombstones",
    "next horizon (UTC)",
)
LABEL_WIDTH = 12


@dataclass(frozen=True)
class Status:
    """Answer of `status`: every log with what it waits for, and the readers. `broken` follows on stderr."""

    topics: Sequence[TopicStatus]
    now_ms: int
    broken: Sequence[str] = ()

    def document(self) -> dict[str, Any]:
        logs_of = {t.topic.topic: [log_json(log, t.topic, self.now_ms) for log in t.logs] for t in self.topics}
        readers_of = {t.topic.topic: [asdict(hold) for hold in t.holds] for t in self.topics}
        sources = {t.topic.topic: asdict(t.source) for t in self.topics if t.source is not None}
        lags = {t.topic.topic: lag_json(t.lag) for t in self.topics if t.lag is not None}
        of_topics = {"topics": logs_of, "readers": readers_of, "sources": sources, "source_lags": lags}
        return {"now_ms": self.now_ms, **of_topics, "broken": list(self.broken)}

    def print_on(self, page: ConsoleOutput) -> None:
        for status in self.topics:
            empty = [f"{status.topic.topic}: no records yet"]
            page.line("\n".join(_topic_lines(status.topic, status.logs, self.now_ms) if status.logs else empty))
            if status.source is not None:
                page.line(f"  read from {_source(status.source)}, last {instant(status.source.read_at_ms)} UTC")
            if status.lag is not None:
                page.line(wrapped(f"  {lag_text(status.lag, self.now_ms)}"))
            print_holds(status.holds, page)
        for text in self.broken:
            page.error(text)


def _source(position: ReadPosition) -> str:
    if isinstance(position, SourcePosition):
        return f"{position.topic} in Kafka"
    return f"table {position.name} up to snapshot {position.snapshot_id}"


def lag_json(lag: Lag | str) -> dict[str, Any]:
    """Return how many offsets or snapshots are unread, since when (Unix ms), and what stops a read.

    Unread offsets are also listed by partition.
    """
    if isinstance(lag, str):
        return {"problem": lag}
    logs = {str(log.partition): log.behind for log in lag.logs} if isinstance(lag, SourceLag) else None
    partitions = {} if logs is None else {"partitions": logs}
    unit = "snapshots" if logs is None else "offsets"
    behind = {"behind": lag.behind, "unit": unit, "unread_since_ms": lag.unread_since_ms, "problem": lag.problem}
    return behind | partitions


def lag_text(lag: Lag | str, now_ms: int) -> str:
    if isinstance(lag, str):
        return f"its lag behind the source is unknown: {lag}"
    if lag.problem:
        return f"the next read of its source would stop: {lag.problem}"
    since_ms = lag.unread_since_ms
    waited = f", for up to {duration(now_ms - since_ms)}" if since_ms is not None and now_ms > since_ms else ""
    return f"{lag.text} behind its source{waited}" if lag.behind else "nothing is left to read in its source"


def print_holds(holds: Sequence[ReaderHold], page: ConsoleOutput) -> None:
    """Write a line for each reader and log, wrapped between words."""
    for line in hold_lines(holds):
        page.line(wrapped(line))


def log_json(log: LogState, topic: Topic, now_ms: int) -> dict[str, Any]:
    """Return all values of a log, computed ones included. Bytes are live bytes, times are Unix ms."""
    fields = asdict(log)
    fields["segments"] = [asdict(s) for s in log.segments]
    computed = ("dirty_ratio", "total_bytes", "active_bytes", "pending_tombstones", "next_horizon_ms")
    values = {name: getattr(log, name) for name in computed}
    return fields | values | {"reason": decide(log, topic.config, now_ms).reason}


def _topic_lines(topic: Topic, logs: Sequence[LogState], now_ms: int) -> list[str]:
    width = line_width()
    head = f"{topic.topic}  (table {topic.table})"
    table = _table([row_of(log) for log in logs])
    if not sys.stdout.isatty() or max(map(len, table)) > width:
        return [head, *(line for log in logs for line in block(log, topic, now_ms, width))]
    notes = [line for log in logs for line in _notes(log, topic, now_ms, width, f"partition {log.partition}")]
    return [head, *table, *notes]


def row_of(log: LogState) -> list[str]:
    """Return the numbers of a log in the order of COLUMNS; a dash if one is not known."""
    return [
        str(log.partition),
        str(log.log_start_offset),
        str(log.first_dirty_offset),
        str(log.first_uncleanable_offset),
        str(log.log_end_offset),
        str(log.records),
        size(log.clean_bytes),
        size(log.cleanable_bytes),
        size(log.young_bytes),
        size(log.active_bytes),
        f"{log.dirty_ratio:.3f}",
        str(log.pending_tombstones),
        "-" if log.next_horizon_ms is None else instant(log.next_horizon_ms),
    ]


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines with right-aligned columns, two blanks apart."""
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    return ["  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in (COLUMNS, *rows)]


def block(log: LogState, topic: Topic, now_ms: int, width: int) -> list[str]:
    """Return a partition as lines of a label and a text. Only a long name makes a line longer than `width`."""
    named = dict(zip(COLUMNS, row_of(log), strict=True))
    offsets = ", ".join(f"{name} {named[name]}" for name in COLUMNS[1:5])
    sections = ", ".join(f"{name} {named[name]}" for name in ("clean", "cleanable", "uncleanable", "active"))
    horizon = "" if log.next_horizon_ms is None else f", the next horizon is {named['next horizon (UTC)']} UTC"
    return [
        f"  partition {log.partition}",
        *_labelled("offsets", offsets, width),
        *_labelled("records", f"{log.records}, {counted(log.pending_tombstones, 'tombstone')} pending{horizon}", width),
        *_labelled("bytes", sections, width),
        *_labelled("dirty ratio", f"{named['dirty ratio']}, {RATIO} {topic.config.min_cleanable_dirty_ratio}", width),
        *_notes(log, topic, now_ms, width, "now"),
    ]


def _notes(log: LogState, topic: Topic, now_ms: int, width: int, label: str) -> list[str]:
    """Return what the log waits for, its warnings, and the branch of a failed round, each on its own line."""
    quarantine = log.state.quarantine
    lines = _labelled(label, decide(log, topic.config, now_ms).reason, width)
    lines += [line for text in log.warnings for line in _labelled("warning", text, width)]
    if quarantine is not None:
        since = f"since {instant(quarantine.since_ms)} UTC: {one_line(quarantine.reason)}"
        lines += _labelled("blocked", since, width)
        lines += [f"{'':4}{'branch':{LABEL_WIDTH}} {one_line(quarantine.branch)}"] if quarantine.branch else []
    return lines


def _labelled(label: str, text: str, width: int) -> list[str]:
    """Return lines of label and text, wrapped between words only: a name stays whole and can be copied."""
    room = max(width - LABEL_WIDTH - 5, 20)
    parts = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
    return [f"{'':4}{label if i == 0 else '':{LABEL_WIDTH}} {part}" for i, part in enumerate(parts)]

"""Records and pages of Data Docs that help a person decide about a round.

The page shows records that a waiting round would remove, and records that failed a check. The server reads them from
the table when a user opens the page. Data Docs are files below the topic's site.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path
from typing import TYPE_CHECKING

from cleantail.config.topic import Topic
from cleantail.errors import TableError
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.records.shown_records import MOST_RECORDS, ShownRecord, read_shown, snapshot_shown
from cleantail.rounds.check_results import CheckResult, RemovedRecord
from cleantail.rounds.past_rounds import CHECKED, PUBLISHED, LogRound, Round

if TYPE_CHECKING:
    from pyiceberg.table import Table


LOGS_SHOWN = 20
"""Maximum number of logs with records on one page. The link of a log shows only this log."""
Records = Mapping[int, ShownRecord]


@dataclass(frozen=True, slots=True)
class FailedCheck:
    check: CheckResult
    records: tuple[ShownRecord, ...]


@dataclass(frozen=True, slots=True)
class GoingRecord:
    """A record that a waiting round would remove, and the record that replaces it. None for an unreadable record."""

    going: RemovedRecord
    record: ShownRecord | None
    stays: ShownRecord | None


@dataclass(frozen=True, slots=True)
class LogRecords:
    """The records of one log in one round. `readable`: a branch still contains the checked snapshot."""

    partition: int
    readable: bool
    going: tuple[GoingRecord, ...]
    failed: tuple[FailedCheck, ...]


def round_named(rounds: Iterable[Round], name: str, kind: str) -> Round | None:
    """Return the newest round of the name. A round that was made again may have the name of an earlier round."""
    return next((r for r in rounds if (r.name, r.kind) == (name, kind)), None)


def records_of_round(topic: Topic, round_: Round, partition: int | None) -> tuple[LogRecords, ...]:
    """Return the logs of a round that have records to show, or one of them.

    Raises TableError if the table does not exist.
    """
    table = load_table(open_catalog(topic.platform), topic)
    if table is None:
        raise TableError(f"topic {topic.topic} has no table")
    logs = [log for log in round_.logs if partition in (None, log.partition) and (_failed(log) or log.sampled.records)]
    return tuple(_of_log(table, log) for log in logs[:LOGS_SHOWN])


def _failed(log: LogRound) -> list[CheckResult]:
    return [check for check in log.checks if not check.passed]


def _of_log(table: Table, log: LogRound) -> LogRecords:
    """Read one log. Reads its sample only while the round waits, because later there is no decision to make."""
    head = snapshot_shown(table, log.sampled.head_snapshot_id, log.outcome == PUBLISHED)
    offsets = [offset for check in _failed(log) for offset in check.offsets]
    records = _read(table, log.partition, offsets, head)
    failed = tuple(
        FailedCheck(check, tuple(records[offset] for offset in check.offsets if offset in records))
        for check in _failed(log)
    )
    going = _going(table, log, head) if log.outcome == CHECKED else ()
    return LogRecords(log.partition, head is not None, going, failed)


def _going(table: Table, log: LogRound, head: int | None) -> tuple[GoingRecord, ...]:
    sample = log.sampled.records
    base = log.sampled.base_snapshot_id if head is not None else None
    records = _read(table, log.partition, [going.offset for going in sample], base)
    kept_offsets = [going.kept_offset for going in sample if going.kept_offset is not None]
    kept = _read(table, log.partition, kept_offsets, head)
    return tuple(
        GoingRecord(g, records.get(g.offset), None if g.kept_offset is None else kept.get(g.kept_offset))
        for g in sample
    )


def _read(table: Table, partition: int, offsets: Iterable[int], snapshot_id: int | None) -> Records:
    if snapshot_id is None or table.snapshot_by_id(snapshot_id) is None:
        return {}
    shown_offsets = sorted(set(offsets))[:MOST_RECORDS]
    return {record.offset: record for record in read_shown(table, partition, shown_offsets, snapshot_id)}


_BODY = re.compile("<body[^<>]*>")
_COMMANDS = re.compile(r"<meta\b[^<>]*http-equiv[^<>]*>?", re.IGNORECASE)
"""Tags that redirect a browser or set its policies. They are removed, because only the server's headers may do this."""
_TITLE = re.compile("<title>([^<]*)</title>")
_TITLE_WITHIN_CHARS = 2000

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".ico": "image/x-icon",
    ".gif": "image/gif",
    ".jpeg": "image/jpeg",
    ".otf": "font/otf",
    ".ttf": "font/ttf",
}
"""Suffix -> type of the files that are served. Scripts are not served, because Data Docs load theirs from the
internet."""


def file_in(site: Path, path: str) -> Path | None:
    """Return the file at `path` in the site.

    Returns None if the file does not exist, is outside of the site (also by a link), or has a type that is not served.
    """
    if "\0" in path:
        return None
    file = (site / path).resolve()
    inside = file.is_relative_to(site.resolve())
    return file if inside and file.suffix in TYPES and file.is_file() else None


@dataclass(frozen=True, slots=True)
class DocsPage:
    """The page of a validation. `label`: partitions, status and suite. `kind`: the kind of the round."""

    path: str
    label: str
    kind: str = ""
    failed: bool = False


def pages_of(site: Path, rounds: Iterable[str]) -> dict[str, list[DocsPage]]:
    """Return round -> its pages, failed checks first. Rounds without pages are left out."""
    names = set(rounds)
    pages: dict[str, list[DocsPage]] = {}
    for suite in sorted(site.glob("validations/*")):
        for folder in suite.iterdir() if suite.is_dir() else ():
            if folder.name in names:
                files = sorted(folder.glob("*/*.html"))
                pages.setdefault(folder.name, []).extend(_page(site, file) for file in files)
    return {name: sorted(of_round, key=lambda page: not page.failed) for name, of_round in pages.items() if of_round}


def _page(site: Path, file: Path) -> DocsPage:
    """Parse the title, `topic · partition 0 · compact ROUND · suite · failed`."""
    path = str(file.relative_to(site))
    with file.open(errors="replace", encoding="utf-8") as text:
        title = _TITLE.search(text.read(_TITLE_WITHIN_CHARS))
    parts = unescape(title[1]).split(" · ") if title else []
    if len(parts) != 5:
        return DocsPage(path, path.split("/")[1])
    _, partitions, round_, suite, status = parts
    return DocsPage(path, f"{partitions} · {status} ({suite})", round_.split(" ")[0], status == "failed")


def framed(page: str, root: str, topic: str) -> str:
    """Add a style, and a link back to the topic, because the links of Great Expectations lead to the internet."""
    style = f'<link rel="stylesheet" href="{escape(root)}/static/data_docs.css"></head>'
    back = f'<p><a href="{escape(root)}/topics/{escape(topic)}#rounds">Back to {escape(topic)}</a></p>'
    page = _COMMANDS.sub("", page)
    return _BODY.sub(lambda body: body[0] + back, page.replace("</head>", style, 1), count=1)

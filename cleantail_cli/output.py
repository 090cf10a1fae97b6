"""Print the result of a command: lines and tables for people, or one JSON document for machines.

A command passes its reports to one of the two outputs. The output calls the method of its form on each report.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from cleantail.errors import CleantailError, printable
from cleantail_cli.long_work import SILENT, Progress, on_terminal

PIPE_COLUMNS = 100
"""Line length if stdout is not a terminal and COLUMNS is not set."""
FEWEST_COLUMNS = 40
VERDICTS = {"passed": "green", "failed": "red", "(broken)": "red"}
"""Table cells that are shown in colour -> the colour."""
COPIED = frozenset({"request", "snapshot"})
"""Columns of ids. They are as wide as the ids, so that people can copy them. Other columns fold."""
_OWN_WORDS = re.compile(r"\n(error|warning):", re.IGNORECASE)
"""Finds a line that begins like Cleantail's own errors and warnings."""


class Report(Protocol):
    """A command's answer in both forms."""

    def document(self) -> Any:
        """Return the answer for machines, of types that JSON has."""

    def print_on(self, page: ConsoleOutput) -> None:
        """Write the answer for people."""


@dataclass(frozen=True)
class Lines:
    """A report that is only lines for people. `json`: the answer for machines."""

    json: Any
    lines: Iterable[str]

    def document(self) -> Any:
        return self.json

    def print_on(self, page: ConsoleOutput) -> None:
        for line in self.lines:
            page.line(line)


class Output:
    """Base of both outputs: errors and warnings go to stderr in either form."""

    def show(self, report: Report) -> None:
        """Print the answer to stdout."""
        raise NotImplementedError

    def error(self, text: str) -> None:
        print(f"error: {safe(text)}", file=sys.stderr)

    def warning(self, text: str) -> None:
        """Warn on stderr, although the command did its work."""
        print(f"warning: {safe(text)}", file=sys.stderr)

    def note(self, text: str) -> None:
        """Write a note for people to stderr, which is not part of the answer."""

    def refuse(self, error: CleantailError) -> int:
        """Print the error that ended the command, and return the exit code."""
        self.error(str(error))
        return error.exit_code

    def progress(self) -> AbstractContextManager[Progress]:
        """Return a context with the function by which long work reports its progress."""
        return nullcontext(SILENT)

    def records_progress(self) -> AbstractContextManager[Progress]:
        """Return the same for work that prints records. Silent if the records are printed on the terminal."""
        return nullcontext(SILENT)


class ConsoleOutput(Output):
    """Lines and tables for people. It is the page that its reports write to."""

    def show(self, report: Report) -> None:
        report.print_on(self)

    def line(self, text: str) -> None:
        """Write a line of the answer to stdout."""
        print(safe(text))

    def paragraph(self, text: str) -> None:
        """Write a line of prose to stdout, on a terminal wrapped between words."""
        self.line(wrapped(text) if sys.stdout.isatty() else text)

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None, caption: str = ""
    ) -> None:
        """Write a table of the answer to stdout, as wide as the terminal. Long cells are folded, never cut off."""
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table
        from rich.text import Text

        # leaves out the spaces next to the lines if words of the heads would break
        head_width = sum(max(map(len, name.split()), default=0) for name in columns) + 3 * len(columns) + 1
        table = Table(
            title=escape(printable(title)) if title else None,
            caption=escape(caption) or None,
            caption_justify="left",
            padding=(0, int(head_width <= line_width())),
        )
        for name in columns:
            table.add_column(name, overflow="fold", no_wrap=name in COPIED)
        for row in rows:
            texts = [printable(str(cell)) for cell in row]
            table.add_row(*(Text(text, VERDICTS.get(text, "")) for text in texts))
        Console(width=line_width(), highlight=False).print(table)

    def note(self, text: str) -> None:
        print(safe(text), file=sys.stderr)

    def progress(self) -> AbstractContextManager[Progress]:
        return on_terminal()

    def records_progress(self) -> AbstractContextManager[Progress]:
        return nullcontext(SILENT) if sys.stdout.isatty() else on_terminal()


class JsonOutput(Output):
    """One document on one line of stdout for machines, and no progress."""

    def show(self, report: Report) -> None:
        print_json(report.document())

    def refuse(self, error: CleantailError) -> int:
        print_json({"ok": False, "error": str(error)})
        return super().refuse(error)


def print_json(document: Any) -> None:
    print(json.dumps(document, default=str))


def safe(text: str) -> str:
    """Return the text without control characters. No line of it can pass for one of Cleantail's errors or warnings."""
    return _OWN_WORDS.sub(r"\n  \1", printable(text))


def wrapped(text: str) -> str:
    """Return a line as several lines of at most the line width, broken only between words."""
    parts = textwrap.wrap(text, line_width(), break_long_words=False, break_on_hyphens=False, subsequent_indent="  ")
    return "\n".join(parts)


def line_width() -> int:
    """Return COLUMNS if it is a number, else the terminal's width, else PIPE_COLUMNS; at least FEWEST_COLUMNS."""
    return max(shutil.get_terminal_size((PIPE_COLUMNS, 0)).columns, FEWEST_COLUMNS)

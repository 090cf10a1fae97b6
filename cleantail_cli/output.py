"""Sends a command's answer out: lines and tables for people, or one JSON document for machines.

A command gets one of the two outputs and shows its reports to it. A report can make both forms, and makes only the one
that its output takes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cleantail.errors import CleantailError, printable
from cleantail_cli.long_work import SILENT, Progress, on_terminal

if TYPE_CHECKING:
    from rich.table import Table


PIPE_COLUMNS = 100
"""How long lines are where stdout is no terminal and COLUMNS says nothing."""
FEWEST_COLUMNS = 40


def line_width(env: Mapping[str, str] = os.environ) -> int:
    """Returns COLUMNS where that is a number, else the terminal's width, else that of a pipe."""
    variable = env.get("COLUMNS", "")
    if variable.isdigit() and int(variable) > 0:
        columns = int(variable)
    else:
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_COLUMNS
    return max(columns, FEWEST_COLUMNS)


def console() -> Console:
    """Makes the console for stdout, as wide as its lines may be."""
    return Console(width=line_width(), highlight=False)


class _PrintableTable(Table):
    """Is a table whose cells hold nothing that commands a terminal."""

    def add_row(self, *renderables: Any, **settings: Any) -> None:
        cells = (printable(cell) if isinstance(cell, str) else cell for cell in renderables)
        super().add_row(*cells, **settings)


def folding_table(*columns: str, title: str | None = None, caption: str | None = None) -> Table:
    """Makes an empty table whose cells go on in the next line where they are too long: nothing is cut off."""
    table = _PrintableTable(title=escape(title) if title is not None else None, caption=caption)
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


_OWN_WORDS = re.compile(r"\n(error|warning):", re.IGNORECASE)
"""Finds a line that begins as Cleantail's own errors and warnings do."""


class Page(Protocol):
    """Takes what a report writes for people."""

    def line(self, text: str) -> None:
        """Writes a line of the answer (stdout)."""

    def table(self, table: Table) -> None:
        """Writes a table of the answer (stdout), as wide as the terminal."""

    def warning(self, text: str) -> None:
        """Says what is not as it should be, though the command did its work (stderr)."""

    def error(self, text: str) -> None:
        """Says what went wrong (stderr)."""

    def note(self, text: str) -> None:
        """Says what is worth knowing and no part of the answer (stderr)."""


class Report(Protocol):
    """Is a command's answer in both forms."""

    def document(self) -> Any:
        """Returns the answer for machines, as what JSON can say."""

    def tell(self, page: Page) -> None:
        """Writes the answer for people."""


class Output(Protocol):
    """Takes a command's answer, and what it tells meanwhile."""

    def show(self, report: Report) -> None:
        """Shows the answer, in the one form or the other."""

    def error(self, text: str) -> None:
        """Says on stderr what is wrong, for people and machines."""

    def warning(self, text: str) -> None:
        """Says on stderr what is not as it should be, though the command does its work, for people and machines."""

    def note(self, text: str) -> None:
        """Says on stderr what only people need."""

    def refuse(self, error: CleantailError) -> int:
        """Says why the command did not do its work; returns the exit code."""

    def progress(self) -> AbstractContextManager[Progress]:
        """Returns what long work tells how far it is."""

    def records_progress(self) -> AbstractContextManager[Progress]:
        """Returns the same for work that writes records: nothing is drawn on a terminal that gets the records."""


def safe(text: str) -> str:
    """Returns a text as a terminal may show it. A name that others wrote begins no line as Cleantail's own words do."""
    return _OWN_WORDS.sub(r"\n  \1", printable(text))


class ConsoleOutput:
    """Is the output for people: lines and tables on stdout, whatever needs attention on stderr."""

    def show(self, report: Report) -> None:
        report.tell(self)

    def line(self, text: str) -> None:
        print(safe(text))

    def table(self, table: Table) -> None:

        console().print(table)

    def warning(self, text: str) -> None:
        print(f"warning: {safe(text)}", file=sys.stderr)

    def error(self, text: str) -> None:
        print(f"error: {safe(text)}", file=sys.stderr)

    def note(self, text: str) -> None:
        print(safe(text), file=sys.stderr)

    def refuse(self, error: CleantailError) -> int:
        self.error(str(error))
        return error.exit_code

    def progress(self) -> AbstractContextManager[Progress]:
        return on_terminal()

    def records_progress(self) -> AbstractContextManager[Progress]:
        return nullcontext(SILENT) if sys.stdout.isatty() else on_terminal()


class JsonOutput:
    """Is the output for machines: one document on one line of stdout. Errors are on stderr as well, progress
    nowhere."""

    def show(self, report: Report) -> None:
        print_json(report.document())

    def error(self, text: str) -> None:
        print(f"error: {safe(text)}", file=sys.stderr)

    def warning(self, text: str) -> None:
        print(f"warning: {safe(text)}", file=sys.stderr)

    def note(self, text: str) -> None:
        """Says nothing: the document has it."""

    def refuse(self, error: CleantailError) -> int:
        print_json({"ok": False, "error": str(error)})
        self.error(str(error))
        return error.exit_code

    def progress(self) -> AbstractContextManager[Progress]:
        return nullcontext(SILENT)

    def records_progress(self) -> AbstractContextManager[Progress]:
        return nullcontext(SILENT)


def print_json(document: Any) -> None:
    """Prints one document on one line."""
    print(json.dumps(document, default=str))

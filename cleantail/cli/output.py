"""Where an answer goes: lines and tables for people, or one JSON document for machines.

A command is given one of the two and shows reports to it. A report knows both of its forms, and only the one that is
asked for is made.
"""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from cleantail.cli.progress import SILENT, Progress, on_terminal
from cleantail.errors import CleantailError

if TYPE_CHECKING:
    from rich.table import Table


class Page(Protocol):
    """What a report writes on for people."""

    def line(self, text: str) -> None:
        """A line of the answer (stdout)."""

    def table(self, table: Table) -> None:
        """A table of the answer (stdout), as wide as the terminal."""

    def warning(self, text: str) -> None:
        """What is not as it should be, though the command did its work (stderr)."""

    def error(self, text: str) -> None:
        """What went wrong (stderr)."""

    def note(self, text: str) -> None:
        """What is worth knowing and no part of the answer (stderr)."""


class Report(Protocol):
    """A command's answer in both forms."""

    def document(self) -> Any:
        """The answer for machines, as what JSON can say."""

    def tell(self, page: Page) -> None:
        """Writes the answer for people."""


class Output(Protocol):
    """What a command answers to."""

    def show(self, report: Report) -> None:
        """The answer, in the one form or the other."""

    def error(self, text: str) -> None:
        """Something is wrong: on stderr, for people and machines."""

    def warning(self, text: str) -> None:
        """Something is not as it should be, though the command does its work: on stderr, for people and machines."""

    def note(self, text: str) -> None:
        """For people only, on stderr."""

    def refuse(self, error: CleantailError) -> int:
        """Says why the command did not do its work; returns the exit code."""

    def progress(self) -> AbstractContextManager[Progress]:
        """What long work tells how far it is."""

    def records_progress(self) -> AbstractContextManager[Progress]:
        """The same while records go to stdout: none where they go to the terminal that it would be drawn on."""


class ConsoleOutput:
    """For people: lines and tables on stdout, whatever needs attention on stderr."""

    def show(self, report: Report) -> None:
        report.tell(self)

    def line(self, text: str) -> None:
        print(text)

    def table(self, table: Table) -> None:
        from cleantail.cli.console import console

        console().print(table)

    def warning(self, text: str) -> None:
        print(f"warning: {text}", file=sys.stderr)

    def error(self, text: str) -> None:
        print(f"error: {text}", file=sys.stderr)

    def note(self, text: str) -> None:
        print(text, file=sys.stderr)

    def refuse(self, error: CleantailError) -> int:
        self.error(str(error))
        return error.exit_code

    def progress(self) -> AbstractContextManager[Progress]:
        return on_terminal()

    def records_progress(self) -> AbstractContextManager[Progress]:
        return nullcontext(SILENT) if sys.stdout.isatty() else on_terminal()


class JsonOutput:
    """For machines: one document on one line of stdout. Errors are on stderr as well, progress nowhere."""

    def show(self, report: Report) -> None:
        print_json(report.document())

    def error(self, text: str) -> None:
        print(f"error: {text}", file=sys.stderr)

    def warning(self, text: str) -> None:
        print(f"warning: {text}", file=sys.stderr)

    def note(self, text: str) -> None:
        """Nothing: the document has it."""

    def refuse(self, error: CleantailError) -> int:
        print_json({"ok": False, "error": str(error)})
        self.error(str(error))
        return error.exit_code

    def progress(self) -> AbstractContextManager[Progress]:
        return nullcontext(SILENT)

    def records_progress(self) -> AbstractContextManager[Progress]:
        return nullcontext(SILENT)


def print_json(document: Any) -> None:
    """One document on one line."""
    print(json.dumps(document, default=str))

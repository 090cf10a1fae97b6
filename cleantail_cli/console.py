"""Says how wide lines for people are, and makes tables of that width."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cleantail.errors import printable

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

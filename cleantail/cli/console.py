"""How the command line prints: JSON for machines, lines of a known width for people, progress on stderr."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

PIPE_COLUMNS = 100
"""How long lines are where stdout is no terminal and COLUMNS says nothing."""
FEWEST_COLUMNS = 40


def print_json(document: Any) -> None:
    """One document on one line."""
    print(json.dumps(document, default=str))


def line_width(env: Mapping[str, str] = os.environ) -> int:
    """COLUMNS where it is a number, else the terminal's width, else that of a pipe."""
    given = env.get("COLUMNS", "")
    if given.isdigit() and int(given) > 0:
        columns = int(given)
    else:
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_COLUMNS
    return max(columns, FEWEST_COLUMNS)


def console() -> Console:
    """For stdout, as wide as its lines may be."""
    return Console(width=line_width(), highlight=False)


def folding_table(*columns: str, title: str | None = None, caption: str | None = None) -> Table:
    """An empty table whose cells go on in the next line where they are too long: nothing is cut off."""
    table = Table(title=escape(title) if title is not None else None, caption=caption)
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


@contextmanager
def progress(for_machines: bool) -> Iterator[Callable[[str], None]]:
    """A bar on stderr while long work runs; each call names the step. One line a step where stderr is no terminal."""
    if for_machines:
        yield lambda _: None
        return
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        started = time.monotonic()
        yield lambda text: console.print(f"{time.monotonic() - started:6.1f}s  {text}", markup=False)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(24), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda text: bar.update(task, description=text)

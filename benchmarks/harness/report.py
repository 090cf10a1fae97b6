"""A benchmark's table of medians and ratios, printed and written with the machine and the versions."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.harness.machine import machine, versions

Value = str | int | float | None
RESULTS = Path(__file__).parents[1] / "results"
NOTHING = "-"
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `kind` is the form of its values: text, count, seconds, ratio, percent (of 1), bytes or
    rate (bytes/s)."""

    name: str
    kind: str = "seconds"


@dataclass(frozen=True, slots=True)
class Table:
    """The result of one benchmark. Every row has one value for each column; None is shown as a dash."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    notes: tuple[str, ...] = ()

    def texts(self) -> list[list[str]]:
        return [
            [shown(value, column.kind) for value, column in zip(row, self.columns, strict=True)] for row in self.rows
        ]


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of repetitions of the same work in one process. The first one is cold: it includes JIT and class
    loading."""

    seconds: tuple[float, ...]

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Times:
        return cls(tuple(seconds))

    @property
    def cold(self) -> float:
        return self.seconds[0]

    @property
    def warm(self) -> float:
        """Return the median of the repetitions after the first. If there is only one, return it."""
        return median(self.seconds[1:] or self.seconds)

    @property
    def spread(self) -> str:
        """Return the fastest and the slowest of the warm repetitions."""
        warm = self.seconds[1:] or self.seconds
        return f"{min(warm):.2f} to {max(warm):.2f}"

    def __add__(self, other: Times) -> Times:
        """Add the seconds of each repetition, so that the median is a median of sums."""
        return Times(tuple(a + b for a, b in zip(self.seconds, other.seconds, strict=True)))


def median(values: Sequence[float]) -> float:
    """Return the median. Raises ValueError if nothing was measured."""
    if not values:
        raise ValueError("no repetition was measured")
    return float(statistics.median(values))


def ratio(value: float, base: float) -> float | None:
    """Return value / base. None if `base` is zero or missing."""
    return value / base if base else None


def shown(value: Value, kind: str) -> str:
    """Return a value in the form of its kind."""
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value
    if kind in ("bytes", "rate"):
        return _size(value) + ("/s" if kind == "rate" else "")
    forms = {"count": "{:,.0f}", "ratio": "{:.2f}x", "percent": "{:.3%}", "seconds": "{:.2f}"}
    return forms[kind].format(value)


def _size(size: float) -> str:
    for unit in UNITS:
        if abs(size) < 1024 or unit == UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable: the last unit returns")


def row_text(columns: Sequence[Column], row: Sequence[Value]) -> str:
    """Return a row in one line, to show before the whole table is measured."""
    return ", ".join(f"{c.name} {shown(value, c.kind)}" for c, value in zip(columns, row, strict=True))


def print_table(console: Console, table: Table) -> None:
    printed = RichTable(title=table.title)
    for column in table.columns:
        printed.add_column(column.name, justify="left" if column.kind == "text" else "right", overflow="fold")
    for row in table.texts():
        printed.add_row(*row)
    console.print(printed)
    for note in table.notes:
        console.print(f"- {note}", markup=False, soft_wrap=True)


def markdown(table: Table, environment: Mapping[str, str]) -> str:
    """Return the table with its notes, the machine and the versions."""
    names = [column.name for column in table.columns]
    rule = ["---" if column.kind == "text" else "---:" for column in table.columns]
    lines = [f"# {table.title}", "", *(_line(row) for row in (names, rule, *table.texts())), ""]
    lines += [f"- {note}" for note in table.notes]
    lines += ["", "Measured on:", "", *(f"- {name}: {text}" for name, text in environment.items())]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def as_json(table: Table, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the table as JSON: column name -> unrounded value."""
    names = [column.name for column in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in table.rows]
    kinds = {column.name: column.kind for column in table.columns}
    return {
        "name": table.name,
        "title": table.title,
        "kinds": kinds,
        "rows": rows,
        "notes": list(table.notes),
        "measured_on": dict(environment),
    }


def write_results(table: Table, directory: Path = RESULTS) -> list[Path]:
    """Write `NAME.md` and `NAME.json`, and replace older ones. Return both paths."""
    environment = machine() | versions()
    directory.mkdir(parents=True, exist_ok=True)
    page, data = directory / f"{table.name}.md", directory / f"{table.name}.json"
    page.write_text(markdown(table, environment))
    data.write_text(json.dumps(as_json(table, environment), indent=1) + "\n")
    return [page, data]

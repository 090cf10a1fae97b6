"""Says what `adopt` answers: what a table is, and what is changed or why it cannot be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cleantail.adopt import adoption
from cleantail.adopt.adoption import ForeignTable
from cleantail.adopt.equality_deletes import CONVERTED_JSON, Converted
from cleantail.config.topic_table import Columns
from cleantail.human import counted
from cleantail.lake.runs.foreign_deletes import ForeignDeletes
from cleantail_cli.output import Page


@dataclass(frozen=True)
class Adopted:
    """Says what `table` is, and what adopting it changes. `text` is the YAML that is written, "" where that is
    there."""

    table: str
    topic: str
    foreign: ForeignTable
    paths: Mapping[str, str]
    columns: Columns | None
    upgrade: bool
    unseen: str
    problems: Sequence[str] = ()
    changes: Sequence[str] = ()
    dry_run: bool = False
    text: str = ""

    @property
    def refused(self) -> bool:
        """Returns whether the table stays as it is because something is wrong with it."""
        return bool(self.problems) or self.columns is None

    @property
    def refusal(self) -> str:
        """Says why the table stays as it is."""
        return f"{self.table} cannot be adopted; nothing was changed:\n- " + "\n- ".join(self.problems)

    def document(self) -> dict[str, Any]:
        head = {"ok": False, "error": self.refusal} if self.refused else {}
        notes = [] if self.refused else self._notes()
        changes, problems = list(self.changes), list(self.problems)
        more = {"topic": self.topic, "mapped": dict(self.paths), "problems": problems, "changes": changes}
        return head | asdict(self.foreign) | {"records": self.foreign.records} | more | {"notes": notes}

    def tell(self, page: Page) -> None:
        page.line("\n".join(adoption.describe(self.foreign, self.paths)))
        for text in self._notes():
            page.line(f"note: {text}")
        if not self.refused:
            verb = "would be changed" if self.dry_run else "changed"
            changes = "; ".join(self.changes) or "nothing, it is adopted already"
            page.line(f"topic {self.topic}; {verb}: {changes}")
        if self.dry_run and self.text:
            page.line(self.text.removesuffix("\n"))

    def _notes(self) -> list[str]:
        notes = adoption.advice(self.foreign, self.columns, self.upgrade) if self.columns else []
        unseen = f"{self.unseen}: whether their folders are this table's, too, is not known"
        return notes + ([unseen] if self.unseen else [])


@dataclass(frozen=True)
class DeletesConverted:
    """Says which deletes of a table are not of one data file each, and what they became; None where nothing was
    changed."""

    table: str
    found: ForeignDeletes
    done: Converted | None

    def document(self) -> dict[str, Any]:
        counts = {f"found_{name}": count for name, count in asdict(self.found).items()}
        return {"table": self.table, "converted": self.done is not None, **counts} | (
            dict(CONVERTED_JSON.plain(self.done)) if self.done else {}
        )

    def tell(self, page: Page) -> None:
        foreign = self.found
        if not foreign.any:
            page.line(f"{self.table}: every delete is of one data file; nothing was changed")
            return
        rows = counted(foreign.equality_rows, "row")
        shared = counted(foreign.shared_position_deletes, "position delete file")
        deletes = counted(foreign.equality_deletes, "equality delete file")
        page.line(f"{self.table}: {deletes} with {rows}, {shared} of several data files")
        page.line(_done(self.done) if self.done else "nothing was changed: --dry-run")


def _done(done: Converted) -> str:
    hidden, files = counted(done.hidden_records, "record"), counted(done.data_files, "data file")
    seen = f"readers see {counted(done.live_records, 'record')}, as before"
    return f"converted, as snapshot {done.snapshot_id}: they hide {hidden} in {files}; {seen}"

"""Says what `upgrade` answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape

from cleantail.cli.console import folding_table
from cleantail.cli.output import Page
from cleantail.human import counted
from cleantail.upgrade.changes import By, Change, left_for_people

NOT_LOOKED = "tables were not looked at, since the configuration cannot be read yet"


@dataclass(frozen=True)
class Upgraded:
    """Holds each change with who makes it. `done`: whether those of the command were made; `kept`: where what it has
    replaced is kept, None where nothing was; `looked`: whether tables were looked at."""

    changes: Sequence[Change]
    done: bool
    kept: Path | None
    looked: bool

    @property
    def left(self) -> bool:
        return left_for_people(self.changes)

    def document(self) -> dict[str, Any]:
        return {
            "ok": not self.left,
            "done": self.done,
            "kept": None if self.kept is None else str(self.kept),
            "tables_looked_at": self.looked,
            "changes": [asdict(change) for change in self.changes],
        }

    def tell(self, page: Page) -> None:
        if self.changes:
            table = folding_table("area", "what", "change", "by", title=counted(len(self.changes), "change"))
            for change in self.changes:
                row = (change.area, change.subject, change.text, self._by(change.by))
                table.add_row(*(escape(str(text)) for text in row))
            page.table(table)
        if not self.looked:
            page.warning(NOT_LOOKED)
        if not any(change.by is By.UPGRADE for change in self.changes):
            page.line("nothing of an earlier version is left for this command to change")
        if self.kept is not None:
            page.line(f"what was replaced is kept in {self.kept}")
        if self.left:
            page.warning("some of it only a person can do: see the rows that say you")

    def _by(self, by: By) -> str:
        words = {By.UPGRADE: "done" if self.done else "cleantail upgrade", By.ITSELF: "the next run", By.PERSON: "you"}
        return words[by]

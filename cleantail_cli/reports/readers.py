"""Says what `reader` answers, and where `latest` says to go on from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape

from cleantail.config.topic import Topic
from cleantail.human import instant
from cleantail.lake.records.latest import Latest
from cleantail.log.horizons import Reader
from cleantail_cli.console import folding_table
from cleantail_cli.output import Output, Page


@dataclass(frozen=True)
class Readers:
    """Is the answer of `reader`: a row for each reader and log."""

    topic: Topic
    readers: Sequence[Reader]

    def document(self) -> dict[str, Any]:
        return {"topic": self.topic.topic, "readers": [asdict(r) for r in self.readers]}

    def tell(self, page: Page) -> None:
        if not self.readers:
            page.line(f"{self.topic.topic}: no readers are registered")
            return
        title = f"readers of {self.topic.topic}"
        table = folding_table("reader", "partition", "next offset", "said at (UTC)", title=title)
        for r in self.readers:
            table.add_row(escape(r.name), str(r.partition), str(r.offset), instant(r.at_ms))
        page.table(table)


def tell_positions(topic: Topic, state: Latest, file: Path | None, output: Output) -> None:
    """Writes the snapshot and the next offset of every log to a file, and says them to a person on stderr."""
    if file is not None:
        offsets = {str(p): offset for p, offset in sorted(state.positions.items())}
        document = {"topic": topic.topic, "snapshot_id": state.snapshot_id, "positions": offsets}
        file.write_text(json.dumps(document) + "\n", encoding="utf-8")
    offsets_text = ", ".join(f"{p} at {offset}" for p, offset in sorted(state.positions.items()))
    where = (
        f"partition {offsets_text}" if offsets_text else "the start of every partition, the table has no records yet"
    )
    output.note(f"snapshot {state.snapshot_id}; go on from: {where}")

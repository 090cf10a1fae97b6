"""Says what `jars` answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cleantail.human import counted
from cleantail.lake.jars.jar_list import Jar
from cleantail_cli.output import Page


@dataclass(frozen=True)
class Jars:
    """Holds the jars of a version of Spark, and where they are; `directory` is None where the cluster has them."""

    spark: str
    directory: Path | None
    jars: Sequence[Jar]
    fetched: bool

    def document(self) -> dict[str, Any]:
        return {
            "ok": True,
            "spark": self.spark,
            "directory": None if self.directory is None else str(self.directory),
            "fetched": self.fetched,
            "jars": [{"name": jar.name, "sha256": jar.sha256, "bytes": jar.bytes} for jar in self.jars],
        }

    def tell(self, page: Page) -> None:
        if self.directory is None:
            page.line("platform.spark leaves the jars to the cluster: none are fetched")
            return
        for jar in self.jars:
            page.line(jar.name)
        what = "fetched, and compared" if self.fetched else "there, and compared"
        page.line(f"Spark {self.spark}: {counted(len(self.jars), 'jar')} {what} by SHA-256, in {self.directory}")

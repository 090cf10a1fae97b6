"""Says where a topic's Data Docs are below CLEANTAIL_HOME, and whether this version has written them."""

from __future__ import annotations

from pathlib import Path

FOLDER = "data_docs"
"""It has a folder for each topic, with what Great Expectations calls a project."""
GENERATOR = '<meta name="generator" content="cleantail data docs 2">'
"""What tells our pages from those of earlier versions, which are built anew once."""
HEAD_CHARS = 2000
"""In the beginning of a page it says who made it."""


def uncommitted_of(home: Path, topic: str) -> Path:
    """Returns the folder of a topic's results and pages: the names are those that Great Expectations gives."""
    return home / FOLDER / topic / "gx" / "uncommitted"


def results_of(home: Path, topic: str) -> Path:
    """Returns the folder of a topic's validation results, of which pages are made."""
    return uncommitted_of(home, topic) / "validations"


def site_of(home: Path, topic: str) -> Path:
    """Returns the root of a topic's pages. `topic` is the name of a configured topic, and no text of a client."""
    return uncommitted_of(home, topic) / "data_docs" / "local_site"


def is_ours(index: Path) -> bool:
    """Returns whether this version has written the index of a site; False where there is none."""
    return index.exists() and GENERATOR in index.read_text(errors="replace")[:HEAD_CHARS]


def of_earlier_version(home: Path) -> list[str]:
    """Returns the topics whose pages an earlier version has written, by name."""
    folders = sorted((home / FOLDER).glob("*/gx"))
    indexes = {folder.parent.name: site_of(home, folder.parent.name) / "index.html" for folder in folders}
    return [topic for topic, index in indexes.items() if index.exists() and not is_ours(index)]

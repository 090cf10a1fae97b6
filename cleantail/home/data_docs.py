"""Where a topic's Data Docs are below CLEANTAIL_HOME."""

from __future__ import annotations

from pathlib import Path

FOLDER = "data_docs"
"""It has a folder for each topic, with what Great Expectations calls a project."""
GENERATOR = '<meta name="generator" content="cleantail data docs 2">'
"""Marks a page as one that Cleantail wrote."""
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

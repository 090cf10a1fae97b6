"""The site of a topic's Data Docs: pages of its validations, and their index.

Great Expectations' own builder copies a megabyte of fonts and pictures for each topic, and looks at every page that it
has ever written; so ours writes what is new, and an index of the newest.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from spark_jobs.quality.data_docs_html import page
from spark_jobs.quality.data_docs_pages import ListedPage, index_content, validation_content
from spark_jobs.quality.results_store import place_of, write_whole

NEWEST = 300
"""Validations on the index; older pages stay where they are."""


def write_pages(site: Path, topic: str, validations: Iterable[Any]) -> list[Path]:
    """Writes the pages of these validations, and the index again. Returns the pages."""
    index, written = site / "index.html", []
    for validation in validations:
        html = page(validation_content(topic, validation))
        file = site / "validations" / place_of(validation, ".html")
        write_whole(file, html)
        written.append(file)
    write_whole(index, page(index_content(topic, [ListedPage.of(site, file) for file in _newest(site)])))
    return written


def _newest(site: Path) -> list[Path]:
    """Returns the newest pages, newest first, by the time in their path: validations/SUITE/ROUND/TIME/BATCH.html."""
    pages = (site / "validations").glob("*/*/*/*.html")
    return sorted(pages, key=lambda file: file.parts[-2], reverse=True)[:NEWEST]

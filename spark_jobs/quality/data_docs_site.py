"""The site of a topic's Data Docs: pages of its validations, and their index.

Great Expectations' own builder copies a megabyte of fonts and pictures for each topic, and looks at every page that it
has ever written; so ours writes what is new, and an index of the newest.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from cleantail.home.data_docs import is_ours, results_of, site_of
from spark_jobs.quality.data_docs_html import page
from spark_jobs.quality.data_docs_pages import ListedPage, index_content, validation_content
from spark_jobs.quality.results_store import place_of, read_result, write_whole

logger = logging.getLogger("cleantail.expectations")

NEWEST = 300
"""Validations on the index; older pages stay where they are."""


def write_pages(site: Path, topic: str, store: Path, validations: Iterable[Any]) -> list[Path]:
    """Writes the pages of these validations and the index; those of an earlier version are all written anew. Returns
    the pages."""
    index, written = site / "index.html", []
    for validation in validations if is_ours(index) else _stored(store):
        html = page(validation_content(topic, validation))
        file = site / "validations" / place_of(validation, ".html")
        write_whole(file, html)
        written.append(file)
    write_whole(index, page(index_content(topic, [ListedPage.of(site, file) for file in _newest(site)])))
    return written


def renew_pages(home: Path, topic: str) -> None:
    """Makes the pages of a topic anew, from all results that are kept, where an earlier version has made them."""
    write_pages(site_of(home, topic), topic, results_of(home, topic), ())


def _stored(store: Path) -> Iterator[Any]:
    """Yields every validation that can be read: a killed run of an earlier version may have left half of one."""
    for file in sorted(store.glob("*/*/*/*.json")):
        try:
            yield read_result(file)
        except Exception as e:  # half a file shows in many ways
            logger.warning("%s is no validation result: %s", file, type(e).__name__)


def _newest(site: Path) -> list[Path]:
    """Returns the newest pages, newest first, by the time in their path: validations/SUITE/ROUND/TIME/BATCH.html."""
    pages = (site / "validations").glob("*/*/*/*.html")
    return sorted(pages, key=lambda file: file.parts[-2], reverse=True)[:NEWEST]

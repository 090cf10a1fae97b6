"""Data Docs in a store (platform.data_docs): copies of the pages, and an index of all that were ever copied there.

The driver writes them, by the properties and the login with which it opens the files of the warehouse. A driver on a
cluster begins with an empty folder each time, so the list of the pages lies in the store too, beside the index.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cleantail.codec import Codec
from cleantail.config.platform import Platform
from cleantail.errors import TableError
from cleantail.lake.exchange import read_document, write_document
from spark_jobs.quality.data_docs_html import page
from spark_jobs.quality.data_docs_pages import ListedPage, index_content
from spark_jobs.quality.data_docs_site import NEWEST

LIST = "pages.json"
_LIST_JSON: Codec[tuple[ListedPage, ...]] = Codec(tuple[ListedPage, ...])
logger = logging.getLogger("cleantail.expectations")


@dataclass(frozen=True)
class DocsStore:
    """Describes the folder of one topic's Data Docs in a store."""

    platform: Platform
    env: Mapping[str, str]
    topic: str

    @classmethod
    def of(cls, platform: Platform, env: Mapping[str, str], topic: str) -> DocsStore | None:
        """Returns the topic's folder, None where the platform names no store."""
        return cls(platform, env, topic) if platform.data_docs else None

    @property
    def index(self) -> str:
        """Returns the address of the index."""
        return self._address("index.html")

    def copy(self, site: Path, written: Iterable[Path]) -> None:
        """Copies these pages of a site, and lists them in the index of the store. A failure of it fails no round."""
        try:
            self._copy(site, list(written))
        except Exception as error:  # whatever the store's client raises; its text is of the store and not ours
            logger.warning("Data Docs were not copied to %s: %s", self.platform.data_docs, type(error).__name__)

    def _copy(self, site: Path, written: list[Path]) -> None:
        # 1. the pages, so that no index lists one that is not there
        for file in written:
            self._write(file.relative_to(site).as_posix(), file.read_text(encoding="utf-8"))
        # 2. the list, newest first
        pages = {listed.path: listed for listed in self._listed()}
        pages |= {listed.path: listed for listed in (ListedPage.of(site, file) for file in written)}
        newest = sorted(pages.values(), key=lambda listed: listed.path.split("/")[-2], reverse=True)[:NEWEST]
        self._write(LIST, _LIST_JSON.text(tuple(newest)))
        # 3. the index
        self._write("index.html", page(index_content(self.topic, newest)))

    def _listed(self) -> tuple[ListedPage, ...]:
        text = read_document(self.platform, self.env, self._address(LIST))
        try:
            return _LIST_JSON.value(text or "[]", LIST)
        except TableError:  # half of one, which a killed driver has left
            return ()

    def _write(self, name: str, text: str) -> None:
        write_document(self.platform, self.env, self._address(name), text)

    def _address(self, name: str) -> str:
        return f"{(self.platform.data_docs or '').rstrip('/')}/{self.topic}/{name}"

"""Serves Data Docs on the page: the files below one topic's site, and which of them belong to a round."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path

_BODY = re.compile("<body[^<>]*>")
_COMMANDS = re.compile(r"<meta\b[^<>]*http-equiv[^<>]*>?", re.IGNORECASE)
"""What tells a browser to go elsewhere, or by which rules to read the page: only the server's headers do."""
_TITLE = re.compile("<title>([^<]*)</title>")
_TITLE_WITHIN_CHARS = 2000

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".ico": "image/x-icon",
    ".gif": "image/gif",
    ".jpeg": "image/jpeg",
    ".otf": "font/otf",
    ".ttf": "font/ttf",
}
"""What is served, by suffix. No scripts: Data Docs show data, and their own scripts come from the internet."""


def file_in(site: Path, path: str) -> Path | None:
    """Returns the file at `path` in the site.

    Returns None where there is none, where it lies outside of the site (also by a link), or is of a type not served.
    """
    if "\0" in path:
        return None
    file = (site / path).resolve()
    inside = file.is_relative_to(site.resolve())
    return file if inside and file.suffix in TYPES and file.is_file() else None


@dataclass(frozen=True, slots=True)
class DocsPage:
    """Describes a validation's page in the site. `label` says partitions, status and suite, `kind` what its round did.

    Pages of earlier versions say none of it.
    """

    path: str
    label: str
    kind: str = ""
    failed: bool = False


def pages_of(site: Path, rounds: Iterable[str]) -> dict[str, list[DocsPage]]:
    """Returns, by round, its pages in the site, those of failed checks first; rounds without one are left out."""
    names = set(rounds)
    pages: dict[str, list[DocsPage]] = {}
    for suite in sorted(site.glob("validations/*")):
        for folder in suite.iterdir() if suite.is_dir() else ():
            if folder.name in names:
                files = sorted(folder.glob("*/*.html"))
                pages.setdefault(folder.name, []).extend(_page(site, file) for file in files)
    return {name: sorted(of_round, key=lambda page: not page.failed) for name, of_round in pages.items() if of_round}


def _page(site: Path, file: Path) -> DocsPage:
    """Describes a page by its title (spark_jobs.quality.data_docs_pages).

    The title is `topic · partition 0 · compact ROUND · suite · failed`.
    """
    path = str(file.relative_to(site))
    with file.open(errors="replace", encoding="utf-8") as text:
        title = _TITLE.search(text.read(_TITLE_WITHIN_CHARS))
    parts = unescape(title[1]).split(" · ") if title else []
    if len(parts) != 5:
        return DocsPage(path, path.split("/")[1])
    _, partitions, round_, suite, status = parts
    return DocsPage(path, f"{partitions} · {status} ({suite})", round_.split(" ")[0], status == "failed")


def framed(page: str, root: str, topic: str) -> str:
    """Adds a style to a page, and a way back: what Great Expectations links to is on the internet."""
    style = f'<link rel="stylesheet" href="{escape(root)}/static/data_docs.css"></head>'
    back = f'<p><a href="{escape(root)}/topics/{escape(topic)}#rounds">Back to {escape(topic)}</a></p>'
    page = _COMMANDS.sub("", page)
    return _BODY.sub(lambda body: body[0] + back, page.replace("</head>", style, 1), count=1)

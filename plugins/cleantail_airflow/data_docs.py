"""Data Docs as the page serves them: files below one topic's site, and which of them belong to a round."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from pathlib import Path

_BODY = re.compile("<body[^<>]*>")

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


def site_of(home: Path, topic: str) -> Path:
    """The root of a topic's Data Docs. `topic` is the name of a configured topic, never just what a client sent."""
    return home / "data_docs" / topic / "gx" / "uncommitted" / "data_docs" / "local_site"


def file_in(site: Path, path: str) -> Path | None:
    """The file at `path` in the site; None where there is none, it lies outside (also by a link), or is not served."""
    if "\0" in path:
        return None
    file = (site / path).resolve()
    inside = file.is_relative_to(site.resolve())
    return file if inside and file.suffix in TYPES and file.is_file() else None


def pages_of(site: Path, rounds: Iterable[str]) -> dict[str, list[str]]:
    """Round -> paths of its pages in the site, oldest first; rounds without one are left out."""
    wanted = set(rounds)
    pages: dict[str, list[str]] = {}
    for suite in sorted(site.glob("validations/*")):
        for folder in suite.iterdir() if suite.is_dir() else ():
            if folder.name in wanted:
                found = sorted(folder.glob("*/*.html"))
                pages.setdefault(folder.name, []).extend(str(file.relative_to(site)) for file in found)
    return {name: found for name, found in pages.items() if found}


def framed(page: str, root: str, topic: str) -> str:
    """A page with a style that it can be read by, and a way back: its own are on the internet."""
    style = f'<link rel="stylesheet" href="{escape(root)}/static/data_docs.css"></head>'
    back = f'<p><a href="{escape(root)}/topics/{escape(topic)}#rounds">Back to {escape(topic)}</a></p>'
    return _BODY.sub(lambda body: body[0] + back, page.replace("</head>", style, 1), count=1)

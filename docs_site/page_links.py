"""Adapt pages of docs/ to the site: insert files from outside docs/, and change links to them.

On a code host a link such as `../deploy/prometheus` opens the folder, but the site has no such page. On the site, a
link to an included file opens the page that includes it. Any other link is replaced by the file's path.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

INCLUDE = re.compile(r"^<!-- include: (\S+) -->$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]\[]*)\]\((?![a-z-]+:|#|/)([^)\s#]+)(#[^)\s]*)?\)")
_ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")
BACKSLASHED = r"\|"
_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)


def included(text: str, page: Path) -> str:
    """Return the page's text with every `<!-- include: FILE -->` replaced by that file. FILE is relative to the page.

    Links of the file are made relative to the page. Its headings move one level down if the page has a title.
    A missing file is replaced by an empty text.
    """
    deeper = bool(re.search(r"^# ", text, re.MULTILINE))

    def content(marker: re.Match[str]) -> str:
        file = (page.parent / marker[1]).resolve()
        if not file.exists():
            return ""
        moved = _moved(file.read_text().strip(), file, page)
        return _outside_fences(moved, lambda part: re.sub(r"^#", "##", part, flags=re.MULTILINE)) if deeper else moved

    return INCLUDE.sub(content, text)


def including_pages(pages: Iterable[Path]) -> dict[Path, tuple[Path, str]]:
    """Return each included file -> its page, and the anchor in it ("" if the file is the whole page)."""
    homes = {}
    for page in pages:
        text = page.read_text()
        whole = re.search(r"^# ", text, re.MULTILINE) is None
        for path in INCLUDE.findall(text):
            file = (page.parent / path).resolve()
            homes[file] = (page, "" if whole or not file.exists() else f"#{_anchor_of(file)}")
    return homes


def site_links(text: str, page: Path, docs: Path, homes: Mapping[Path, tuple[Path, str]]) -> str:
    """Return the page's text with each link that leaves docs/ replaced by a link on the site, or by the file's path."""

    def link(match: re.Match[str]) -> str:
        target = (page.parent / match[2]).resolve()
        if target in homes:
            home, anchor = homes[target]
            return f"[{match[1]}]({os.path.relpath(home, page.parent)}{match[3] or anchor})"
        if target.is_relative_to(docs):
            return match[0]
        path = os.path.relpath(target, docs.parent)
        return match[1] if path in match[1] else f"{match[1]} (`{path}`)"

    return _outside_fences(text, lambda part: _LINK.sub(link, part))


def with_pipes(text: str) -> str:
    """Return the text with `a\\|b` in a table's code shown as a|b, as code hosts do. MkDocs keeps the backslash."""

    def code(match: re.Match[str]) -> str:
        shown = html.escape(match[1]).replace(BACKSLASHED, "&#124;")
        return f"<code>{shown}</code>" if BACKSLASHED in match[1] else match[0]

    return _ROW.sub(lambda row: _CODE.sub(code, row[0]), text)


def _moved(text: str, file: Path, page: Path) -> str:
    """Return the file's text with links relative to the page's folder."""

    def link(match: re.Match[str]) -> str:
        path = os.path.relpath((file.parent / match[2]).resolve(), page.parent)
        return f"[{match[1]}]({path}{match[3] or ''})"

    return _outside_fences(text, lambda part: _LINK.sub(link, part))


def _outside_fences(text: str, change: Callable[[str], str]) -> str:
    """Apply `change` to each part of the text outside of fenced code."""
    return "".join(part if n % 2 else change(part) for n, part in enumerate(_FENCE.split(text)))


def _anchor_of(file: Path) -> str:
    """Return the anchor that MkDocs gives to the file's title."""
    [title, *_] = re.findall(r"^# (.+)$", file.read_text(), re.MULTILINE)
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())

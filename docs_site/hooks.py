"""MkDocs calls this for every page of the site (mkdocs.yml, `hooks`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docs_site.page_links import included, including_pages, site_links, with_pipes


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Return the page with its included files, and with links that work on the site."""
    docs = Path(config.docs_dir).resolve()
    file = docs / page.file.src_uri
    homes = including_pages(sorted(docs.rglob("*.md")))
    return with_pipes(site_links(included(markdown, file), file, docs, homes))

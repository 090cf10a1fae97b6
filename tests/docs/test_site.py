"""The site of the documentation: every page is in it, no link is broken, and nothing is loaded from the internet."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs_site.page_links import included, including_pages, site_links, with_pipes

ROOT = Path(__file__).resolve().parents[2]
LOADS = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\ssrc=["']?(https?:)?//|<link\b[^>]*\shref=["']?(https?:)?//"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it: a page that is missing from its navigation, or a broken link, is an error."""
    place = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return place


def test_every_page_is_in_the_site(site):
    written = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    assert len(written) >= 20
    assert {page for page in written if not (site / page).exists()} == set()


def test_nothing_of_the_site_is_loaded_from_the_internet(site):
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert LOADS.search(text) is None, page
        assert 'class="mermaid"' not in text, f"{page}: Material would fetch a script to draw it"
    for style in site.rglob("*.css"):
        assert re.search(r"(url\(|@import )[\"']?(https?:)?//", style.read_text()) is None, style


def test_what_lies_outside_the_docs_is_in_the_site(site):
    assert "pytest.raises" in (site / "contributing.html").read_text()
    assert "1.0.0" in (site / "changelog.html").read_text()
    assert "How it compares" in (site / "index.html").read_text()
    assert 'id="reading-a-compacted-topic"' in (site / "measurements.html").read_text()


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_what_belongs_to_an_item_of_a_list_is_indented_by_four(page):
    """MkDocs ends the list else, and begins to count anew."""
    assert re.findall(r"^ {1,3}```.*|^ *\d+\. .*\n\n {1,3}\S.*", page.read_text(), re.MULTILINE) == []


@pytest.fixture
def repository(tmp_path):
    """docs/ with a page that is a file outside it, and one that includes another file under its own title."""
    for name, text in {
        "GUIDE.md": "# Guide\n\nSee [limits](docs/limits.md) and [the rules](deploy/rules).\n",
        "results/growth.md": "# How it grows\n\n## By size\n\n```sh\n# no heading\n```\n",
        "docs/guide.md": "<!-- include: ../GUIDE.md -->\n",
        "docs/results.md": "# Results\n\n<!-- include: ../results/growth.md -->\n\n<!-- include: ../absent.md -->\n",
        "docs/limits.md": "# Limits\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def shown(repository, page, text=None):
    docs = repository / "docs"
    file = docs / page
    homes = including_pages(sorted(docs.rglob("*.md")))
    return site_links(included(file.read_text() if text is None else text, file), file, docs, homes)


def test_an_included_file_links_from_where_it_is_shown(repository):
    assert shown(repository, "guide.md") == "# Guide\n\nSee [limits](limits.md) and the rules (`deploy/rules`).\n"


def test_an_included_file_stands_below_the_title_of_its_page_and_its_code_is_left_alone(repository):
    text = shown(repository, "results.md")
    assert text.strip() == "# Results\n\n## How it grows\n\n### By size\n\n```sh\n# no heading\n```"


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        pytest.param("[the guide](../GUIDE.md)", "[the guide](guide.md)", id="a file that is a page"),
        pytest.param("[rules](../GUIDE.md#rules)", "[rules](guide.md#rules)", id="a place in it"),
        pytest.param("[growth](../results/growth.md)", "[growth](results.md#how-it-grows)", id="a file within a page"),
        pytest.param("[deploy/rules](../deploy/rules)", "deploy/rules", id="a path that is said"),
        pytest.param("[limits](limits.md#x)", "[limits](limits.md#x)", id="a page"),
        pytest.param("[Kafka](https://kafka.example/x)", "[Kafka](https://kafka.example/x)", id="elsewhere"),
        pytest.param("[here](#x)", "[here](#x)", id="the page itself"),
        pytest.param("```\n[a](../b)\n```", "```\n[a](../b)\n```", id="code"),
    ],
)
def test_a_link_that_leaves_the_docs_is_one_that_the_site_can_follow(repository, link, expected):
    assert shown(repository, "limits.md", link) == expected


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param(r"| `--to a\|b` | c |", "| <code>--to a&#124;b</code> | c |", id="code in a row"),
        pytest.param(r"| `a<b\|c` |", "| <code>a&lt;b&#124;c</code> |", id="code is no markup"),
        pytest.param("| `a` | `b` |", "| `a` | `b` |", id="no pipe"),
        pytest.param(r"`a\|b`", r"`a\|b`", id="no table"),
    ],
)
def test_a_pipe_in_a_table_s_code_is_shown_without_its_backslash(row, expected):
    assert with_pipes(row) == expected

"""Data Docs over the web: only files of one topic's site, whatever path is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleantail.home.home_folder import site_of
from cleantail_airflow.page.records_and_docs import DocsPage, file_in, framed, pages_of


@pytest.fixture
def docs_site(tmp_path: Path) -> Path:
    made = site_of(tmp_path, "orders")
    for round_name in ("r1", "r2"):
        for suite in ("round", "records"):
            folder = made / "validations" / suite / round_name / "20260101T000000Z"
            folder.mkdir(parents=True)
            (folder / f"{suite}-{suite}.html").write_text("<p>ok</p>")
    (made / "index.html").write_text("<p>index</p>")
    (made / "notes.txt").write_text("not served")
    (tmp_path / "secret.html").write_text("secret")
    (made / "link.html").symlink_to(tmp_path / "secret.html")
    return made


def test_a_file_of_the_site_is_found(docs_site: Path) -> None:
    assert file_in(docs_site, "index.html") == docs_site / "index.html"


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("../../../../../../secret.html", id="parents"),
        pytest.param("validations/../../../../../../../secret.html", id="parents within"),
        pytest.param("link.html", id="link"),
        pytest.param("/etc/passwd", id="absolute"),
        pytest.param("notes.txt", id="type"),
        pytest.param("validations", id="folder"),
        pytest.param("absent.html", id="absent"),
        pytest.param("index.html\0.png", id="null byte"),
        pytest.param("", id="empty"),
    ],
)
def test_a_path_that_is_not_a_file_of_the_site_is_not_found(docs_site: Path, path: str) -> None:
    assert file_in(docs_site, path) is None


def test_pages_are_found_by_round_and_names_are_no_patterns(docs_site: Path) -> None:
    pages = pages_of(docs_site, ["r1", "*", "../r2", "absent"])
    stamp = "20260101T000000Z"
    assert pages == {
        "r1": [
            DocsPage(f"validations/records/r1/{stamp}/records-records.html", "records"),
            DocsPage(f"validations/round/r1/{stamp}/round-round.html", "round"),
        ]
    }


def test_a_page_is_called_by_what_its_title_says_and_failed_ones_are_first(docs_site: Path) -> None:
    for suite, title in (("round", "partition 1 · compact r1 · rules of the round · failed"),
                         ("records", "partitions 0, 1 · compact r1 · the topic&#39;s own checks · passed")):  # fmt: skip
        [file] = docs_site.glob(f"validations/{suite}/r1/*/*.html")
        file.write_text(f"<title>orders · {title}</title>")
    labels = [(page.label, page.kind, page.failed) for page in pages_of(docs_site, ["r1"])["r1"]]
    assert labels == [
        ("partition 1 · failed (rules of the round)", "compact", True),
        ("partitions 0, 1 · passed (the topic's own checks)", "compact", False),
    ]


@pytest.mark.parametrize(
    "command",
    [
        '<meta http-equiv="refresh" content="0;url=//evil">',
        "<META content=x HTTP-EQUIV=refresh",
        "<meta\nhttp-equiv=refresh>",
    ],
)
def test_a_page_is_shown_without_its_http_equiv_redirects(command: str) -> None:
    shown = framed(f"<head>{command}</head><body><p>rest</p></body>", "/cleantail", "orders")
    assert "http-equiv" not in shown.lower()
    assert "Back to orders" in shown


def test_a_topic_without_data_docs_has_no_pages(tmp_path: Path) -> None:
    assert pages_of(site_of(tmp_path, "orders"), ["r1"]) == {}

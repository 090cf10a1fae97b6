"""Whoever cites a section of docs/semantics.md or a decision of docs/architecture.md cites one that is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SEMANTICS = (ROOT / "docs" / "semantics.md").read_text()
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
NUMBER = r"\d+(?:\.\d+)*[a-z]?\b"
CITATION = re.compile(
    rf"(semantics|architecture|design)\.md((?:\n\s*#|[\s,]|\band\b|\bto\b|\bpart\b|[a-z]+s?\s(?=\d)|{NUMBER})*)"
)
KINDS = {"hazard": "hazard", "case": "case", "decision": "decision", "part": "section", "section": "section"}


def cited(text):
    """(document, kind, number) of every citation in the text, in their order."""
    for document, places in CITATION.findall(text):
        kind = "section"
        for word in re.findall(rf"{NUMBER}|[a-z]+", places):
            if word[0].isdigit():
                yield document, kind, word
            elif word not in ("and", "to"):
                kind = KINDS.get(word.removesuffix("s"), word)


def there():
    """What can be cited."""
    sections = re.findall(rf"^#+ ({NUMBER})", SEMANTICS, re.MULTILINE) + re.findall(rf"\*\*({NUMBER})\*\*", SEMANTICS)
    yield from (("semantics", "section", number) for number in sections)
    yield from (("semantics", "hazard", number) for number in re.findall(r"\*\*Hazard (\d+):", SEMANTICS))
    yield from (("semantics", "case", number) for number in re.findall(r"^\| (\d+) \|", SEMANTICS, re.MULTILINE))
    yield from (("architecture", "decision", n) for n in re.findall(r"^### (\d+)\. ", ARCHITECTURE, re.MULTILINE))


def files():
    """All text files of the repository that people write."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    suffixes = {".py", ".md", ".yaml", ".yml", ".toml", ".html", ".sh", ""}
    return [f for f in map(ROOT.joinpath, listed.stdout.splitlines()) if f.suffix in suffixes and f.is_file()]


@pytest.mark.parametrize(
    ("text", "citations"),
    [
        pytest.param("(semantics.md 1.4).", [("semantics", "section", "1.4")], id="one"),
        pytest.param("(semantics.md 1.4 to 1.6)", [("semantics", "section", n) for n in ("1.4", "1.6")], id="range"),
        pytest.param("semantics.md 1.3b, and", [("semantics", "section", "1.3b")], id="a reason of two"),
        pytest.param("semantics.md part 4 in", [("semantics", "section", "4")], id="part"),
        pytest.param("semantics.md 2, 3.8. Then 9", [("semantics", "section", n) for n in ("2", "3.8")], id="end"),
        pytest.param(
            "(semantics.md 2, hazards 2 and 3)",
            [("semantics", "section", "2"), ("semantics", "hazard", "2"), ("semantics", "hazard", "3")],
            id="hazards",
        ),
        pytest.param("semantics.md 1.1,\n    # cases 4", [("semantics", "section", "1.1"), ("semantics", "case", "4")], id="lines"),
        pytest.param("docs/architecture.md, decision 4", [("architecture", "decision", "4")], id="decision"),
        pytest.param("the rules of semantics.md once more, 7 times", [], id="no section"),
    ],
)  # fmt: skip
def test_a_citation_is_read_as_people_write_it(text, citations):
    assert list(cited(text)) == citations


@pytest.mark.parametrize(
    "citation", [("semantics", "section", "1.8"), ("semantics", "hazard", "5"), ("design", "decision", "1")]
)
def test_a_citation_of_a_missing_section_is_recognized(citation):
    assert citation not in set(there())


def test_every_section_and_decision_that_is_cited_is_there():
    known = set(there())
    citations = [
        (file, citation)
        for file in files()
        if file != Path(__file__)
        for citation in cited(file.read_text("utf-8", "replace"))
    ]
    assert len(citations) >= 60
    assert [(str(file.relative_to(ROOT)), *citation) for file, citation in citations if citation not in known] == []


def test_every_case_of_the_specification_is_a_test_that_has_its_number_in_its_name():
    text = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    named = {n for name in re.findall(r"def (test_\w+)", text) for n in re.findall(r"case_(\d+)", name)}
    assert named == {number for _, kind, number in there() if kind == "case"}

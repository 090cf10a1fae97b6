"""Test files are found by their name alone (pytest's import mode `prepend`), so no two may share one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path


def test_no_two_test_files_have_the_same_name():
    names = Counter(path.name for path in Path(__file__).parents[1].rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []

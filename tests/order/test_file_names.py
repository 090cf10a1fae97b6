"""A file is found by its name: no two files of the product share one, and no two test files (pytest's import mode
`prepend` needs that). A class of the product is found by its name, too."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("cleantail", "cleantail_cli", "dags", "embedded_airflow", "plugins", "spark_jobs")


@pytest.mark.parametrize(
    "files",
    [
        pytest.param([f for folder in PRODUCT for f in (ROOT / folder).rglob("*.py")], id="product"),
        pytest.param([*(ROOT / "tests").rglob("test_*.py")], id="tests"),
    ],
)
def test_no_two_files_have_the_same_name(files: list[Path]) -> None:
    names = Counter(file.name for file in files if file.name not in ("__init__.py", "__main__.py"))
    assert len(names) > 50
    assert [name for name, count in names.items() if count > 1] == []


def test_no_two_classes_of_the_product_have_the_same_name() -> None:
    modules = [ast.parse(file.read_bytes()) for folder in PRODUCT for file in (ROOT / folder).rglob("*.py")]
    names = Counter(node.name for module in modules for node in module.body if isinstance(node, ast.ClassDef))
    assert len(names) > 300
    assert [name for name, count in names.items() if count > 1] == []

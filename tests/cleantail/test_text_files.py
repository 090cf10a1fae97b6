"""Text files are UTF-8 in every locale: each call that opens one says so."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("cleantail", "cleantail_cli", "spark_jobs", "plugins", "dags", "embedded_airflow")
OPENING = {"open", "fdopen", "NamedTemporaryFile", "TemporaryFile"}
WHOLE = {"read_text", "write_text"}
OF_ICEBERG = "cleantail/lake/metadata_guards.py"
"""Its open() is that of an input of PyIceberg, which has bytes."""
NO_UTF8 = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def calls_without_encoding(source: str) -> Iterator[ast.Call]:
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        named = {keyword.arg: keyword.value for keyword in call.keywords}
        texts = [
            v.value for v in (*call.args, named.get("mode")) if isinstance(v, ast.Constant) and isinstance(v.value, str)
        ]
        is_text = name in WHOLE or (name in OPENING and not any("b" in text for text in texts))
        of_path = isinstance(call.func, ast.Name) or all(isinstance(v, ast.Constant) for v in call.args[:1])
        other = any(part in ast.unparse(call.func) for part in ("os.open", "new_input", "webbrowser"))
        other = other or (name == "open" and not of_path)  # a path's first argument is a mode, a file system's a path
        if "encoding" not in named and ((is_text and not other) or (name in ("run", "Popen") and "text" in named)):
            yield call


def test_every_text_file_of_the_product_is_opened_as_utf8():
    files = [file for folder in PRODUCT for file in (ROOT / folder).rglob("*.py")]
    without = [
        f"{file.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)[:80]}"
        for file in files
        if file.relative_to(ROOT).as_posix() != OF_ICEBERG
        for call in calls_without_encoding(file.read_text(encoding="utf-8"))
    ]
    assert not without, without


@pytest.mark.parametrize(
    "source",
    ["p.write_text(t)", "open(p)", "p.open('w')", "os.fdopen(d, 'w')", "subprocess.run(a, text=True)"],
)
def test_a_call_that_takes_the_encoding_of_the_locale_is_found(source):
    assert len(list(calls_without_encoding(source))) == 1


@pytest.mark.parametrize(
    "source",
    ["p.open('rb')", "os.open(p, f)", "p.write_text(t, encoding='utf-8')", "open(p, 'ab')", "store.open(path)"],
)
def test_a_call_that_does_not_is_passed_over(source):
    assert not list(calls_without_encoding(source))


def test_data_docs_are_written_without_a_utf8_locale(tmp_path):
    code = (
        "import sys; from pathlib import Path; from spark_jobs.quality.data_docs import page, title_in, write_whole;"
        "title = ' \\u00b7 '.join('abcde'); file = Path(sys.argv[1]);"
        "write_whole(file, page({'topic': 'gr\\u00fcn', 'title': title, 'heading': 'h', 'rows': []}));"
        "print(title_in(file) == tuple('abcde'))"
    )
    file = tmp_path / "index.html"
    environment = os.environ | NO_UTF8
    argv = [sys.executable, "-c", code, str(file)]
    ran = subprocess.run(argv, env=environment, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    assert (ran.returncode, ran.stdout) == (0, "True\n"), ran.stderr
    assert " · " in file.read_text(encoding="utf-8")

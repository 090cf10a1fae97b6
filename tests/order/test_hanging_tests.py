"""A test that never ends fails in its time, once; the tests behind it in its file run."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = "from tests.conftest import pytest_xdist_make_scheduler  # noqa: F401\n"
HANGS = (
    "import threading\ndef test_before(): pass\ndef test_hangs(): threading.Event().wait()\ndef test_after(): pass\n"
)
OTHER = "def test_other(): pass\n"


def test_a_test_that_hangs_fails_once_with_its_stack_and_the_rest_of_its_file_runs(tmp_path):
    for name, text in (("conftest.py", CONFTEST), ("test_hangs.py", HANGS), ("test_other.py", OTHER)):
        (tmp_path / name).write_text(text)
    # no plugins but these two: the others take their time
    plugins = ["-p", "xdist", "-p", "pytest_timeout", "-n", "1", "--dist", "loadfile"]
    command = [sys.executable, "-m", "pytest", "--rootdir", tmp_path, "-c", os.devnull, *plugins]
    limits = ["--timeout", "2", "-o", f"timeout_method={_settings()['timeout_method']}", "-o", "faulthandler_timeout=1"]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    run = subprocess.run(
        [*command, *limits, tmp_path], cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=120
    )
    assert run.returncode == 1, run.stdout
    assert "1 failed, 3 passed" in run.stdout
    assert "test_hangs.py::test_hangs" in run.stdout
    assert "in test_hangs" in run.stderr  # where it hung, as faulthandler says it


def test_every_test_of_this_repository_has_a_limit_and_its_stacks_come_before_it():
    settings = _settings()
    assert 0 < settings["faulthandler_timeout"] < settings["timeout"] <= 600


def _settings() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]

"""Modules that a process does without, or the imports of a block."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from cleantail.home.process import without

NAME = "antigravity_of_a_test"
FOR_GOOD = """
from cleantail.home.process import leave_out

import json
leave_out("wave", "json")
import json
try:
    import wave
except ModuleNotFoundError as error:
    print(error)
import colorsys
"""


@pytest.fixture
def module(tmp_path, monkeypatch) -> Iterator[str]:  # type: ignore[no-untyped-def]
    (tmp_path / f"{NAME}.py").write_text("answer = 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield NAME
    sys.modules.pop(NAME, None)


def test_a_module_is_not_there_in_the_block_and_is_there_after_it_and_once_it_was_imported(module):
    finders = list(sys.meta_path)
    with without(module), pytest.raises(ModuleNotFoundError, match=f"{NAME} is left out here"):
        importlib.import_module(module)
    assert importlib.import_module(module).answer == 42
    with without(module):
        assert importlib.import_module(module).answer == 42
    assert sys.meta_path == finders


def test_a_list_of_finders_that_another_thread_goes_through_does_not_change(module):
    before = sys.meta_path
    as_it_was = list(before)
    with without(module):
        inside = sys.meta_path
        assert inside is not before
        assert before == as_it_was
    assert len(inside) == len(as_it_was) + 1


def test_a_process_does_without_a_module_for_good():
    done = subprocess.run([sys.executable, "-c", FOR_GOOD], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "wave is left out here\n"), done.stderr

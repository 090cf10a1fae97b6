"""A worker: one copy of the repository, and one process forked for each run of tests, which sees the copy as it is then."""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import coverage

from tests.mutation.asked import Seen, Watch
from tests.mutation.changes import Mutant, mutated_source

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 300
"""How long the tests of one process may take: of the processor's time, so that a busy machine kills no mutant."""
PRELOADED = ("pytest", "hypothesis.strategies", "pydantic", "pyarrow.compute", "pyiceberg.catalog.sql", "rich.table")
"""Imported once by a worker, so that each of its mutants starts in milliseconds; nothing of cleantail is among them."""
PYTEST_OPTIONS = ["-x", "--assert=plain", "--tb=no", "-p", "no:cacheprovider", "-W", "ignore"]
"""Only the exit code counts: no rewritten assertions, no tracebacks."""


def start_worker(folder: str) -> None:
    place = Path(tempfile.mkdtemp(dir=folder)) / "repository"
    shutil.copytree(ROOT, place, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    os.chdir(place)
    sys.path[:] = [str(place), *(p for p in sys.path if p and Path(p).resolve() != ROOT)]
    os.environ.update(PYTHONPATH=str(place), PYTHONDONTWRITEBYTECODE="1")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.dont_write_bytecode = True
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def rule_file(module: str) -> Path:
    """Where a rule module is, from the root of the repository."""
    [path] = (ROOT / "cleantail").rglob(f"{module}.py")
    return path.relative_to(ROOT)


def is_killed(mutant: Mutant, asked: list[list[str]]) -> bool:
    """Whether a test fails, an import fails or the tests take far too long. `asked`: the tests of one process after the
    other."""
    path = rule_file(mutant.module)
    source = path.read_text()
    path.write_text(mutated_source(source, mutant))
    try:
        return any(not passes(tests) for tests in asked)
    finally:
        path.write_text(source)


def passes(tests: list[str]) -> bool:
    return _in_a_child(lambda: _pytest(tests))


def watched(files: list[str], modules: list[str]) -> Seen | None:
    """What these files of tests run of the rule modules; None where one of them fails."""
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder) / "seen"
        return pickle.loads(note.read_bytes()) if _in_a_child(lambda: _watch(files, modules, note)) else None


def _watch(files: list[str], modules: list[str], note: Path) -> int:
    watch = Watch(coverage.Coverage(data_file=None, include=[str(Path.cwd() / rule_file(m)) for m in modules]))
    watch.coverage.start()
    code = _pytest(files, watch)
    watch.coverage.stop()
    note.write_bytes(pickle.dumps(watch.seen()))
    return code


def _pytest(tests: list[str], *plugins: object) -> int:
    import pytest

    code = int(pytest.main([*PYTEST_OPTIONS, *tests], plugins))
    import cleantail

    return code or int(not Path(cleantail.__file__).is_relative_to(Path.cwd()))


def _in_a_child(work: Callable[[], int]) -> bool:
    """Whether `work` returns 0, in a process of its own."""
    child = os.fork()
    if child == 0:
        signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        code = 1
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0

"""A process that an earlier try has left is ended with all that it has started, and no other process ever is."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from cleantail.home.driver_process import end_earlier, forget, note, note_of

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], stdout=subprocess.PIPE, text=True)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture
def running():
    """A process, as spark-submit, with one that it has started, as the driver, which does not end when it is asked."""
    process = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    yield process, int(process.stdout.readline())
    process.kill()
    process.wait()


def is_there(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_what_an_earlier_try_has_left_is_ended_with_what_it_has_started(tmp_path, running):
    process, child = running
    file = note_of(tmp_path, ("dag", "run", "task", -1))
    note(file, process.pid)
    began = time.monotonic()
    assert end_earlier(note_of(tmp_path, ("dag", "run", "task", "-1")), within_s=0.5) == process.pid
    assert not is_there(process.pid) and not is_there(child) and time.monotonic() - began < 10
    assert end_earlier(file) is None


@pytest.mark.parametrize(
    "key, value", [("started", 1), ("host", "another"), ("boot", "another"), ("pid", "x"), ("pid", 0)]
)
def test_a_process_that_may_be_another_is_left_alone(tmp_path, running, key, value):
    process, child = running
    file = note_of(tmp_path, ("dag", "run", "task", -1))
    note(file, process.pid)
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    assert end_earlier(file, within_s=0.5) is None
    assert is_there(process.pid) and is_there(child)


def test_tasks_have_notes_of_their_own_and_one_that_has_ended_has_none(tmp_path, running):
    process, _ = running
    mine, other = (note_of(tmp_path, ("dag", "run", "task", index)) for index in (0, 1))
    note(mine, process.pid)
    assert end_earlier(other) is None
    forget(mine)
    assert end_earlier(mine) is None and is_there(process.pid)

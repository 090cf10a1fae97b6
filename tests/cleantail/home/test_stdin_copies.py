"""Copies of standard input: the one of a live process stays, and the one of a killed process goes."""

import signal
import subprocess
import sys

from cleantail.home.stdin_copies import copy_folder, delete_dead

COPIES = """
import sys, time
from pathlib import Path
from cleantail.home.stdin_copies import copy_folder
with copy_folder(Path(sys.argv[1])) as folder:
    (folder / "stdin").write_text("a key")
    print("copied", flush=True)
    time.sleep(60)
"""


def test_the_copy_of_a_killed_process_is_deleted_and_that_of_a_live_one_stays(tmp_path):
    delete_dead(tmp_path)  # a home without copies
    run = subprocess.Popen([sys.executable, "-c", COPIES, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None and run.stdout.readline() == "copied\n"
    delete_dead(tmp_path)
    [copy] = (tmp_path / "stdin").rglob("stdin")
    run.send_signal(signal.SIGKILL)
    run.communicate()
    assert copy.read_text() == "a key"
    with copy_folder(tmp_path) as folder:
        assert not copy.exists() and [*(tmp_path / "stdin").iterdir()] == [folder]
    assert [*(tmp_path / "stdin").iterdir()] == []

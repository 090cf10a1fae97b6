"""How a process of ours ends: all that it began has come to its end by then, and its exit code is that of its work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

WORK = """
import atexit, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from cleantail.home.process import run_process

def write(name):
    time.sleep(0.2)
    Path(sys.argv[1], name).write_text("written")

def main(argv):
    threading.Thread(target=write, args=("by a thread",)).start()
    pool = ThreadPoolExecutor(1)
    pool.submit(write, "by a pool")
    atexit.register(write, "at the end")
    sys.stdout.write("said")
    if argv[1:] == ["fail"]:
        raise ValueError("it failed")
    return 3

if __name__ == "__main__":
    run_process(main)
"""


@pytest.mark.parametrize(("arguments", "exit_code"), [([], 3), (["fail"], 1)])
def test_a_process_ends_once_its_threads_and_what_is_to_be_done_at_its_end_have(
    tmp_path: Path, arguments: list[str], exit_code: int
) -> None:
    command = [sys.executable, "-c", WORK, str(tmp_path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (exit_code, "said")
    assert ("ValueError: it failed" in done.stderr) == bool(arguments)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["at the end", "by a pool", "by a thread"]


def test_a_process_without_output_ends_with_the_exit_code_of_its_work() -> None:
    command = f"{sys.executable} -c 'from cleantail.home.process import end_process; end_process(3)'"
    assert subprocess.run(f"{command} >&- 2>&-", shell=True, timeout=60).returncode == 3
    full = f"{sys.executable} -c 'from cleantail.home.process import end_process; print(1); end_process(0)' > /dev/full"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    assert subprocess.run(full, shell=True, timeout=60, env=buffered).returncode == 120


LOGS = r"""
import logging, sys
from cleantail.home.process import keep_logs_printable

keep_logs_printable(*sys.argv[1:])
keep_logs_printable(*sys.argv[1:])
logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stderr)
path = "s3://b/\x1b]0;owned\x07\x9b2J\u202e/f\nERROR all is lost\r"
logging.getLogger("cleantail.file_removal").warning("%s stays", path)
logging.getLogger("of.others").warning("%d files, %s", 2, path)
logging.getLogger("cleantail").warning("%d", "no number")
"""


def logged(*loggers):
    done = subprocess.run([sys.executable, "-c", LOGS, *loggers], capture_output=True, check=True, cwd=ROOT)
    return done.stderr.decode("utf-8", "surrogateescape")


def test_what_a_process_logs_commands_no_terminal_and_forges_no_line():
    text = logged()
    assert text.startswith(
        "WARNING s3://b/]0;owned2J/f\n  ERROR all is lost stays\nWARNING 2 files, s3://b/]0;owned2J/f\n  ERROR"
    )
    assert all(c.isprintable() or c == "\n" for c in text) and "\nERROR" not in text
    assert "--- Logging error ---" in text, "the handler says that arguments do not fit"


def test_where_a_process_is_of_others_only_our_loggers_are_kept_printable():
    text = logged("cleantail")
    assert text.startswith("WARNING s3://b/]0;owned2J/f\n  ERROR all is lost stays\nWARNING 2 files, s3://b/\x1b]0;")

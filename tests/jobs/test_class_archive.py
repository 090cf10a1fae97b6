"""The class archive is made in its time, or not at all."""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_what_takes_too_long_is_killed_with_all_that_it_has_started(tmp_path):
    """Its JVM has been seen to hang on a busy machine, and `make setup` with it."""
    (tmp_path / ".classes.jsa.half").write_text("what a killed JVM leaves")
    command = [sys.executable, "-m", "cleantail_cli.class_archive", "--jars", tmp_path, "--within", "0.5"]
    began = time.monotonic()
    done = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, time.monotonic() - began < 100) == (1, True)
    assert "no class archive within 0.5 s" in done.stderr
    assert list(tmp_path.iterdir()) == []
    there = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in there

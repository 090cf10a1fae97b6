"""Long work shows how far it is on a terminal, and nothing of it anywhere else."""

import io
import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from cleantail_cli import main
from cleantail_cli.long_work import SILENT, Line, on_terminal, tasks
from cleantail_cli.output import ConsoleOutput, JsonOutput

REPOSITORY = Path(__file__).parents[2]
RECORDS = 500


def work():
    with on_terminal() as progress:
        progress.about("3 partitions")
        progress("reading")
        for _ in progress.counting(range(RECORDS), "record"):
            time.sleep(0.001)
    print("answer")


@contextmanager
def terminal():
    """The end of a terminal that is written to, and what was sent there; it is complete behind the block."""
    ours, theirs = pty.openpty()
    sent = bytearray()

    def drain():
        with suppress(OSError):  # it was closed
            while True:
                sent.extend(os.read(ours, 65_536))

    reading = threading.Thread(target=drain)
    reading.start()
    try:
        yield theirs, sent
    finally:
        os.close(theirs)
        reading.join()
        os.close(ours)


@pytest.fixture
def shown(monkeypatch):
    """Does work with a terminal for its stderr, or for both: (stdout, what the terminal was sent)."""

    def of(work, stdout_is_terminal=False, **env):
        with terminal() as (theirs, sent), open(theirs, "w", closefd=False) as stream, monkeypatch.context() as patch:
            for name in ("NO_COLOR", "FORCE_COLOR"):
                patch.delenv(name, raising=False)
            for name, value in {"TERM": "xterm", **env}.items():
                patch.setenv(name, value)
            out = stream if stdout_is_terminal else io.StringIO()
            patch.setattr("sys.stderr", stream)
            patch.setattr("sys.stdout", out)
            assert not work(), sent.decode()
        return "" if stdout_is_terminal else out.getvalue(), sent.decode()

    return of


def words(sent):
    """What was sent without the codes that move the cursor and colour the text."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent)


# ---- the line


def test_on_a_terminal_one_line_has_the_step_what_it_is_about_and_counts(shown):
    out, sent = shown(work, COLUMNS="120")
    assert out == "answer\n"
    text = words(sent)
    assert "reading" in text and "3 partitions" in text
    assert f"{RECORDS} of {RECORDS} records" in text
    lines = [line for line in re.split(r"[\r\n]+", text) if "reading" in line]
    assert len(lines) > 1, "drawn anew"
    assert sent.count("\n") < len(lines), "in its place"


def test_a_dumb_terminal_gets_no_progress_line(shown):
    assert shown(work, TERM="dumb") == ("answer\n", "")


CLAIMS = ("FORCE_COLOR", "TTY_COMPATIBLE", "CI")
"""Variables by which an environment says that a terminal is there, or none."""


@pytest.mark.parametrize(
    "claims",
    [
        pytest.param(CLAIMS, id="all at once"),
        *(pytest.param((claim,), id=claim, marks=pytest.mark.deep) for claim in CLAIMS),
    ],
)
def test_no_progress_line_is_written_if_stderr_is_not_a_terminal(claims, monkeypatch, capsys):
    for name, value in {"TERM": "xterm", **dict.fromkeys(claims, "1")}.items():
        monkeypatch.setenv(name, value)
    work()
    assert capsys.readouterr() == ("answer\n", "")


def test_machines_are_shown_no_progress(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    for progress in (JsonOutput().progress(), JsonOutput().records_progress()):
        with progress as steps:
            steps.about("x")
            steps("working")
            assert list(steps.counting([1, 2], "record")) == [1, 2]
    assert capsys.readouterr() == ("", "")


def test_records_on_the_terminal_are_not_drawn_over(monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    with ConsoleOutput().records_progress() as steps:
        assert steps is SILENT
    with on_terminal() as steps:
        assert steps is SILENT, "stderr of a test is no terminal"


# ---- counts


class Drawn:
    """What a line would show."""

    def __init__(self):
        self.shown = []

    def __call__(self, **changes):
        self.shown.append(changes)


def test_items_are_counted_as_they_pass_and_each_step_starts_without_a_count():
    drawn = Drawn()
    line = Line(drawn)
    assert list(line.counting(iter("abc"), "record")) == ["a", "b", "c"]
    assert drawn.shown[-1] == {"counts": "3 records", "total": None, "completed": 3}
    assert list(line.counting(["a"], "topic")) == ["a"]
    assert drawn.shown[-1] == {"counts": "1 of 1 topic", "total": 1, "completed": 1}
    line("publishing")
    assert (drawn.shown[-1]["description"], drawn.shown[-1]["counts"]) == ("publishing", "")


class Tracker:
    """Spark's answers: the stages that are active, one of which has ended meanwhile."""

    def getActiveStageIds(self):
        return [1, 2, 3]

    def getStageInfo(self, stage):
        return None if stage == 3 else SimpleNamespace(numTasks=10, numCompletedTasks=stage)


def test_tasks_are_those_of_all_active_stages():
    assert tasks(Tracker()) == (3, 20)


def test_spark_is_followed_until_the_work_ends_and_its_end_is_no_error():
    drawn = Drawn()
    line = Line(drawn)
    line.watch(SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=Tracker)))
    until = time.monotonic() + 20
    while not drawn.shown and time.monotonic() < until:
        time.sleep(0.02)
    line.end()
    assert drawn.shown[0] == {"counts": "3 of 20 tasks", "total": 20, "completed": 3}
    assert not line._watcher.is_alive()

    gone = Line(drawn)
    gone.watch(SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: None)))
    gone._watcher.join(20)
    assert not gone._watcher.is_alive()


# ---- commands


@pytest.fixture
def cleantail(project):
    return lambda *arguments: partial(main, [*arguments, "--config", str(project / "config")])


def test_reading_into_a_file_counts_records_and_the_file_has_them_alone(shown, cleantail, orders_table):
    orders_table.append(*((0, n, 0, b"k", b"v") for n in range(3_000)))
    out, sent = shown(cleantail("read", "orders"))
    assert [json.loads(line)["offset"] for line in out.splitlines()] == list(range(3_000))
    assert re.search(r"\d+ records", words(sent)), sent


def test_the_status_of_all_topics_counts_them_on_the_terminal_and_nowhere_else(cleantail, orders_table, capsys):
    orders_table.append((0, 7, 0, b"k", b"v"))
    status = cleantail("status")
    command = [sys.executable, "-m", "cleantail_cli", *status.args[0]]
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")} | {"TERM": "xterm"}
    with terminal() as (theirs, sent):
        out = subprocess.check_output(command, stderr=theirs, env=env, cwd=REPOSITORY, text=True)
    assert "partition 0" in out and re.search(r"\d+ of \d+ topic", words(sent.decode())), sent
    assert status() == 0
    assert capsys.readouterr() == (out, "")


def test_reading_onto_the_terminal_shows_records_alone(shown, cleantail, orders_table):
    orders_table.append((0, 7, 0, b"k", b"v"))
    _, sent = shown(cleantail("read", "orders"), stdout_is_terminal=True)
    [line] = sent.splitlines()
    assert json.loads(line)["offset"] == 7


def test_the_replay_of_a_policy_counts_its_runs(shown, cleantail, orders_table):
    orders_table.append((0, 7, 1_000, b"k", b"v"))
    out, sent = shown(cleantail("plan", "orders", "--set", "min.cleanable.dirty.ratio=0.9"))
    assert "min.cleanable.dirty.ratio: 0.5 -> 0.9" in out
    assert re.search(r"\d+ of \d+ replayed run", words(sent)), sent

"""What the README shows is true: generated parts are those of the models, examples are examples of what runs."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from cleantail.cli.reference import commands, parsed
from cleantail.config import load_topic
from cleantail.readme import filled

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text()
TOPICS = re.findall(r"<!-- example: topic -->\n```yaml\n(.*?)```", TEXT, re.DOTALL)
SHELL = re.findall(r"<!-- example: shell -->\n```sh\n(.*?)```", TEXT, re.DOTALL)


def test_the_generated_parts_are_those_of_the_models():
    assert filled(TEXT) == TEXT


@pytest.mark.parametrize("text", TOPICS, ids=["four lines", "fuller", "after assets", "adopted", "approval"])
def test_every_topic_shown_is_a_valid_topic(text, tmp_path):
    (tmp_path / "topics").mkdir()
    file = tmp_path / "topics" / "example.yaml"
    file.write_text(text)
    assert load_topic(file, tmp_path).topic == yaml.safe_load(text)["topic"]


@pytest.mark.parametrize("line", "".join(SHELL).splitlines())
def test_every_command_shown_is_one_that_the_command_line_takes(line):
    assert callable(parsed(shlex.split(line, comments=True)[1:]).command.callback)


def test_every_command_of_the_command_line_is_in_the_readme():
    shown = re.findall(r"^\| `cleantail ([a-z-]+)", TEXT, re.MULTILINE)
    assert set(shown) == {path for path in commands() if " " not in path}


def test_every_file_and_make_target_that_the_readme_names_exists():
    for path in re.findall(r"\]\((docs/[^)]+)\)", TEXT):
        assert (ROOT / path).exists(), path
    targets = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"`make ([a-z-]+)`", TEXT)):
        assert re.search(rf"^{target}:", targets, re.MULTILINE), target


def test_the_first_commands_as_written_show_a_compaction_on_a_fresh_home_and_print_nothing_else(tmp_path):
    """The whole block in one shell. stderr is no terminal, so there is no progress on it, and no line of a library."""
    [block] = re.findall(r"<!-- example: first commands -->\n```sh\n(.*?)```", TEXT, re.DOTALL)
    jars = os.environ.get("CLEANTAIL_JARS") or str(ROOT / ".cleantail" / "jars")
    env = {k: v for k, v in os.environ.items() if not k.startswith("CLEANTAIL_")}
    env |= {"CLEANTAIL_HOME": str(tmp_path / "fresh" / "home"), "CLEANTAIL_JARS": jars}
    shell = ["bash", "-euo", "pipefail", "-c", block]
    done = subprocess.run(shell, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "orders: 8 records appended" in done.stdout
    assert "orders: 1 of 1 partition is due" in done.stdout
    assert "10 of 10 checks passed" in done.stdout
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [(r["offset"], r["key"]) for r in records] == [
        (4, "order-2"), (5, "order-1"), (6, "order-3"), (7, "order-4"),
    ]  # fmt: skip
    assert records[0]["payload"] is None
    assert done.stderr == ""

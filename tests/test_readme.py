"""What the README shows is true: generated parts are those of the models, examples are examples of what runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from cleantail.cli import _parser
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
    arguments = _parser().parse_args(shlex.split(line)[1:])
    assert callable(arguments.run)


def test_every_command_of_the_command_line_is_in_the_readme():
    [commands] = [a for a in _parser()._subparsers._group_actions if a.choices]
    shown = re.findall(r"^\| `cleantail ([a-z-]+)", TEXT, re.MULTILINE)
    assert set(shown) == set(commands.choices)


def test_every_file_and_make_target_that_the_readme_names_exists():
    for path in re.findall(r"\]\((docs/[^)]+)\)", TEXT):
        assert (ROOT / path).exists(), path
    targets = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"`make ([a-z-]+)`", TEXT)):
        assert re.search(rf"^{target}:", targets, re.MULTILINE), target

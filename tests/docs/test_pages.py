"""What the pages show is true: generated parts are those of the models, examples are examples of what runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import get_args

import pytest
import yaml
from pydantic import BaseModel

from cleantail import errors as errors_module
from cleantail.config.config_model import Configs
from cleantail.config.loading import DefaultsFile, find_group, load_platform, load_topic
from cleantail.config.platform import PlatformSettings
from cleantail.config.platform_configs import UNKEPT_LIMIT
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from docs_site.command_reference import commands, parsed
from docs_site.generated import filled, generated_parts, pages

ROOT = Path(__file__).resolve().parents[2]
PAGES = {str(page.relative_to(ROOT)): page.read_text() for page in pages()}
TEXT = "\n".join(PAGES.values())
TOPICS = [
    pytest.param(text, id=f"{name}-{n}")
    for name, page in PAGES.items()
    for n, text in enumerate(re.findall(r"<!-- example: topic -->\n```yaml\n(.*?)```", page, re.DOTALL), 1)
]
PLATFORMS = [
    pytest.param(text, id=f"{name}-{n}")
    for name, page in PAGES.items()
    for n, text in enumerate(re.findall(r"<!-- example: platform -->\n```yaml\n(.*?)```", page, re.DOTALL), 1)
]
CODE = "\n".join(
    file.read_text() for top in ("cleantail", "plugins", "spark_jobs") for file in sorted((ROOT / top).rglob("*.py"))
)
GROUPS = re.findall(r"<!-- example: group -->\n```yaml\n(.*?)```", TEXT, re.DOTALL)
SHELL = re.findall(r"<!-- example: shell -->\n```sh\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_the_generated_parts_are_those_of_the_models(page):
    assert filled(PAGES[page]) == PAGES[page]


@pytest.mark.parametrize("part", generated_parts())
def test_every_generated_part_stands_in_one_page(part):
    assert TEXT.count(f"<!-- generated: {part} -->") == 1


@pytest.mark.parametrize("text", GROUPS)
def test_every_group_shown_is_a_valid_group(text, tmp_path):
    (tmp_path / "groups").mkdir()
    name = yaml.safe_load(text)["group"]
    (tmp_path / "groups" / f"{name}.yaml").write_text(text)
    assert find_group(name, tmp_path, {}).group == name


@pytest.mark.parametrize("text", TOPICS)
def test_every_topic_shown_is_a_valid_topic(text, tmp_path):
    (tmp_path / "topics").mkdir()
    if (group := yaml.safe_load(text).get("group")) is not None:
        (tmp_path / "groups").mkdir()
        (tmp_path / "groups" / f"{group}.yaml").write_text(f"group: {group}\n")
    lake = "source_catalogs: {lake: {type: rest, uri: 'https://lake'}}, source_tables: [lake.redpanda.*]"
    (tmp_path / "defaults.yaml").write_text(f"platform: {{{lake}}}\n")
    file = tmp_path / "topics" / "example.yaml"
    file.write_text(text)
    assert load_topic(file, tmp_path).topic == yaml.safe_load(text)["topic"]


@pytest.mark.parametrize("text", PLATFORMS)
def test_every_platform_shown_is_a_valid_platform(text, tmp_path):
    (tmp_path / "defaults.yaml").write_text(text)
    assert load_platform(tmp_path, {}).catalog.type == yaml.safe_load(text)["platform"]["catalog"]["type"]


@pytest.mark.parametrize("line", "".join(SHELL).splitlines())
def test_every_command_shown_is_one_that_the_command_line_takes(line):
    assert callable(parsed(shlex.split(line, comments=True)[1:]).command.callback)


def test_every_command_of_the_command_line_is_in_the_table_of_commands():
    shown = re.findall(r"^\| \[`cleantail ([a-z-]+)", PAGES["docs/command-line.md"], re.MULTILINE)
    assert set(shown) == {path for path in commands() if " " not in path}


def anchors(text):
    """Anchors of a page's headings, as MkDocs and code hosts make them."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_every_file_and_heading_that_a_page_links_to_exists(page):
    for path, anchor in re.findall(r"\]\((?![a-z-]+:)([^)#\s]*)(?:#([^)\s]*))?\)", PAGES[page]):
        target = (ROOT / page).parent.joinpath(path).resolve() if path else ROOT / page
        assert target.exists(), path
        if anchor:
            assert anchor in anchors(target.read_text()), f"{path}#{anchor}"


PROSE = re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)
QUOTED = set(re.findall(r"`([^`\n]+)`", PROSE))


def test_every_make_target_that_the_pages_name_exists():
    targets = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"`make ([a-z-]+)", PROSE)) | set(re.findall(r"^make ([a-z-]+)", TEXT, re.MULTILINE))
    assert {"demo", "up", "docs", "test"} <= named
    for target in named:
        assert re.search(rf"^{target}:", targets, re.MULTILINE), target


def test_every_path_of_the_repository_that_the_pages_name_exists():
    tops = {entry.name for entry in ROOT.iterdir()} - {"cleantail"}
    blocks = " ".join(re.findall(r"^ *```sh\n(.*?)```", TEXT, re.DOTALL | re.MULTILINE))
    quoted = QUOTED | {word for word in blocks.split() if "/" in word}
    paths = {text for text in quoted if re.fullmatch(r"[\w./-]+", text) and text.split("/")[0] in tops}
    assert {"config/topics/", "spark_jobs/", "deploy/"} <= paths
    written = {path for path in paths if "NAME" not in path}
    assert [path for path in sorted(written) if not (ROOT / path).exists()] == []


NAME_OR_SETTING = re.compile(r"[a-z_]+(?:\.[a-z0-9_]+)+(?:: [\w.]+)?")


def names_in(model, prefix=""):
    """Every key of a model and of the models in it, dotted; configs are written without the section they are in."""
    for name, field in model.model_fields.items():
        key = prefix + (field.alias or name)
        yield key
        for inner in models_of(field.annotation):
            yield from names_in(inner, "" if issubclass(inner, Configs) else f"{key}.")


def models_of(annotation):
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from models_of(inner)


GROUP_ID = "group.id"
"""Of `source.kafka`, in the word of Kafka's clients: pages leave out what it is below."""


def settings():
    """The names of everything that can be written into YAML, and of what Cleantail writes into tables."""
    properties = re.findall(r'"(cleantail\.[a-z.]+)"', CODE)
    return {
        *names_in(PlatformSettings),
        *names_in(DefaultsFile),
        *names_in(Topic),
        *properties,
        UNKEPT_LIMIT,
        GROUP_ID,
    }


def test_every_setting_that_the_pages_name_is_one_that_there_is():
    known = settings()
    named = {text.split(":")[0] for text in QUOTED if NAME_OR_SETTING.fullmatch(text)}
    named = {name for name in named if not name.startswith("spark.")}  # those are Spark's own
    modules_and_tables = {name for name in named if re.fullmatch(r"cleantail\..*_.*", name)}
    beginnings = {name.split(".")[0] for name in known}
    looks_like_one = {name for name in named - modules_and_tables if name.split(".")[0] in beginnings}
    assert len(named & known) >= 30
    assert looks_like_one - known == set()


def test_every_variable_of_the_environment_that_the_pages_name_is_read_somewhere():
    read = set(re.findall(r"CLEANTAIL_[A-Z0-9_]+", CODE))
    beginnings = tuple(name for name in read if name.endswith("_"))
    named = set(re.findall(r"CLEANTAIL_[A-Z0-9_]+[A-Z0-9]", TEXT))
    assert len(named) >= 9
    assert {name for name in named - read if not name.startswith(beginnings)} == set()


def test_the_table_of_exit_codes_has_those_of_the_errors():
    rows = re.findall(r"^\| (\d+) \|", PAGES["docs/command-line.md"], re.MULTILINE)
    errors = {
        e.exit_code for e in vars(errors_module).values() if isinstance(e, type) and issubclass(e, CleantailError)
    }
    assert {int(code) for code in rows} == errors | {0, 1, 130}

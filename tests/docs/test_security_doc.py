"""SECURITY.md names only what exists: its links have targets, its settings exist, and each role has a row."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cleantail.config.alert_channels import Channel
from cleantail.config.loading import load_platform
from cleantail.config.platform import PlatformSettings, Spark
from cleantail.config.platform_configs import LimitConfigs
from cleantail.config.topic import Topic

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "SECURITY.md").read_text()
CODE = re.findall(r"`([^`\n]+)`", TEXT)


def keys_of(model: type[Any]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def anchors(file: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)]+)\)", TEXT))))
def test_every_link_leads_to_a_file_and_a_heading(link: str) -> None:
    name, _, anchor = link.partition("#")
    assert (ROOT / name).is_file()
    assert not anchor or anchor in anchors(ROOT / name)


def test_every_setting_of_the_platform_that_it_names_exists() -> None:
    named = {word.split("=")[0] for word in CODE if re.fullmatch(r"platform\.[a-z_.]+", word)}
    known = {f"platform.{key}" for key in keys_of(PlatformSettings)}
    known |= {f"platform.spark.{key}" for key in keys_of(Spark)}
    assert len(named) >= 5
    assert named - known == set()


def test_every_limit_is_named_and_no_other() -> None:
    assert {word for word in CODE if re.fullmatch(r"[a-z]+\.max\.[a-z]+", word)} == keys_of(LimitConfigs)


def test_every_key_of_a_topic_that_it_names_exists() -> None:
    keys = {match[1] for word in CODE if (match := re.fullmatch(r"([a-z_]+):(?: [a-z]+)?", word))}
    assert {"publish", "approvers"} <= keys
    assert keys - keys_of(Topic) - keys_of(Channel) == set()


def test_the_defaults_allow_no_other_clock_and_no_insecure_spark() -> None:
    platform = load_platform(ROOT / "config", {})
    assert not platform.allow_clock and not platform.spark.insecure


def test_every_target_of_make_that_it_names_exists() -> None:
    targets = (ROOT / "Makefile").read_text()
    found = [word.removeprefix("make ") for word in CODE if word.startswith("make ")]
    assert found and all(re.search(rf"^{target}:", targets, re.MULTILINE) for target in found)


@pytest.mark.parametrize(
    "who",
    ["Producers", "Owner of a sink", "Author of one", "Viewer", "Editor", "Approver", "Admin, operator", "Other users"],
)
def test_each_role_has_a_complete_row(who: str) -> None:
    [row] = [line for line in TEXT.splitlines() if line.startswith("| **") and who in line]
    assert row.count("|") == 5 and all(cell.strip() for cell in row.split("|")[1:-1])


def test_the_readme_leads_there_in_one_line() -> None:
    assert len(re.findall(r"\]\(SECURITY\.md\)", (ROOT / "README.md").read_text())) == 1

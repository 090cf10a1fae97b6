"""A topic's source.path means files of the folders that the platform names, and no other, however it is written."""

import json
import os
import subprocess

import pytest

from cleantail.config.loading import find_topic, load_platform
from cleantail.config.source_paths import MOST_ENTRIES, matching_files, require_inside
from cleantail.errors import CleantailError, ConfigError, OutsideError
from cleantail.sources.kcat import read_records
from cleantail_cli import main
from tests.unprivileged import as_nobody, open_folder

LINE = '{"partition": 0, "offset": 0, "key": "a", "payload": "1"}\n'


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "home"
    for file in ("landing/a/1.jsonl", "landing/a/2.jsonl", "landing/b/deep/3.jsonl", "landing/.hidden/4.jsonl"):
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).write_text(LINE)
    (home / "airflow").mkdir()
    (home / "airflow" / "passwords.json").write_text("{}")
    home.chmod(0o700)
    return home


@pytest.fixture
def config(tmp_path):
    (tmp_path / "config" / "topics").mkdir(parents=True)
    return tmp_path / "config"


@pytest.fixture
def platform(config, home):
    return load_platform(config, {"CLEANTAIL_HOME": str(home)})


def names(platform, pattern):
    return [str(file.relative_to(platform.home)) for file in matching_files(platform, pattern)]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("landing/a/*.jsonl", ["landing/a/1.jsonl", "landing/a/2.jsonl"]),
        ("landing/a/1.jsonl", ["landing/a/1.jsonl"]),
        ("landing/?/[12].jsonl", ["landing/a/1.jsonl", "landing/a/2.jsonl"]),
        ("landing/**/*.jsonl", ["landing/a/1.jsonl", "landing/a/2.jsonl", "landing/b/deep/3.jsonl"]),
        ("landing/**", ["landing/a/1.jsonl", "landing/a/2.jsonl", "landing/b/deep/3.jsonl"]),
        ("landing/**/deep/**/3.jsonl", ["landing/b/deep/3.jsonl"]),
        ("landing/.hidden/*", ["landing/.hidden/4.jsonl"]),
        ("./landing//a/./2.jsonl", ["landing/a/2.jsonl"]),
        ("landing/c/*", []),
        ("landing/a", []),
    ],
)
def test_files_in_the_landing_folder_match_as_in_a_shell(platform, pattern, expected):
    assert names(platform, pattern) == expected


def write(config, path, defaults=""):
    (config / "defaults.yaml").write_text(defaults)
    (config / "topics" / "mine.yaml").write_text(f"topic: mine\nsource:\n  path: {json.dumps(path)}\n")


@pytest.mark.parametrize(
    "path",
    ["/etc/host*", "/**", "**", "*", "*/victim/*.jsonl", "airflow/*.json", "alerts/*", "landing-of-others/x", "l*/a/*"],
)
def test_a_path_outside_the_landing_folder_is_an_error_of_the_file(config, home, path):
    write(config, path)
    with pytest.raises(ConfigError, match="mine.yaml:3: source.path: ") as caught:
        find_topic("mine", config, {"CLEANTAIL_HOME": str(home)})
    assert str(caught.value).endswith(
        f"{json.dumps(path)} is not allowed: a path that begins, before its first * ? or [, in one of the folders that "
        f"platform.sources in defaults.yaml names: {home}/landing"
    )


def test_the_platform_names_other_folders(config, home, tmp_path):
    sources = f"platform: {{sources: [drop, {tmp_path}/nfs/lake]}}"
    env = {"CLEANTAIL_HOME": str(home)}
    for path in ("drop/*.jsonl", f"{home}/drop/x", f"{tmp_path}/nfs/lake/**/*.jsonl"):
        write(config, path, sources)
        assert find_topic("mine", config, env).source.path == path
    for path in ("landing/*", f"{tmp_path}/nfs/lakes/*", f"{tmp_path}/nfs/*/x"):
        write(config, path, sources)
        with pytest.raises(ConfigError, match=r"source\.path: .* is not allowed: a path that begins"):
            find_topic("mine", config, env)


def test_no_folder_named_is_no_source(config, home):
    write(config, "landing/x", "platform: {sources: []}")
    with pytest.raises(ConfigError, match=r"defaults.yaml names: none$"):
        find_topic("mine", config, {"CLEANTAIL_HOME": str(home)})


@pytest.mark.parametrize(
    "root", ["/", ".", "", "../x", "a/../..", "airflow", "warehouse/x", "l*", "alerts", "packs/x", "page"], ids=repr
)
def test_a_root_is_a_folder_that_is_not_cleantails_own(config, root):
    (config / "defaults.yaml").write_text(f"platform: {{sources: [{json.dumps(root)}]}}")
    with pytest.raises(ConfigError, match=r"platform\.sources(\[0\])?: .* is not allowed: a"):
        load_platform(config)


def test_a_link_out_of_the_landing_folder_is_refused_by_name(platform):
    outside = platform.home / "airflow" / "passwords.json"
    (platform.home / "landing" / "a" / "0.jsonl").symlink_to(outside)
    with pytest.raises(
        CleantailError, match=r"landing/a/0\.jsonl, a link to .*passwords\.json, is not a file of this topic"
    ):
        matching_files(platform, "landing/a/*.jsonl")
    (platform.home / "landing" / "out").symlink_to(outside.parent)
    with pytest.raises(CleantailError, match=r"it is not in one of the folders that platform\.sources .*home/landing;"):
        matching_files(platform, "landing/*/*.json")
    with pytest.raises(CleantailError, match=r"source\.path landing/out/\*\.json is not allowed: a path that begins"):
        matching_files(platform, "landing/out/*.json")


def test_a_link_within_the_landing_folder_is_the_file_that_it_leads_to_once(platform):
    (platform.home / "landing" / "a" / "0.jsonl").symlink_to("1.jsonl")
    (platform.home / "landing" / "current").symlink_to("b/deep")
    assert names(platform, "landing/a/*.jsonl") == ["landing/a/1.jsonl", "landing/a/2.jsonl"]
    assert names(platform, "landing/current/*.jsonl") == ["landing/b/deep/3.jsonl"]


@pytest.mark.parametrize(
    ("link", "to", "pattern"),
    [
        ("landing/a/0.jsonl", "../b/deep/3.jsonl", "landing/a/*.jsonl"),
        ("landing/a/sub", "../b", "landing/a/*/deep/*.jsonl"),
        ("landing/a/0.jsonl", "../b/deep/3.jsonl", "landing/a/0.jsonl"),
    ],
    ids=["file", "folder", "no star"],
)
def test_a_link_to_what_another_topic_has_landed_is_refused_by_name(platform, link, to, pattern):
    (platform.home / link).symlink_to(to)
    with pytest.raises(CleantailError, match=r"a link to .*3\.jsonl, is not a file of this topic: .*/landing/a, where"):
        matching_files(platform, pattern)


def test_a_landing_folder_that_is_a_link_is_what_it_leads_to(config, tmp_path, home):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "x.jsonl").write_text(LINE)
    (home / "drop").symlink_to(tmp_path / "disk")
    (config / "defaults.yaml").write_text("platform: {sources: [drop]}")
    platform = load_platform(config, {"CLEANTAIL_HOME": str(home)})
    assert matching_files(platform, "drop/*") == [tmp_path / "disk" / "x.jsonl"]


def test_two_stars_go_through_no_link_and_so_in_no_circle(platform):
    (platform.home / "landing" / "b" / "circle").symlink_to("..")
    (platform.home / "landing" / "b" / "etc").symlink_to("/etc")
    assert names(platform, "landing/**/*.jsonl") == ["landing/a/1.jsonl", "landing/a/2.jsonl", "landing/b/deep/3.jsonl"]


def test_a_search_ends_after_so_many_files(platform, monkeypatch):
    assert MOST_ENTRIES == 100_000
    monkeypatch.setattr("cleantail.config.source_paths.MOST_ENTRIES", 4)
    with pytest.raises(CleantailError, match=r"landing/\*\*/x searches more than 4 files and folders; nothing was"):
        matching_files(platform, "landing/**/x")
    assert names(platform, "landing/a/*") == ["landing/a/1.jsonl", "landing/a/2.jsonl"]


@pytest.fixture
def deep(platform):
    """A folder 1500 folders deep, which Python's own rmtree cannot take away."""
    yield platform.home / "landing"
    subprocess.run(["rm", "-rf", str(platform.home / "landing" / "d")], check=True)


def test_a_folder_however_deep_is_searched(platform, deep):
    descriptor = os.open(deep, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    assert names(platform, "landing/**/3.jsonl") == ["landing/b/deep/3.jsonl"]


def test_a_file_that_a_link_has_replaced_since_is_not_read(platform):
    (file,) = matching_files(platform, "landing/a/1.jsonl")
    secret = platform.home / "secret"
    secret.write_text(LINE)
    file.unlink()
    file.symlink_to(secret)
    with pytest.raises(CleantailError, match=r"1\.jsonl cannot be read: a part of its path is a link; nothing was"):
        list(read_records(file))
    with pytest.raises(CleantailError, match="is not a file of this topic"):
        require_inside(file, platform)


def test_check_config_sees_a_link_that_leads_out(config, home, monkeypatch, capsys):
    monkeypatch.setenv("CLEANTAIL_HOME", str(home))
    (home / "landing" / "out").symlink_to("/etc")
    write(config, "landing/out/host*")
    assert main(["check-config", "--config", str(config)]) == 2
    said = "".join(capsys.readouterr())
    assert 'mine.yaml:3: source.path: "landing/out/host*" is not allowed: a path that begins' in said


@pytest.mark.parametrize(
    ("mode", "pattern"),
    [
        pytest.param(0, "landing/a/*.jsonl", id="not to be listed"),
        pytest.param(0, "landing/**/*.jsonl", id="somewhere below"),
        pytest.param(0, "landing/a/1.jsonl", id="a name in it"),
        pytest.param(0o744, "landing/a/*.jsonl", id="listed and not to be gone through"),
    ],
)
def test_an_unreadable_landing_folder_is_an_error_and_not_empty(config, mode, pattern):
    with open_folder() as home:
        folder = home / "landing" / "a"
        folder.mkdir(parents=True)
        (folder / "1.jsonl").write_text(LINE)
        platform = load_platform(config, {"CLEANTAIL_HOME": str(home)})
        assert len(matching_files(platform, pattern)) == 1
        folder.chmod(mode)
        with as_nobody(), pytest.raises(OutsideError, match=r"landing/a.* cannot be read \(Permission denied\)"):
            matching_files(platform, pattern)
        folder.chmod(0o755)

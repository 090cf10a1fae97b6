"""CLEANTAIL_HOME is made for its owner alone, and nothing is appended through a link in it."""

import os
import stat
import threading

import pytest

from cleantail.config.loading import load_platform
from cleantail.errors import CleantailError
from cleantail.home.home_folder import append_line, exclusive, make_folder, make_home, open_resolved, open_to_others
from cleantail.lake.catalogs import open_catalog
from cleantail_cli import main


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def home(tmp_path):
    return tmp_path / "above" / "home"


def by_lock(home):
    with exclusive(home, "x"):
        pass


def by_catalog(home):
    config = home.parent.parent / "config"
    config.mkdir()
    open_catalog(load_platform(config, {"CLEANTAIL_HOME": str(home)}))


@pytest.mark.parametrize(
    "make",
    [make_home, lambda home: make_folder(home, "data_docs", "orders"), by_lock, by_catalog]
    + [lambda home: append_line(home, "alerts/x.jsonl", "{}")],
    ids=["home", "folder", "lock", "catalog", "alert"],
)
def test_a_new_home_is_open_to_its_owner_alone(home, make):
    make(home)
    assert (mode(home), mode(home.parent)) == (0o700, 0o755)
    assert open_to_others(home) is None


def test_an_existing_open_home_is_reported_and_not_changed(home):
    home.mkdir(parents=True)
    make_folder(home, "locks")
    assert mode(home) == 0o755
    assert open_to_others(home) == (
        f"CLEANTAIL_HOME {home} is open to users other than its owner (mode 0755), and with it tables, landed files and "
        f"alerts: chmod 700 {home}"
    )


@pytest.mark.parametrize(("bits", "warned"), [(0o700, False), (0o750, True), (0o701, True), (0o770, True)])
def test_any_permission_of_group_or_others_on_the_home_is_reported(home, bits, warned):
    make_home(home)
    home.chmod(bits)
    assert bool(open_to_others(home)) is warned


def test_a_home_that_is_not_there_yet_is_not_warned_of(home):
    assert open_to_others(home) is None


@pytest.mark.parametrize("command", ["status", "check-config"])
def test_commands_warn_once_of_an_open_home(project, monkeypatch, capsys, command):
    home = project / "open"
    home.mkdir()
    monkeypatch.setenv("CLEANTAIL_HOME", str(home))
    monkeypatch.setenv("CLEANTAIL_CONFIG", str(project / "config"))
    assert main([command]) == 0
    said = "".join(capsys.readouterr())
    assert said.count("is open to users other than its owner (mode 0755)") == 1
    home.chmod(0o700)
    assert main([command]) == 0
    assert "open to others" not in "".join(capsys.readouterr())


def test_a_file_of_alerts_is_its_owners_and_gets_a_line_each_time(home):
    for number in range(3):
        append_line(home, "alerts/team/orders.jsonl", f"{number}")
    file = home / "alerts" / "team" / "orders.jsonl"
    assert file.read_text() == "0\n1\n2\n"
    assert (mode(file), mode(file.parent), mode(file.parent.parent)) == (0o600, 0o700, 0o700)


def test_a_line_after_one_that_was_cut_is_a_line_of_its_own(home):
    append_line(home, "alerts/cut.jsonl", "{}")
    with (home / "alerts" / "cut.jsonl").open("a") as file:
        file.write('{"cut')
    append_line(home, "alerts/cut.jsonl", "{}")
    assert (home / "alerts" / "cut.jsonl").read_text().splitlines() == ["{}", '{"cut', "{}"]


def test_lines_of_parallel_tasks_do_not_mix(home):
    lines = [f"{number}" * 2000 for number in range(8)]
    threads = [threading.Thread(target=append_line, args=(home, "alerts/x.jsonl", line)) for line in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((home / "alerts" / "x.jsonl").read_text().splitlines()) == sorted(lines)


@pytest.mark.parametrize("link", ["alerts", "alerts/team", "alerts/team/x.jsonl"])
def test_no_link_is_followed_on_the_way_to_a_file_of_alerts(home, link):
    victim = home / "airflow" / "passwords.json"
    make_folder(home, "airflow")
    victim.write_text("{}")
    (home / "airflow" / "x.jsonl").write_text("")
    (home / link).parent.mkdir(parents=True, exist_ok=True)
    (home / link).symlink_to(victim if link.endswith("jsonl") else victim.parent)
    with pytest.raises(CleantailError, match=r"x\.jsonl cannot be written without following links"):
        append_line(home, "alerts/team/x.jsonl", "{}")
    assert [victim.read_text(), (home / "airflow" / "x.jsonl").read_text()] == ["{}", ""]
    assert sorted(path.name for path in victim.parent.iterdir()) == ["passwords.json", "x.jsonl"]


def test_another_name_of_a_file_and_a_pipe_are_no_files_of_alerts(home):
    folder, victim = make_folder(home, "alerts"), home / "secret"
    victim.write_text("")
    os.link(victim, folder / "hard.jsonl")
    os.mkfifo(folder / "pipe.jsonl")
    for name in ("hard", "pipe"):
        with pytest.raises(CleantailError, match=rf"{name}\.jsonl is not a regular file, or has a second name"):
            append_line(home, f"alerts/{name}.jsonl", "{}")
    assert victim.read_text() == ""


def test_a_path_that_was_resolved_is_opened_without_links(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_text("x")
    os.close(open_resolved(tmp_path / "a" / "x"))
    (tmp_path / "b").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "y").symlink_to(tmp_path / "a" / "x")
    for path in (tmp_path / "b" / "x", tmp_path / "a" / "y"):
        with pytest.raises(OSError, match=r"Not a directory|Too many levels of symbolic links"):
            open_resolved(path)

"""What `make test-compose` does to an engine and a machine, without containers. `docker` and `go` are scripts here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.compose import engine
from tests.compose.__main__ import BUILT, IMAGE, checkout_of, use
from tests.compose.engine import LABEL, OWN, ROOT, Engine, Failed, labelled, run

PINNED = "{}@sha256:" + "0" * 64


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of PATH."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def script(file: Path, text: str) -> None:
    file.write_text(f'#!/bin/sh\necho "$@" >> {file}.calls\n{text}\n')
    file.chmod(0o755)


def calls(file: Path) -> list[str]:
    return Path(f"{file}.calls").read_text().splitlines()


def an_engine(work: Path) -> Engine:
    work.mkdir()
    return Engine(work, lambda text: None, keep=False)


def test_an_engine_that_was_there_keeps_its_images_and_loses_those_of_the_test(program: Path, tmp_path: Path) -> None:
    """It has Python's image. The others are pulled."""
    script(program / "docker", 'case "$*" in "image inspect python"*) exit 0 ;; "image inspect"*) exit 1 ;; esac')
    with an_engine(tmp_path / "work") as there:
        assert not there.is_own
        there.base(ROOT / "deploy/Dockerfile")
        there.others(ROOT / "docker-compose.yaml")
        assert not there.stand_ins
    deleted = [call for call in calls(program / "docker") if call.startswith(("image rm", "image prune"))]
    assert {re.sub(r"\w{64}", "", call) for call in deleted} == {
        "image rm postgres@sha256:",
        "image rm apache/kafka@sha256:",
        "image rm rustfs/rustfs@sha256:",
        f"image prune --all --force --filter label={LABEL}",
    }


def test_without_a_registry_and_without_packages_the_test_says_what_it_needs(program: Path, tmp_path: Path) -> None:
    script(program / "docker", 'case "$*" in "image inspect"*|pull*) exit 1 ;; esac')
    needed = "debootstrap: to install them this needs root, and Debian's apt-get"
    with pytest.raises(Failed, match=needed), an_engine(tmp_path / "work") as there:
        there.base(ROOT / "deploy/Dockerfile")


def test_without_an_engine_and_without_go_the_test_says_what_it_needs(program: Path, tmp_path: Path) -> None:
    with pytest.raises(Failed, match="to install one this needs Go"):
        an_engine(tmp_path / "work").__enter__()


def test_an_engine_without_compose_is_refused(program: Path, tmp_path: Path) -> None:
    script(program / "docker", 'case "$*" in compose*) exit 1 ;; esac')
    with pytest.raises(Failed, match="it has no `docker compose`"):
        an_engine(tmp_path / "work").__enter__()


def test_a_program_that_is_missing_is_named(program: Path) -> None:
    with pytest.raises(Failed, match="debootstrap is not installed"):
        run(["debootstrap", "--variant=minbase"])


def test_all_that_go_fetches_and_compiles_is_in_the_work_folder(program: Path, tmp_path: Path) -> None:
    into = tmp_path / "go"
    script(program / "go", f"/usr/bin/env > {tmp_path}/env")
    assert engine._go(engine.COMPOSE, into) == into / "cmd"
    used = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if line.startswith("GO"))
    for name in ("GOBIN", "GOPATH", "GOMODCACHE", "GOCACHE"):
        assert Path(used[name]).is_relative_to(into), name


@pytest.mark.parametrize("recipe", ["BASE", "POSTGRES", "KAFKA", "STORE"])
def test_an_image_has_the_label_before_its_first_layer(recipe: str) -> None:
    lines = labelled(getattr(engine, recipe), "a-name").splitlines()
    assert lines[0].startswith("FROM ") and lines[1] == f"LABEL {LABEL}=a-name"


def test_the_copy_uses_names_of_its_own_and_all_that_it_builds_has_the_label(tmp_path: Path) -> None:
    copy = checkout_of(tmp_path)
    compose, dockerfile = copy / "docker-compose.yaml", copy / "deploy/Dockerfile"
    services = yaml.safe_load(compose.read_text())["services"].values()
    base = re.findall(r"^FROM (\S+)", dockerfile.read_text(), re.MULTILINE)
    pinned = {*base, *(s["image"] for s in services if "build" not in s)}
    names = {image: OWN + image.partition("@")[0] for image in pinned}
    use(names, dockerfile)
    use({**names, f"image: {BUILT}": f"image: {IMAGE}"}, compose)
    assert all(s["image"].startswith(OWN) for s in yaml.safe_load(compose.read_text())["services"].values())
    [begin, then, *_] = [line for line in dockerfile.read_text().splitlines() if line and not line.startswith("#")]
    assert begin.startswith(f"FROM {OWN}python:") and then == f"LABEL {LABEL}={IMAGE}"

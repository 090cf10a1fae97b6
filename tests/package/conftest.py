"""The wheel, built once, in environments of its own: outside of the repository, with nothing of this process's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.package.clean_environment import CleanEnvironment, built_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Where the environments and what they write are: far from the repository."""
    with TemporaryDirectory(prefix="cleantail-package-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def everything(wheel: Path, place: Path) -> CleanEnvironment:
    """`pip install cleantail[all]`, with the packages that are tested here."""
    return CleanEnvironment.made(place, "everything", wheel, ("all",))


@pytest.fixture(scope="module")
def base(wheel: Path, place: Path) -> CleanEnvironment:
    """`pip install cleantail`: no Airflow, no Spark, no Kafka client."""
    return CleanEnvironment.made(place, "base", wheel, ())


@pytest.fixture(scope="session")
def fetched_jars() -> Path:
    """The jars that `make setup` has fetched."""
    return Path(os.environ.get("CLEANTAIL_JARS") or Path(__file__).parents[2] / ".cleantail" / "jars").absolute()

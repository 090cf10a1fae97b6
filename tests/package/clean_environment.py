"""A virtual environment with the wheel and the packages that it asks for, as links to those that are installed here.

A whole installation takes half a minute and has to compile Airflow anew; links take a second. What `pip` would not bring
is not linked: so an import of what a wheel without extras does not bring fails here too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.parser import Parser
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
KEPT = ("LANG", "JAVA_HOME", "TMPDIR", "SSL_CERT_FILE")
"""What a process there gets of this one's environment, beside PATH."""


def built_wheel(folder: Path) -> Path:
    """Builds the wheel from the repository, by the backend of pyproject.toml."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


@dataclass(frozen=True)
class CleanEnvironment:
    """A virtual environment in `folder`; what its processes write is in `home`, which environments of one place share."""

    folder: Path
    home: Path

    @classmethod
    def made(cls, place: Path, name: str, wheel: Path, extras: tuple[str, ...]) -> CleanEnvironment:
        made = cls(place / name, place / "home")
        made.home.mkdir(exist_ok=True)
        uv = Path(sys.executable).with_name("uv")
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, made.folder], check=True)
        install = [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", made.python, wheel]
        subprocess.run(install, check=True)
        made._link(wheel, extras)
        return made

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        """Its site-packages."""
        (site,) = self.folder.glob("lib/python*/site-packages")
        return site

    def env(self, **more: str) -> dict[str, str]:
        """What a process of it sees: a home of its own, and nothing of Airflow's or Cleantail's."""
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        path = f"{self.folder / 'bin'}:/usr/local/bin:/usr/bin:/bin"
        airflow = {"AIRFLOW_HOME": str(self.home / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        return {**kept, "PATH": path, "HOME": str(self.home), **airflow, **more}

    def run(self, *command: str | Path, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of it, outside of the repository."""
        done = subprocess.run(
            [self.folder / "bin" / command[0], *command[1:]],
            cwd=self.home,
            env=self.env(**env),
            capture_output=True,
            text=True,
        )
        assert not check or done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def _link(self, wheel: Path, extras: tuple[str, ...]) -> None:
        """Makes a folder of links to the packages that the wheel asks for, and names it to the environment."""
        links = self.folder / "links"
        links.mkdir()
        for dist in _required(_requirements(wheel), extras):
            site = Path(str(dist.locate_file("")))
            for name in {Path(str(file)).parts[0] for file in dist.files or ()} - {"..", "__pycache__"}:
                if not (links / name).exists() and (site / name).exists():
                    (links / name).symlink_to(site / name)
        (self.site / "links.pth").write_text(f"{links}\n")
        if (links / "pyspark").exists():
            for script in ("spark-submit", "spark-class", "find-spark-home", "find_spark_home.py", "load-spark-env.sh"):
                (self.folder / "bin" / script).symlink_to(Path(sys.executable).with_name(script))


def _requirements(wheel: Path) -> list[Requirement]:
    with zipfile.ZipFile(wheel) as files:
        (name,) = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
        text = files.read(name).decode()
    return [Requirement(line) for line in Parser().parsestr(text).get_all("Requires-Dist") or ()]


def _required(requirements: Iterable[Requirement], extras: Iterable[str]) -> Iterator[Distribution]:
    """Yields the installed packages that these requirements and extras bring, each once."""
    of_wheel = list(requirements)
    open_requirements = [(each, frozenset(extras)) for each in of_wheel]
    seen: set[tuple[str, frozenset[str]]] = set()
    while open_requirements:
        requirement, asked = open_requirements.pop()
        if not _is_meant(requirement, asked):
            continue
        name, wanted = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        if name == "cleantail":
            open_requirements += [(each, wanted) for each in of_wheel]
            continue
        try:
            dist = distribution(name)
        except PackageNotFoundError:  # of another platform
            continue
        yield dist
        open_requirements += [(Requirement(each), wanted) for each in dist.requires or ()]


def _is_meant(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in (extras or {""}) | {""})

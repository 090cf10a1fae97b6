"""State that earlier versions themselves have made, of commits of this repository, and this version after them.

It needs the repository's history, and an environment in which the earlier commit runs.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
VERSION_0_1_0, BEFORE_PACKAGE = "60e7974", "eca6394"
"""The last commit of 0.1.0, and the last one before the package and groups."""
MASTERS = {VERSION_0_1_0: {"columnar": "always"}, BEFORE_PACKAGE: {"insecure": True}}
SHORT = {"expectation": "expect_column_value_lengths_to_be_between", "kwargs": {"column": "key", "max_value": 3}}
SEGMENTS = {"segment.ms": 1, "delete.retention.ms": 1000}
LEFT_WAITING = {
    VERSION_0_1_0: "import spark_jobs.rounds as rounds; rounds._dropped_if_held = lambda t, p, r: {**r, 'checked': None}",
    BEFORE_PACKAGE: "import spark_jobs.round.run as rounds; rounds.drop_if_waiting = lambda run, result: result",
}
"""What lets a command of that commit leave its round waiting, as a task of a DAG does."""
TASK = ("asks", "manual__1", "approve")


def archived(commit: str, place: Path) -> None:
    """Unpacks the packages of a commit; skips where the history is not there."""
    command = ["git", "archive", commit, "cleantail", "spark_jobs", "plugins"]
    made = subprocess.run(command, cwd=REPOSITORY, capture_output=True)
    if made.returncode:
        pytest.skip(f"commit {commit} is not in this checkout")
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as tar:
        tar.extractall(place, filter="data")


@dataclass
class Site:
    """A team's configuration and state, and whichever version works on it."""

    place: Path

    @property
    def config(self) -> Path:
        return self.place / "config"

    def write(self, name: str, content: object) -> None:
        (self.config / name).write_text(json.dumps(content))

    def land(self, topic: str, *records: tuple[int, str, str | None]) -> Path:
        rows = [
            {"topic": topic, "partition": 0, "offset": o, "tstype": "create", "ts": o + 1, "key": k, "payload": v}
            for o, k, v in records
        ]
        file = self.place / f"{topic}-{records[0][0]}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return file

    def python(self, code: Path, *argv: str) -> subprocess.CompletedProcess[str]:
        jars = os.environ.get("CLEANTAIL_JARS") or str(REPOSITORY / ".cleantail" / "jars")
        own = {"PYTHONPATH": str(code), "CLEANTAIL_HOME": str(self.place / ".cleantail"), "CLEANTAIL_JARS": jars}
        env = os.environ | own
        return subprocess.run([sys.executable, *argv], cwd=code, env=env, capture_output=True, text=True)

    def run(self, code: Path, *argv: object, before: str = "") -> tuple[int, str, str]:
        """Runs a command of the version in `code`; `before`: what its process does first."""
        script = f"{before}\nimport sys\nfrom cleantail.cli import main\nsys.exit(main())"
        made = self.python(code, "-c", script, *map(str, argv), "--config", str(self.config))
        return made.returncode, made.stdout, made.stderr

    def json(self, code: Path, *argv: object) -> dict[str, object]:
        return json.loads(self.run(code, *argv, "--json")[1].splitlines()[-1])

    def offsets(self, code: Path, topic: str) -> list[int]:
        out = self.run(code, "read", topic)[1]
        return sorted(json.loads(line)["offset"] for line in out.splitlines())


@pytest.fixture(params=[VERSION_0_1_0, BEFORE_PACKAGE])
def commit(request):
    return request.param


@pytest.fixture
def old(commit, tmp_path):
    archived(commit, tmp_path / "old")
    return tmp_path / "old"


@pytest.fixture
def site(commit, old, tmp_path):
    """Red has a partition in quarantine, and a round of `asks` waits for an approval."""
    site = Site(tmp_path / "site")
    (site.config / "topics").mkdir(parents=True)
    site.write("defaults.yaml", {"platform": {"spark": {"master": "local[2]", **MASTERS[commit]}}})
    site.write("topics/red.yaml", {"topic": "red", "config": SEGMENTS, "checks": [SHORT]})
    site.write("topics/asks.yaml", {"topic": "asks", "config": SEGMENTS, "publish": "approve"})
    red, asks = (
        site.land("red", (0, "long key", "x"), (1, "long key", "y")),
        site.land("asks", (0, "a", "x"), (1, "a", "y")),
    )
    assert site.run(old, "ingest", "red", "--file", red)[0] == 0
    assert site.run(old, "compact", "red")[0] == 1
    assert site.run(old, "ingest", "asks", "--file", asks)[0] == 0
    site.run(old, "compact", "asks", before=LEFT_WAITING[commit])
    return site


PUBLISHED = """
import json, os, sys
from pathlib import Path
from cleantail.config.loading import find_topic, load_platform
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.recorded_rounds import recorded_round
from cleantail.rounds.answers import answered, question, write_answer
from cleantail.rounds.checked.recorded_checks import REFERENCE_JSON, RoundReference
config, name, task = sys.argv[1:4]
platform, topic = load_platform(Path(config), os.environ), find_topic("asks", Path(config), os.environ)
catalog = open_catalog(platform, os.environ)
checked = recorded_round(catalog, platform, topic, name, "compact")
asked = question(checked, (task,), 1)
write_answer(catalog, topic, answered(asked, (task,), True, {"id": "anna", "name": "Anna"}, 2))
from spark_jobs import publish
told = REFERENCE_JSON.text(RoundReference(name, tuple(checked.heads), tuple(checked.green)))
sys.exit(publish.main(["--config", config, "--topic", "asks", "--round", told, "--result", sys.argv[4]]))
"""
"""Anna approves the round that waits, and the job publishes it."""
WAITING = """
import os, sys
from pathlib import Path
from cleantail.config.loading import load_platform
from cleantail.lake.catalogs import open_catalog
refs = open_catalog(load_platform(Path(sys.argv[1]), os.environ), os.environ).load_table("cleantail.asks").metadata.refs
print(*(name.split("_u")[0].removeprefix("ct_") for name in refs if name.startswith("ct_")))
"""


@pytest.mark.deep
def test_this_version_goes_on_where_the_one_before_stopped_and_that_one_after_it(commit, old, site):
    # 1. what is there
    first = site.json(REPOSITORY, "upgrade", "--dry-run")
    found = {(change["area"], change["by"]) for change in first["changes"]}
    if commit == VERSION_0_1_0:
        assert site.run(REPOSITORY, "status")[0] == 2  # a key that is gone
        areas = {"configuration", "table", "evidence", "Data Docs"}
        assert found == {(area, "upgrade") for area in areas} | {("round", "itself")}
    else:
        assert found == set()
    # 2. upgraded once
    assert site.run(REPOSITORY, "upgrade")[0] == 0
    after = site.json(REPOSITORY, "upgrade")
    assert {change["by"] for change in after["changes"]} <= {"itself"}
    assert (site.run(REPOSITORY, "check-config")[0], site.run(REPOSITORY, "status")[0]) == (0, 0)
    # 3. the quarantine
    [log] = site.json(REPOSITORY, "status", "red")["topics"]["red"]
    assert log["state"]["quarantine"]["reason"].startswith("check failed")
    site.write("topics/red.yaml", {"topic": "red", "config": SEGMENTS})
    assert site.run(REPOSITORY, "release", "red", 0)[0] == 0
    assert site.run(REPOSITORY, "compact", "red")[0] == 0
    assert site.offsets(REPOSITORY, "red") == [1]
    # 4. the approval
    waiting = site.python(REPOSITORY, "-c", WAITING, str(site.config)).stdout.split()
    assert len(waiting) == 1
    result = str(site.place / "result.json")
    published = site.python(REPOSITORY, "-c", PUBLISHED, str(site.config), waiting[0], "task", result)
    if commit == VERSION_0_1_0:
        assert "was checked by an earlier version" in published.stderr
        assert site.offsets(REPOSITORY, "asks") == [0, 1]
        assert site.run(REPOSITORY, "compact", "asks", "--approve")[0] == 0
    else:
        assert published.returncode == 0, published.stderr
    assert site.offsets(REPOSITORY, "asks") == [1]
    # 5. and back
    for kept in (site.place / ".cleantail" / "upgrades").glob("*/config/defaults.yaml"):
        (site.config / "defaults.yaml").write_text(kept.read_text())
    more = site.land("red", (2, "long key", "z"), (3, "b", None))
    assert site.run(old, "ingest", "red", "--file", more)[0] == 0
    assert site.run(old, "compact", "red")[0] == 0
    assert site.offsets(old, "red") == [2, 3]
    # 6. and forward again, with a delete in the log that the version before has written
    assert site.run(REPOSITORY, "upgrade")[0] == 0
    again = site.land("red", (4, "b", "back"))
    assert site.run(REPOSITORY, "ingest", "red", "--file", again)[0] == 0
    assert site.run(REPOSITORY, "compact", "red", "--force")[0] == 0
    assert site.offsets(REPOSITORY, "red") == [2, 4]

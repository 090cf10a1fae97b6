"""An erasure that dies at any commit, or at any deletion of a file, is ended by a plain run of the same command."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cleantail.erasure.certificate import public_pem, signing_key, verified
from cleantail.lake.spark_settings import SMALL_RUN
from tests.jobs.round.dying_commands import DIED
from tests.jobs.round.test_erasure import GONE, SECRETS, VALUE, lines
from tests.jobs.round.test_rounds import NOW, record
from tests.markers import traces

TOPIC = "dying"
SETTINGS = {
    "segment.ms": 1,
    "delete.retention.ms": 1000,
    "compaction.strategy": "timestamp",
    "cleantail.tombstone.lateness.ms": 10**12,  # the table of deleted versions remembers the erased keys
}
PARTS = 6
pytestmark = pytest.mark.deep


@dataclass
class Site:
    """A CLEANTAIL_HOME with a topic that has an erasure to do, and the process that runs commands on it."""

    folder: Path
    process: subprocess.Popen[str]

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def answer(self) -> int:
        assert self.process.stdout is not None
        return int(json.loads(self.process.stdout.readline())["code"])

    def run(self, *argv: object, at: int | None = None) -> tuple[int, str]:
        """Run a command; let it die at a point. Return its exit code, and what it has printed."""
        assert self.process.stdin is not None
        request = {"argv": [*map(str, argv)], "at": at, "out": str(self.folder / "out")}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        code = self.answer()
        return code, (self.folder / "out" / "stdout").read_text()

    def ok(self, *argv: object) -> str:
        code, out = self.run(*argv)
        assert code == 0, out + (self.folder / "out" / "stderr").read_text()
        return out

    @property
    def points(self) -> list[str]:
        """The points that the last command has passed."""
        return (self.folder / "out" / "points").read_text().splitlines()

    def keep(self) -> None:
        """Remember what is there now."""
        shutil.copytree(self.home, self.folder / "kept")

    def restore(self) -> None:
        """Make it what it was when it was kept. The catalog stays open in the JVM, so its file is filled again."""
        for entry in [e for e in self.home.iterdir() if not e.name.startswith("catalog.db")]:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        ignore = shutil.ignore_patterns("catalog.db*")
        shutil.copytree(self.folder / "kept", self.home, ignore=ignore, dirs_exist_ok=True)
        kept, catalog = (sqlite3.connect(self.folder / where / "catalog.db") for where in ("kept", "home"))
        kept.backup(catalog)
        kept.close()
        catalog.close()

    def holding(self) -> list[str]:
        return sorted(traces((file for file in self.home.rglob("*") if file.is_file()), GONE, VALUE))

    def end(self) -> dict[str, Any]:
        """What is there after a run that has ended: the table, the requests, their certificates."""
        requests = json.loads(self.run("erasures", TOPIC, "--json")[1])["requests"]
        shown = [self.ok("certificate", "show", r["request"]) for r in requests if r["state"] == "certified"]
        contents = [verified(text.encode(), public_pem(signing_key(os.environ)).encode()) for text in shown]
        return {
            "records": sorted(self.ok("read", TOPIC).splitlines()),
            "states": [request["state"] for request in requests],
            "numbers": [(content["number"], content["previous"]) for content in contents],
            "hidden": [content["steps"]["hidden"]["records"] for content in contents],
            "inventory": [without_snapshots(content["steps"]["hidden"]["inventory"]) for content in contents],
            "removed": [counts_of(content["steps"]["removed"] or {}) for content in contents],
            "found": [content["steps"]["proven"]["keys_found"] for content in contents],
            "exclusions": [content["exclusions"] for content in contents],
            "log_ends": [log["log_end_offset"] for log in json.loads(self.ok("status", TOPIC, "--json"))["topics"][TOPIC]],
            "files with a marker": self.holding(),
            "request files": sorted(os.listdir(self.home / "erasures" / TOPIC)),
        }  # fmt: skip


def without_snapshots(inventory: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Return the inventory without the number of snapshots: a run that died has added some."""
    return {table: {name: n for name, n in of.items() if name != "snapshots"} for table, of in inventory.items()}


def counts_of(removed: dict[str, Any]) -> dict[str, int]:
    """Return what was removed from each table -> how many."""
    of_tables = {what: of for what, of in removed.items() if isinstance(of, dict)}
    return {f"{what} of {table}": len(names) for what, of in of_tables.items() for table, names in of.items()}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("dying")
    (folder / "config" / "topics").mkdir(parents=True)
    platform = {"allow_clock": True, "spark": {"master": "local[2]", "conf": SMALL_RUN}}
    (folder / "config" / "defaults.yaml").write_text(json.dumps({"platform": platform}))
    (folder / "config" / "topics" / f"{TOPIC}.yaml").write_text(json.dumps({"topic": TOPIC, "config": SETTINGS}))
    jars = os.environ.get("CLEANTAIL_JARS") or str(Path(__file__).resolve().parents[3] / ".cleantail" / "jars")
    with pytest.MonkeyPatch.context() as patch:
        for name, text in SECRETS.items():
            patch.setenv(name, text)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.jobs.round.dying_commands", str(folder / "config")],
            env={**os.environ, "CLEANTAIL_HOME": str(folder / "home"), "CLEANTAIL_JARS": jars},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        made = Site(folder, process)
        try:
            assert made.answer() == 0
            filled(made)
            made.keep()
            yield made
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


def filled(site: Site) -> None:
    """A table with current, superseded and remembered versions of the keys, and a file that requests their erasure."""

    def ingest(name: str, records: list[dict[str, Any]]) -> None:
        (site.folder / name).write_text("".join(json.dumps(each) + "\n" for each in records))
        site.ok("ingest", TOPIC, "--file", site.folder / name)

    ingest("a.jsonl", lines(TOPIC))
    site.ok("compact", TOPIC, "--now", NOW)
    site.ok("compact", TOPIC, "--now", NOW + 10_000)  # the tombstones expire, and are remembered
    ingest("b.jsonl", [record(6, f"{GONE}-0", f"{VALUE}-c"), record(7, "other", "z")])
    folder = site.home / "erasures" / TOPIC
    folder.mkdir(parents=True)
    request = {"keys": [f"{GONE}-0", f"{GONE}-1"], "requested_by": "ticket 4711"}
    (folder / "one.json").write_text(json.dumps(request))
    copy = site.home / "stdin" / "tmp-of-a-dead-process"
    copy.mkdir(parents=True)
    (copy / "stdin").write_text(f"{GONE}-0")


@pytest.fixture(scope="module")
def whole(site: Site) -> tuple[list[str], dict[str, Any]]:
    """The points and the end of a run that nothing interrupts."""
    assert len(site.holding()) > 3
    site.ok("erase", TOPIC, "--json")
    points = site.points
    return points, site.end()


def test_an_erasure_passes_every_kind_of_point(whole: tuple[list[str], dict[str, Any]]) -> None:
    points, end = whole
    named = " ".join(points)
    kinds = ["commits dying_deleted_versions", "commit of cleantail_evidence", "commit of cleantail_erasures"]
    kinds += ["commit of cleantail_erased_keys", "files of dying go", "half of them are gone from dying", "data_docs"]
    kinds += ["os.remove of erasures/dying/one.json", "shutil.rmtree of stdin", "Spark commits dying "]
    assert [kind for kind in kinds if kind not in named] == []
    assert (end["states"], end["files with a marker"], end["request files"]) == (["certified"], [], [])
    assert (end["found"], end["log_ends"]) == ([2], [8, 6])


def ends_that_differ(site: Site, whole: tuple[list[str], dict[str, Any]], chosen: Sequence[int]) -> dict[str, Any]:
    """Let the erasure die at each of these points, run it again, and return what is then another than without a death."""
    points, expected = whole
    different = dict[str, Any]()
    for at in chosen:
        site.restore()
        died, _ = site.run("erase", TOPIC, "--json", at=at)
        passed = site.points
        assert (died, len(passed)) == (DIED, at), (died, passed, (site.folder / "out" / "stderr").read_text())
        code, _ = site.run("erase", TOPIC, "--json")
        said = (site.folder / "out" / "stderr").read_text()
        is_over = at == len(points) and "has no open request" in said
        end = site.end()
        found = {name: (value, end[name]) for name, value in expected.items() if not is_same(name, end[name], value)}
        if found or (code and not is_over):
            different[f"{at}: {passed[-1]}"] = (code, found, said)
    return different


def is_same(name: str, value: Any, expected: Any) -> bool:
    """Return whether an entry of the end is as expected. More was removed if a run that died has written more."""
    if name != "removed":
        return bool(value == expected)
    return len(value) == len(expected) and all(
        {**dict.fromkeys(of, 0), **found}[what] >= count
        for found, of in zip(value, expected, strict=True)
        for what, count in of.items()
    )


@pytest.mark.parametrize("part", range(PARTS))
def test_after_a_death_at_any_point_the_same_command_ends_the_same(site, whole, part):
    points, _ = whole
    assert ends_that_differ(site, whole, range(1 + part, len(points) + 1, PARTS)) == {}

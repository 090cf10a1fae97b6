"""Applications are killed with -9 in the middle of a pack of many topics, some of them broken in every known way.

This takes minutes and is part of `make test-deep`. CLEANTAIL_KILLS is the number of kills of each run's application.
The published records of each topic are compared with tests/model.py.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cleantail.rounds.pack_results import PACK_REQUEST_JSON, PackRequest, read_outcomes
from tests import model

KILLS = int(os.environ.get("CLEANTAIL_KILLS", "5"))
pytestmark = pytest.mark.deep
JOB = Path(__file__).resolve().parents[3] / "spark_jobs" / "run_station.py"
WELL, FILES, HUGE = 27, 2, 60_000
LETTERS = {"expectation": "expect_column_values_to_match_regex", "kwargs": {"column": "key", "regex": "^[a-z]+$"}}
BROKEN = {
    "kills-yaml": "segment.ms",
    "kills-no-json": ".jsonl:121: not JSON",
    "kills-other-topic": "another",
    "kills-contradiction": "offset",
    "kills-gzip": "gz",
    "kills-outside": "is not allowed",
    "kills-link": "is not a file of this topic",
    "kills-metadata": "metadata",
    "kills-nowhere": "no topic",
}
"""Topic -> a text of its error. The tenth topic, `kills-keyless`, fails its rules."""
RED = ("kills-red", "kills-keyless")


def strategy_of(name):
    return {"0": "offset", "1": "timestamp"}.get(name[-1], "offset")


class Site:
    """The topics, and the records that were sent to each so far."""

    def __init__(self, workshop, seed):
        self.workshop, self.home, self.rng = workshop, workshop.platform().home, random.Random(seed)
        self.sent, self.number = {}, 0
        self.well = [f"kills-{n:02d}" for n in range(WELL)] + ["kills-overdue", "kills-huge"]
        # the overdue topic first, in the order of evaluate, and the broken topics among the others
        self.names = ["kills-overdue", *self.rng.sample([*self.well[:-2], *BROKEN, *RED, "kills-huge"], WELL + 12)]

    def topics(self):
        for name in [*self.well, *RED, *BROKEN]:
            config = {"segment.ms": 1, "min.cleanable.dirty.ratio": 0.0, "delete.retention.ms": 10**12}
            source = {"path": f"landing/{name}/*.jsonl*"}
            more = {"checks": [LETTERS]} if name == "kills-red" else {}
            config |= {"compaction.strategy": strategy_of(name)} if name in self.well else {}
            if name == "kills-overdue":
                config |= {"min.cleanable.dirty.ratio": 1.0, "max.compaction.lag.ms": 1}
            if name == "kills-yaml":
                config |= {"segment.ms": -1}
            if name == "kills-outside":
                source = {"path": "/usr/share/*.jsonl"}
            if name != "kills-nowhere":
                self.workshop.topic(name, config, source=source, **more)

    def land(self):
        """Write a file into the landing folder of each topic. Its offsets continue those of the last file."""
        self.number += 1
        for name in [*self.well, *RED, *BROKEN]:
            count = HUGE if name == "kills-huge" else 120
            records = model.changelog(count, 3, 20, 20, seed=self.rng.randrange(10**6))
            ends = {p: 1 + max([r["offset"] for r in self.sent.get(name, ()) if r["partition"] == p], default=-1)
                    for p in range(3)}  # fmt: skip
            records = [{**r, "topic": name, "offset": r["offset"] + ends[r["partition"]]} for r in records]
            self._write(name, self._broken(name, records))

    def _broken(self, name, records):
        if name == "kills-no-json":
            return [*records, "this is no record"]
        if name == "kills-other-topic":
            return [*records, {**records[-1], "topic": "another"}]
        if name == "kills-contradiction":
            return [*records, {**records[-1], "payload": "not what it was"}]
        if name == "kills-keyless":
            return [{**r, "key": None} if n == 7 else r for n, r in enumerate(records)]
        return records

    def _write(self, name, lines):
        folder = self.home / "landing" / name
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{'abc'[self.number - 1]}.jsonl"
        file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
        if name == "kills-gzip":
            file.rename(file.with_suffix(".jsonl.gz"))
        elif name == "kills-link":
            outside = self.home / "elsewhere" / file.name
            outside.parent.mkdir(exist_ok=True)
            file.rename(outside)
            file.symlink_to(outside)
        self.sent.setdefault(name, []).extend(line for line in lines if not isinstance(line, str))

    def run(self, number):
        """Run the pack until a try ends by itself. Earlier tries are killed at random moments. Returns the outcomes."""
        outcomes, config = f"packs/kills-{number}.jsonl", self.workshop.config
        request = PackRequest(tuple(self.names), int(time.time() * 1000), outcomes=outcomes)
        result = config / f"result-{number}.json"
        command = [
            sys.executable,
            str(JOB),
            "run_pack",
            "--config",
            str(config),
            "--request",
            PACK_REQUEST_JSON.text(request),
        ]
        for kill in range(KILLS + 1):
            with (config / f"log-{number}-{kill}").open("wb") as log:
                run = subprocess.Popen(
                    [*command, "--result", str(result)], stdout=log, stderr=log, start_new_session=True
                )
                if kill < KILLS and self._killed(run, self.home / outcomes):
                    continue
                assert run.wait() == 1, (config / f"log-{number}-{kill}").read_text()[-3000:]
                break
        assert not [o for o in read_outcomes(self.home, outcomes).values() if "application" in o.error]
        return {o["topic"]: o for o in json.loads(result.read_text())["topics"]}

    def _killed(self, run, file):
        """Kill the application after some more lines of output. Returns False if it ended before."""
        until = _lines(file) + self.rng.randrange(5, 90)
        while _lines(file) < until:
            if run.poll() is not None:
                return False
            time.sleep(0.02)
        time.sleep(self.rng.uniform(0, 0.5))
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        return True


def _lines(file):
    return file.read_text(errors="replace").count("\n") if file.exists() else 0


@pytest.fixture
def site(workshop):
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": {"spark": {"master": "local[2]"}}}))
    made = Site(workshop, seed=3)
    made.topics()
    return made


def test_each_topic_reaches_the_state_of_the_model_whatever_is_killed(site, workshop, table_of):
    broken_table(site, workshop, table_of)
    for number in range(FILES):
        before = {name: workshop.read(name) if number else [] for name in RED}
        sent_before = {name: len(site.sent.get(name, ())) for name in RED}
        site.land()
        outcomes = site.run(number)
        # 1. successful topics equal the model, are published once, and reported
        for name in site.well:
            strategy = strategy_of(name)
            expected = model.compacted(site.sent[name], strategy)
            found = workshop.read(name)
            assert places(found) == places(expected), name
            assert outcomes[name]["ok"] and outcomes[name]["compacted"]["published"] == [0, 1, 2], outcomes[name]
            assert [r["payload"] for r in model.in_order(found)] == [r["payload"] for r in expected], name
            rows = [row for row in workshop.evidence(name) if row["outcome"] == "published"]
            commits = [(row["round"], row["partition"]) for row in rows]
            assert len(commits) == len(set(commits)), name
        # 2. nothing was removed from the blocked logs of failed topics
        for name in RED:
            held = outcomes[name]["compacted"]["held_back"]
            assert held and not outcomes[name]["ok"]
            kept = [*before[name], *site.sent[name][sent_before[name] :]]  # an earlier round may have published the log
            expected = [r for r in kept if r["partition"] in held]
            assert places(r for r in workshop.read(name) if r["partition"] in held) == places(expected), name
        # 3. broken topics are reported with their reason
        for name, named in BROKEN.items():
            assert named in outcomes[name]["error"], outcomes[name]
        # a log in quarantine is released for the next file, as a person does it
        for name in RED:
            for partition in outcomes[name]["compacted"]["held_back"]:
                workshop.ok("release", name, partition)


def broken_table(site, workshop, table_of):
    """A table whose metadata was deleted."""
    record = {"partition": 0, "offset": 0, "ts": 1_700_000_000_000, "key": "a", "payload": "b"}
    workshop.ok("ingest", "kills-metadata", "--file", workshop.file("first.jsonl", [record]))
    location = table_of("kills-metadata").load().location().removeprefix("file:")
    shutil.rmtree(Path("/" + location.lstrip("/")) / "metadata")


def places(records):
    return sorted((r["partition"], r["offset"]) for r in records)

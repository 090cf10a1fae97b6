"""A snapshot whose metadata is gone, as a commit leaves it whose manifests were deleted although it was taken."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlparse

import pytest

from spark_jobs.iceberg.commits import append_to_branch
from spark_jobs.iceberg.jvm.java_collections import each
from spark_jobs.iceberg.tables import branch_name
from tests.jobs.round.test_rounds import NOW, record


def remove(address):
    Path(urlparse(str(address)).path).unlink()


@pytest.fixture
def stuck(workshop, table_of):
    """A table with old snapshots, and one that cannot be read: which files of it are missing, and what leads to it."""

    def make(topic, lacks, leads):
        workshop.topic(topic, {"cleantail.reclaim.min.merge.files": 2, "cleantail.snapshot.retention.ms": 0})
        for n in range(3):
            lines = [record(3 * n + o, "k", f"v{n}") for o in range(3)]
            workshop.ok("ingest", topic, "--file", workshop.file(f"{n}.jsonl", lines))
        workshop.ok("compact", topic, "--now", NOW)
        table, branch = table_of(topic), branch_name("ct_left")
        iceberg = table.load()
        if leads == "main":
            snapshot = iceberg.snapshot(iceberg.currentSnapshot().parentId())
        else:
            append_to_branch(table, branch, [])
            iceberg = table.load()
            snapshot = iceberg.snapshot(branch)
            table.drop_branches([branch])
        if lacks:
            remove(snapshot.manifestListLocation())
        return table, int(snapshot.snapshotId())

    return make


@pytest.mark.parametrize(
    ("lacks", "leads"),
    [
        pytest.param("list", "nothing", id="no branch leads to it, its list is gone"),
        pytest.param("list", "main", id="main came from it, its list is gone"),
    ],
)
def test_reclaim_passes_over_a_snapshot_that_cannot_be_read_and_does_the_rest(workshop, stuck, lacks, leads):
    topic = f"stuck-{leads}-{len(lacks)}"
    table, broken = stuck(topic, lacks, leads)
    before = workshop.read(topic)
    done = workshop.json("reclaim", topic)
    assert done["expired_snapshots"] >= 3
    left = [int(s.snapshotId()) for s in each(table.load().snapshots())]
    assert broken not in left and len(left) == 1
    assert workshop.read(topic) == before
    workshop.ok("ingest", topic, "--file", workshop.file("later.jsonl", [record(9, "k", "x"), record(10, "j", "x")]))
    workshop.ok("compact", topic, "--now", NOW + 1, "--force")
    assert workshop.json("reclaim", topic)["ok"]


def test_reclaim_refuses_what_a_branch_is_at_by_its_name(workshop, stuck, table_of):
    topic = "stuck-branch"
    table, _ = stuck(topic, "", "nothing")
    append_to_branch(table, "mine", [])
    iceberg = table.load()
    remove(iceberg.snapshot("mine").manifestListLocation())
    code, _, err = workshop.run("reclaim", topic)
    assert code == 2 and "cannot be read" in err and "Branch or tag mine points to it" in err
    assert "mine" in {str(name) for name in each(table.load().refs().keySet())}

"""A snapshot whose metadata is gone, as a commit leaves it whose manifests were deleted although it was taken."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlparse

import pytest

from spark_jobs.iceberg.java_calls import each
from spark_jobs.iceberg.tables import branch_name
from tests.jobs.round.test_rounds import NOW, record


def remove(address):
    Path(urlparse(str(address)).path).unlink()


def add_snapshot(table, branch):
    table.create_branch(branch, None)
    table.load().newFastAppend().toBranch(branch).commit()


@pytest.fixture
def grown(workshop, table_of):
    """A topic with old snapshots, from which main came."""

    def make(topic):
        workshop.topic(topic, {"cleantail.reclaim.min.merge.files": 2, "cleantail.snapshot.retention.ms": 0})
        for n in range(3):
            lines = [record(3 * n + o, "k", f"v{n}") for o in range(3)]
            workshop.ok("ingest", topic, "--file", workshop.file(f"{n}.jsonl", lines))
        workshop.ok("compact", topic, "--now", NOW)
        return table_of(topic)

    return make


def test_reclaim_passes_over_snapshots_that_cannot_be_read_and_does_the_rest(workshop, grown):
    """The lists of their manifests are gone: main came from one, and no branch leads to the other."""
    topic, branch = "stuck", branch_name("ct_left")
    table = grown(topic)
    add_snapshot(table, branch)
    iceberg = table.load()
    broken = [iceberg.snapshot(iceberg.currentSnapshot().parentId()), iceberg.snapshot(branch)]
    table.drop_branches([branch])
    for snapshot in broken:
        remove(snapshot.manifestListLocation())
    before = workshop.read(topic)
    done = workshop.json("reclaim", topic)
    assert done["expired_snapshots"] >= 3
    left = [int(s.snapshotId()) for s in each(table.load().snapshots())]
    assert len(left) == 1 and not {int(snapshot.snapshotId()) for snapshot in broken} & {*left}
    assert workshop.read(topic) == before


def test_reclaim_names_the_branch_that_points_to_an_unreadable_snapshot(workshop, grown):
    topic = "stuck-branch"
    table = grown(topic)
    add_snapshot(table, "mine")
    iceberg = table.load()
    remove(iceberg.snapshot("mine").manifestListLocation())
    code, _, err = workshop.run("reclaim", topic)
    assert code == 2 and "cannot be read" in err and "Branch or tag mine points to it" in err
    assert "mine" in {str(name) for name in each(table.load().refs().keySet())}

"""A process that takes a round to its end commits its branch only if a person may read it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cleantail.log.partition_state import states_of_properties
from cleantail.rounds.pack_results import PackRequest
from spark_jobs.iceberg.java_calls import each, texts
from spark_jobs.run import topic_run
from spark_jobs.run.topic_run import TopicRun
from tests.jobs.round.test_rounds import NOW, branches, offsets, record


def commits_of(table):
    """The number in the name of the metadata file grows by one with each commit."""
    location = table.load().operations().current().metadataFileLocation()
    return int(str(location).rpartition("/")[2].partition("-")[0])


def files_without_snapshot(table):
    """The names of manifests and their lists that no snapshot of the table has."""
    iceberg = table.load()
    io, folder = iceberg.io(), Path(str(iceberg.location()).removeprefix("file:")) / "metadata"
    lists = [
        (s.manifestListLocation(), *(m.path() for m in each(s.allManifests(io)))) for s in each(iceberg.snapshots())
    ]
    named = {str(path).rpartition("/")[2] for paths in lists for path in paths}
    return {path.name for path in folder.glob("*.avro")} - named


def ingested(workshop, topic, first, count=3):
    records = [record(first + n, "k", f"v{first + n}") for n in range(count)]
    workshop.ok("ingest", topic, "--file", workshop.file(f"{topic}-{first}.jsonl", records))


def compacted(workshop, topic):
    """Two rounds: the first of a kind of file also records that two readers agree on it."""
    for first in (0, 3):
        ingested(workshop, topic, first)
        workshop.ok("compact", topic, "--now", NOW, "--force")
    ingested(workshop, topic, 6)
    return topic


def test_a_round_is_one_commit(workshop, table_of, monkeypatch):
    table = table_of(
        compacted(workshop, topic := workshop.topic("one-commit", {"cleantail.full.proof.interval.ms": 1000}))
    )

    def state():
        [found] = states_of_properties(texts(table.load().properties()), topic).values()
        return found

    before, unnamed = commits_of(table), files_without_snapshot(table)
    workshop.ok("compact", topic, "--now", NOW + 1, "--force")
    assert (commits_of(table) - before, branches(table), offsets(workshop.read(topic))) == (1, [], [8])
    assert files_without_snapshot(table) == unnamed

    # an append of another while the next round is checked does not stop it
    measured = topic_run.measured_round
    ingested(workshop, topic, 10)

    def and_append(*arguments):
        assert branches(table) == []
        ingested(workshop, topic, 20)
        return measured(*arguments)

    run = TopicRun(SparkSession.active(), workshop.find(topic), PackRequest((topic,), NOW + 2, force=True))
    with monkeypatch.context() as patch:
        patch.setattr(topic_run, "measured_round", and_append)
        run.prepare()
    assert run.measured is not None
    run.finish()
    assert run.outcome.published and branches(table) == []
    assert (offsets(workshop.read(topic)), state().checkpoint) == ([12, 20, 21, 22], 13)

    # Spark reads the branch for a full proof. The first round also compares two readers of the files that were rewritten.
    for now_ms, commits, last in ((NOW + 5000, 2, 22), (NOW + 7000, 1, 32)):
        before = commits_of(table)
        workshop.ok("compact", topic, "--now", now_ms, "--force")
        assert (commits_of(table) - before, state().proven_ms, branches(table)) == (commits, now_ms, [])
        assert offsets(workshop.read(topic)) == [last]
        ingested(workshop, topic, 30)


def test_commits_that_merge_manifests_leave_no_manifest_without_a_snapshot(workshop, table_of):
    table = table_of(topic := workshop.topic("merged-manifests"))
    for first in (0, 3, 6):
        ingested(workshop, topic, first)
    iceberg = table.load()
    assert len(iceberg.currentSnapshot().allManifests(iceberg.io())) == 1
    assert files_without_snapshot(table) == set()
    workshop.ok("compact", topic, "--now", NOW, "--force")
    unnamed = files_without_snapshot(table)  # of the branch, on which two readers were compared
    assert "rewrite" in workshop.ok("reclaim", topic)
    assert len(table.load().snapshots()) == 5
    assert files_without_snapshot(table) == unnamed


# test_a_failed_check_blocks_its_partition_and_the_others_are_published in test_rounds.py holds the rule; here of a
# round without a branch
@pytest.mark.deep
def test_a_failed_log_of_an_uncommitted_round_keeps_its_branch(workshop, table_of, monkeypatch):
    topic = compacted(workshop, workshop.topic("red-uncommitted"))
    monkeypatch.setattr("spark_jobs.engine.measures.with_branch", lambda files, deletes: files)  # as if none
    code, _, _ = workshop.run("compact", topic, "--now", NOW + 1, "--force")
    table = table_of(topic)
    [state] = states_of_properties(texts(table.load().properties()), topic).values()
    assert code == 1 and branches(table) == [state.quarantine.branch]
    assert offsets(r.asDict() for r in table.at_branch(state.quarantine.branch).collect()) == [8]
    assert offsets(workshop.read(topic)) == [5, 6, 7, 8]

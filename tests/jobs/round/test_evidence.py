"""The evidence table over many rounds: few files, no row lost."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.table import snapshots

from cleantail.config.loading import load_platform
from cleantail.config.topic_table import ERASED_KEYS, ERASURES, EVIDENCE
from cleantail.erasure.requests import APPROVED, ErasureEvent
from cleantail.erasure.store import ErasureStore
from cleantail.errors import OutsideError
from cleantail.lake import own_tables
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.recorded_rounds import read_evidence
from cleantail.rounds.commit_summaries import RECLAIM
from cleantail.rounds.past_rounds import DAY_MS, PUBLISHED
from cleantail.watch.log_metrics import totals_of
from spark_jobs.round import evidence, publish, reclaim
from tests.jobs.round.test_held_rounds import ingest
from tests.jobs.round.test_rounds import NOW

NO_REWRITE = {"cleantail.reclaim.deleted.ratio": 1.0}
"""Then a reclaim of the topic's own files shows nothing."""


def separate(workshop, namespace):
    """A namespace has an evidence table of its own: a merge looks at all files of one, here those of the test alone."""
    (workshop.config / "defaults.yaml").write_text(f"platform: {{catalog: {{namespace: {namespace}}}}}")


def evidence_table(workshop):
    platform = workshop.platform()
    return open_catalog(platform).load_table(f"{platform.catalog.namespace}.{EVIDENCE}")


def files_by_topic(workshop):
    """Topic -> its data files. A file has rows of one topic, or of those of a pack."""
    table, found = evidence_table(workshop), {}
    for path in table.inspect.files()["file_path"].to_pylist():
        with table.io.new_input(path).open() as file:
            topics = set(pq.read_table(file, columns=["topic"])["topic"].to_pylist())
        for topic in topics:
            found.setdefault(topic, set()).add(path)
    return found


def test_a_reclaim_merges_many_small_files_of_its_topic_and_no_row_changes(workshop, table_of, monkeypatch):
    """In the evidence, and in what erasures remember."""
    separate(workshop, "merged_evidence")
    monkeypatch.setenv("CLEANTAIL_ERASURE_KEY", base64.b64encode(bytes(32)).decode())
    monkeypatch.setattr(reclaim, "MIN_FILES", 2)
    topic = workshop.topic("many-rounds", {"cleantail.snapshot.retention.ms": 0} | NO_REWRITE)
    other = workshop.topic("few-rounds")
    for offset in (0, 1):  # the first snapshot expires, so that a reclaim is due
        ingest(workshop, topic, f"{offset}.jsonl", (offset, "a", "x"))
    for name in (topic, other):
        evidence.append_reclaim(table_of(name), 1, NOW)
    assert reclaim.merge_files_of(table_of(topic), EVIDENCE) == 0  # one file of each topic is not many
    evidence.append_reclaim(table_of(topic), 2, NOW)
    store = ErasureStore(workshop.platform())
    for key in (b"k", b"l"):
        request = store.request(topic, [key], by="ana", now_ms=NOW, deadline_ms=NOW + 1)
        store.append(ErasureEvent(topic, request.id, APPROVED, NOW, "ana"))
    before, requests, files = workshop.evidence(topic), store.requests(topic), files_by_topic(workshop)
    assert [own_files(workshop, of) for of in (ERASURES, ERASED_KEYS)] == [4, 2]
    assert workshop.json("reclaim", topic)["evidence_files_merged"] == len(files[topic]) == 2
    after = files_by_topic(workshop)
    assert (len(after[topic]), after[other]) == (1, files[other])
    assert workshop.evidence(topic) == before
    assert [own_files(workshop, of) for of in (ERASURES, ERASED_KEYS)] == [1, 1]
    store = ErasureStore(workshop.platform())
    assert store.requests(topic) == requests
    keys = store.keys_of(store.denied(topic))
    assert keys.found(pa.array([b"k", b"m", b"l"], pa.binary())).tolist() == [True, False, True]


def test_a_topic_is_reclaimed_although_a_file_of_the_evidence_is_missing(workshop, table_of, monkeypatch, caplog):
    separate(workshop, "missing_evidence")
    monkeypatch.setattr(reclaim, "MIN_FILES", 2)
    kept = {"cleantail.snapshot.retention.ms": 0, "cleantail.evidence.retention.ms": 0}
    topic = workshop.topic("missing", kept | NO_REWRITE)
    for offset in (0, 1):
        ingest(workshop, topic, f"{offset}.jsonl", (offset, "a", "x"))
        evidence.append_reclaim(table_of(topic), offset, DAY_MS)
    data = Path(urlparse(evidence_table(workshop).location()).path) / "data"
    next(data.rglob("*.parquet")).unlink()
    found = workshop.json("reclaim", topic)
    assert (found["expired_snapshots"], found["evidence_files_merged"]) == (1, 0)
    said = caplog.text.count("files of cleantail_evidence are left to the next run")
    assert said == 2  # once to merge them, once to make rows of days


def own_files(workshop, of):
    """The number of data files of a table of Cleantail's own."""
    platform = workshop.platform()
    return len(open_catalog(platform).load_table(f"{platform.catalog.namespace}.{of}").inspect.files())


def test_files_that_nothing_points_to_are_removed_after_their_time(workshop, table_of, monkeypatch):
    separate(workshop, "unused_evidence")
    monkeypatch.setattr(reclaim, "MIN_FILES", 2)
    monkeypatch.setattr(reclaim, "UNUSED_AFTER_MS", -60_000)
    topic = workshop.topic("unused")
    for n in range(3):
        evidence.append_reclaim(table_of(topic), 10 + n, NOW)
    before = workshop.evidence(topic)
    data = Path(urlparse(evidence_table(workshop).location()).path) / "data"
    shutil.copy(next(data.rglob("*.parquet")), data / "of-no-snapshot.parquet")  # as PyIceberg's expiry leaves it
    assert reclaim.merge_files_of(table_of(topic), EVIDENCE) == 3
    assert workshop.evidence(topic) == before
    used = set().union(*files_by_topic(workshop).values())
    assert {path.name for path in data.rglob("*.parquet")} == {Path(path).name for path in used}


# test_files_that_nothing_points_to_are_removed_after_their_time holds the rule; here metadata files are gone
@pytest.mark.deep
def test_files_older_than_all_kept_metadata_are_removed_too(workshop, table_of, monkeypatch):
    separate(workshop, "older_evidence")
    monkeypatch.setattr(reclaim, "MIN_FILES", 2)
    monkeypatch.setitem(own_tables.PROPERTIES, "write.metadata.previous-versions-max", "3")
    topic = workshop.topic("many-a-day")
    for n in range(6):  # a commit deletes the fourth metadata file before it
        evidence.append_reclaim(table_of(topic), n, NOW)
    folder = Path(urlparse(evidence_table(workshop).location()).path)
    first, *others = sorted((folder / "metadata").glob("*.metadata.json"))
    assert first.name.startswith("00000-") and not others[0].name.startswith("00001-")
    left = folder / "data" / "of-no-snapshot.parquet"
    shutil.copy(next((folder / "data").rglob("*.parquet")), left)
    for path, days in ((first, 5), (left, 3)):
        os.utime(path, (time.time() - days * 86_400,) * 2)
    reclaim.merge_files_of(table_of(topic), EVIDENCE)
    assert not left.exists() and first.exists()
    assert len(workshop.evidence(topic)) == 6


def test_rounds_append_while_two_merges_run_at_once_and_nothing_is_lost(workshop, table_of, monkeypatch):
    separate(workshop, "busy_evidence")
    monkeypatch.setattr(reclaim, "MIN_FILES", 2)
    topic = workshop.topic("at-once")
    table, platform = table_of(topic), workshop.platform()

    def append(n):
        evidence.append_reclaim(replace(table, topic=table.topic.on(platform)), n, NOW)

    for n in range(2):
        append(n)
    # a JVM's first rewrite registers Iceberg's catalog of rewrites, which two threads cannot; two reclaims are two JVMs
    assert reclaim.merge_files_of(table, EVIDENCE) == 2
    for n in range(2, 4):
        append(n)
    with ThreadPoolExecutor(3) as pool:
        appended = pool.submit(lambda: [append(n) for n in range(4, 8)])
        merges = [pool.submit(reclaim.merge_files_of, table, EVIDENCE) for _ in range(2)]
        merged = [merge.result() for merge in merges]
        appended.result()
    assert max(merged) >= 3
    assert sorted(row["freed_bytes"] for row in workshop.evidence(topic)) == list(range(8))


def test_two_rounds_that_expire_old_snapshots_at_once_both_append_in_a_commit_each(workshop, table_of, monkeypatch):
    topic = workshop.topic("forget")
    table = table_of(topic)
    for n in range(3):
        evidence.append_reclaim(table, n, NOW)
    one, other = evidence_table(workshop), evidence_table(workshop)
    monkeypatch.setattr(own_tables, "SNAPSHOTS_KEPT", 1)
    row = {"round": "", "kind": RECLAIM, "outcome": PUBLISHED, "now_ms": NOW}
    evidence.append_rows(one, table, [row | {"freed_bytes": 3}])
    evidence.append_rows(other, table, [row | {"freed_bytes": 4}])  # it still knows snapshots that are gone
    after = evidence_table(workshop)
    assert len(after.metadata.snapshots) == 2  # the new one, and the other round's, which a later append expires
    assert _version(after) == _version(other) == _version(one) + 1
    assert sorted(row["freed_bytes"] for row in workshop.evidence(topic)) == list(range(5))


@pytest.mark.parametrize(("off_ms", "name"), [(DAY_MS, "ahead"), (-DAY_MS, "behind")])
def test_spark_loads_the_evidence_after_a_commit_by_a_wrong_clock(workshop, table_of, monkeypatch, off_ms, name):
    """Iceberg loads no table whose snapshots go back in time by more than a minute."""
    separate(workshop, f"clock_{name}")
    table = table_of(workshop.topic(f"evidence-clock-{name}"))
    evidence.append_reclaim(table, 1, NOW)
    with monkeypatch.context() as patch:
        patch.setattr(snapshots, "time", SimpleNamespace(time=lambda: time.time() + off_ms / 1000))
        evidence.append_reclaim(table, 2, NOW)
    evidence.append_reclaim(table, 3, NOW)
    times = [each.timestamp_ms for each in evidence_table(workshop).metadata.snapshot_log]
    assert times == sorted(set(times))
    assert table.spark.table(f"cleantail.clock_{name}.{EVIDENCE}").count() == 3


def test_rows_that_a_dead_process_kept_are_appended_once_and_those_of_a_live_one_stay_its_own(workshop, table_of):
    separate(workshop, "kept_evidence")
    table, platform = table_of(workshop.topic("kept-rows")), workshop.platform()
    folder = platform.home / evidence.KEPT_FOLDER
    with evidence.rows_kept(platform):
        evidence.append_reclaim(table, 1, NOW)
        evidence.append_reclaim(table, 2, NOW)
        [file] = folder.iterdir()
        kept = file.read_text()
        evidence.append_left(platform)  # as another process does
        assert [file] == [*folder.iterdir()]
    assert (_version(evidence_table(workshop)), [*folder.iterdir()]) == (1, [])
    row, _ = map(json.loads, kept.split("\n\n"))
    other = json.dumps(row | {"freed_bytes": 3})
    late = json.dumps(row | {"checked_at_ms": 2, "freed_bytes": 5})
    (folder / "of-a-dead-process.jsonl").write_text(f"{kept}{other}\n\n{late}\n\n{other[:50]}")  # it died in a write
    new = json.dumps(row | {"checked_at_ms": 1, "freed_bytes": 4})
    (folder / "of-another.jsonl").write_text(f"{other[:50]}\n{new}\n")  # its disk was full for a while
    evidence.append_left(platform)
    assert sorted(row["freed_bytes"] for row in workshop.evidence(table.topic.topic)) == [1, 2, 4, 5]
    assert _version(evidence_table(workshop)) == 2  # one commit for both files
    assert [*folder.iterdir()] == []


def test_kept_rows_of_an_unknown_format_stay_for_the_version_that_knows_it(workshop, table_of, caplog):
    separate(workshop, "kept_format")
    table, platform = table_of(workshop.topic("kept-format")), workshop.platform()
    with evidence.rows_kept(platform):
        evidence.append_reclaim(table, 1, NOW)
        [file] = (platform.home / evidence.KEPT_FOLDER).iterdir()
        row = json.loads(file.read_text())
    left = file.with_name("of-a-later-version.jsonl")
    left.write_text(json.dumps(row | {"format": 2, "freed_bytes": 2}))
    file.write_text(json.dumps(row | {"checked_at_ms": 3, "freed_bytes": 3}))
    evidence.append_left(platform)
    assert f"{left} has format=2" in caplog.text
    assert [*file.parent.iterdir()] == [left]
    assert sorted(row["freed_bytes"] for row in workshop.evidence(table.topic.topic)) == [1, 3]
    left.unlink()  # other tests have the same home


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        pytest.param(OSError(28, "No space left on device", "f"), contextlib.nullcontext(), id="a full disk"),
        pytest.param(ValueError("a defect"), pytest.raises(ValueError, match="a defect"), id="a defect"),
    ],
)
def test_an_outage_at_the_end_of_a_run_leaves_its_rows_to_the_next_and_a_defect_is_raised(
    workshop, table_of, monkeypatch, caplog, error, raised
):
    separate(workshop, f"outage_{type(error).__name__}")
    table, platform = table_of(workshop.topic(f"outage-{type(error).__name__}")), workshop.platform()

    def fails(*_):
        raise error

    with monkeypatch.context() as patch, raised, evidence.rows_kept(platform):
        evidence.append_reclaim(table, 1, NOW)
        patch.setattr(evidence, "_append", fails)
    assert ("for the next run" in caplog.text) is isinstance(error, OSError)
    assert workshop.evidence(table.topic.topic) == []
    evidence.append_left(platform)
    assert [row["freed_bytes"] for row in workshop.evidence(table.topic.topic)] == [1]


def test_rows_past_their_retention_become_a_row_a_day_in_one_commit_and_counters_stay(workshop, table_of):
    separate(workshop, "days_of_evidence")
    topic, other = workshop.topic("days", {"cleantail.evidence.retention.ms": 5 * DAY_MS}), workshop.topic("no-days")
    for n, name in ((0, topic), (0, other), (1, topic)):
        ingest(workshop, name, f"{name}-{n}.jsonl", (2 * n, "a", "x"), (2 * n + 1, "a", "y"))
        workshop.ok("compact", name, "--now", NOW + n * 8 * DAY_MS, "--force")
    evidence.append_reclaim(table_of(topic), 10, NOW)
    rows, of_other, before = workshop.evidence(topic), workshop.evidence(other), evidence_table(workshop)
    end_of_first_day = NOW // DAY_MS * DAY_MS + DAY_MS
    # past the retention of 5 days, rows wait as long for others
    for until_ms, replaced in ((end_of_first_day + 10 * DAY_MS - 1, 0), (end_of_first_day + 10 * DAY_MS, 3)):
        assert evidence.summarize_days(table_of(topic), until_ms) == replaced
    days = [row for row in workshop.evidence(topic) if row["round"].startswith("day ")]
    assert [(row["kind"], row["outcome"], row["rounds"]) for row in sorted(days, key=lambda row: row["kind"])] == [
        ("compact", "published", 1),
        ("reclaim", "published", 1),
    ]
    assert [row for row in workshop.evidence(topic) if row not in days] == [row for row in rows if row["now_ms"] > NOW]
    assert workshop.evidence(other) == of_other
    assert totals_of(workshop.evidence(topic)) == totals_of(rows)
    assert _version(evidence_table(workshop)) == _version(before) + 1
    assert evidence.summarize_days(table_of(topic), end_of_first_day + 10 * DAY_MS) == 0


def test_rows_appended_while_a_days_row_is_built_are_included(workshop, table_of, monkeypatch):
    separate(workshop, "busy_days")
    topic = workshop.topic("busy-days", {"cleantail.evidence.retention.ms": 0})
    for n in range(2):
        evidence.append_reclaim(table_of(topic), n, NOW)
    day_rows, came = evidence.day_rows, []

    def late(rows):
        if not came:
            came.append(evidence.append_reclaim(table_of(topic), 40, NOW))
        return day_rows(rows)

    monkeypatch.setattr(evidence, "day_rows", late)
    assert evidence.summarize_days(table_of(topic), NOW + DAY_MS) == 3
    [day] = workshop.evidence(topic)
    assert (day["freed_bytes"], day["rounds"]) == (41, 3)


def _version(table):
    """Returns the number of the table's metadata: one more with each commit."""
    return int(table.metadata_location.rpartition("/")[2].partition("-")[0])


def test_a_read_opens_few_manifests_in_a_table_of_an_earlier_version_too(workshop, table_of, tmp_path, monkeypatch):
    table = table_of(workshop.topic("few-manifests"))
    platform = load_platform(workshop.config, {"CLEANTAIL_HOME": str(tmp_path)})  # with an evidence of its own

    def manifests_after_a_row(n):
        evidence.append_reclaim(replace(table, topic=table.topic.on(platform)), n, NOW)
        found = evidence.evidence_table(platform)
        return len(found.current_snapshot().manifests(found.io))

    merged_at = "commit.manifest.min-count-to-merge"
    assert int(own_tables.PROPERTIES[merged_at]) < 100  # PyIceberg's own
    with monkeypatch.context() as earlier:
        earlier.delitem(own_tables.PROPERTIES, merged_at)
        assert [manifests_after_a_row(n) for n in range(3)] == [1, 2, 3]
    monkeypatch.setitem(own_tables.PROPERTIES, merged_at, "3")
    assert [manifests_after_a_row(n) for n in range(3, 6)] == [1, 2, 1]
    rows = evidence.rows_of(evidence.evidence_table(platform), {"topic": "few-manifests", "round": ""})
    assert sorted(row["freed_bytes"] for row in rows) == list(range(6))


def test_what_an_earlier_version_has_written_is_read_before_the_next_round(workshop, table_of):
    topic = workshop.topic("earlier")
    ingest(workshop, topic, "earlier.jsonl", (0, "a", "x"), (1, "a", "y"))
    workshop.ok("compact", topic, "--now", NOW)
    told = evidence_table(workshop).scan(row_filter=EqualTo("topic", topic)).to_arrow()
    old = told.drop_columns(["outcome", "note", "freed_bytes", "head_snapshot_id"]).slice(0, 1)
    catalog = open_catalog(workshop.platform())
    namespace = workshop.platform().catalog.namespace
    made = catalog.create_table(f"{namespace}.evidence_of_before", old.schema)
    made.append(old)
    [found] = read_evidence(made, topic)
    assert (found.outcome, found.dropped, found.note) == ("published", 1, "")


@pytest.mark.parametrize("lost", [1, pytest.param(2, marks=pytest.mark.deep)])
def test_a_round_whose_answer_row_was_lost_is_called_published_also_after_another_round(workshop, monkeypatch, lost):
    topic = workshop.topic(f"lost-answers-{lost}")
    monkeypatch.setattr(evidence, "DEAD_AFTER_MS", 10**9)  # the rounds follow each other at once

    def out_of_reach(*_):
        raise OutsideError("503")

    for n in range(lost + 1):
        ingest(workshop, topic, f"{n}.jsonl", (2 * n, "a", "x"), (2 * n + 1, "a", "y"))
        with monkeypatch.context() as patch:
            if n < lost:
                patch.setattr(publish, "append_answer", out_of_reach)
            assert workshop.run("compact", topic, "--now", NOW + n, "--force")[0] == (4 if n < lost else 0)
    monkeypatch.setattr(evidence, "DEAD_AFTER_MS", 0)
    ingest(workshop, topic, "last.jsonl", (9, "a", "x"), (10, "a", "y"))
    workshop.ok("compact", topic, "--now", NOW + 9, "--force")
    outcomes = [row["outcome"] for row in workshop.evidence(topic)]
    assert outcomes.count("published") == outcomes.count("checked") == lost + 2

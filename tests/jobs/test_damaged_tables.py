"""A table with a file that is damaged or missing: it hides no other topic, and ends no command in a traceback."""

from __future__ import annotations

import json
import time
from pathlib import Path
from urllib.parse import urlparse

import pytest

from cleantail.api import load_latest, set_position
from cleantail.config.topic_table import EVIDENCE
from cleantail.errors import TableError
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.evaluate import evaluate_topic
from cleantail.lake.facts_cache import FactsCache
from cleantail.rounds.pack_results import PackRequest
from cleantail.rounds.past_rounds import DAY_MS
from cleantail_airflow.page.page_content import PageContent
from spark_jobs.run.pack_run import run_pack
from tests.jobs.round.test_evidence import evidence_table, separate
from tests.jobs.round.test_rounds import NOW, record

COMMANDS = [
    ("status",), ("plan",), ("read",), ("latest",), ("compact",), ("check",), ("reclaim",), ("release", 0),
    ("plan", "--set", "segment.ms=5"),
]  # fmt: skip


def missing(file):
    file.unlink()


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def garbage(file):
    file.write_bytes(b"Obj\x01" + b"\xff\xfe\x00garbage" * 40)


def empty(file):
    file.write_bytes(b"")


@pytest.fixture
def two(workshop, table_of):
    """A topic that is well, and one of which files are damaged; of all tests the same tables."""
    for topic in ("damage-well", "damage-hurt"):
        workshop.topic(topic)
        if not table_of(topic).exists():
            lines = [record(n, "k", None if n == 2 else "v") for n in range(3)]
            workshop.ok("ingest", topic, "--file", workshop.file(f"{topic}.jsonl", lines))
            if topic == "damage-hurt":
                workshop.ok("compact", topic, "--now", NOW)
    return workshop


def files_of(table_of):
    """Kind -> a file of the table that is of it."""
    table = table_of("damage-hurt").load()
    snapshot = table.currentSnapshot()
    manifests = {str(m.content()): str(m.path()) for m in snapshot.allManifests(table.io())}
    return {
        "metadata": table.operations().current().metadataFileLocation(),
        "list": snapshot.manifestListLocation(),
        "manifest": manifests["DATA"],
        "deletes": manifests["DELETES"],
        "vectors": str(next(iter(snapshot.addedDeleteFiles(table.io()))).location()),
    }


CHEAP = {("metadata", cut), ("list", empty), ("manifest", garbage), ("deletes", missing)}
"""Each kind and each damage once; the other pairs are deep."""
CASES = [
    pytest.param(
        kind, damage, id=f"{kind}-{damage.__name__}", marks=() if (kind, damage) in CHEAP else pytest.mark.deep
    )
    for kind in ("metadata", "list", "manifest", "deletes")
    for damage in (missing, cut, garbage, empty)
] + [pytest.param("vectors", missing, id="vectors-missing")]


@pytest.mark.parametrize(("kind", "damage"), CASES)
def test_a_damaged_file_of_one_topic_hides_no_other_and_is_named_by_every_command(two, table_of, kind, damage):
    file = Path(urlparse(files_of(table_of)[kind]).path)
    whole = file.read_bytes()
    damage(file)
    try:
        code, out, err = two.run("status", "--json")
        assert "damage-well" in json.loads(out)["topics"]
        if kind != "vectors":  # metadata alone does not show it
            assert code == 2 and "damage-hurt" not in json.loads(out)["topics"]
            assert file.name in out + err and "is broken" in out + err
        for command, *options in COMMANDS:
            code, _, err = two.run(command, "damage-hurt", *options)
            assert "Traceback" not in err and "catalog cannot be reached" not in err, (command, err)
            assert kind == "vectors" or command == "release" or code == 2, (command, code, err)
    finally:
        file.write_bytes(whole)
    two.ok("status", "damage-hurt")


@pytest.mark.parametrize(
    "damage", [cut, *(pytest.param(damage, marks=pytest.mark.deep) for damage in (garbage, empty))]
)
def test_compact_and_read_name_a_damaged_data_file(workshop, table_of, damage):
    topic = workshop.topic(f"damage-data-{damage.__name__}")
    lines = [record(n, "k", "v") for n in range(3)]
    workshop.ok("ingest", topic, "--file", workshop.file(f"{topic}.jsonl", lines))
    table = table_of(topic).load()
    [added] = table.currentSnapshot().addedDataFiles(table.io())
    file = Path(urlparse(str(added.location())).path)
    damage(file)
    for command, *options in (("compact", "--force", "--now", NOW), ("read",)):
        code, _, err = workshop.run(command, topic, *options)
        assert (code, file.name in err) == (2, True), (command, code, err)


ASKED = "damage-well", "damage-hurt"


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        pytest.param("manifest", garbage, id="manifest-garbage"),
        pytest.param("manifest", missing, id="manifest-missing", marks=pytest.mark.deep),
        pytest.param("list", empty, id="list-empty", marks=pytest.mark.deep),
        pytest.param("metadata", cut, id="metadata-cut", marks=pytest.mark.deep),
        pytest.param("metadata", missing, id="metadata-missing", marks=pytest.mark.deep),
    ],
)
def test_page_evaluation_pack_and_programs_see_the_other_topics_and_the_error_of_the_damaged_one(
    two, table_of, spark, kind, damage
):
    file = Path(urlparse(files_of(table_of)[kind]).path)
    whole, platform = file.read_bytes(), two.platform()
    damage(file)
    try:
        content, now_ms = PageContent(two.config), int(time.time() * 1000)
        content.cache.summaries([two.find(name) for name in ASKED], 30)
        rows = {row.name: row for row in content.all_topics(ASKED, now_ms, {}).listing.rows}
        assert file.name in str(rows["damage-hurt"]) and "broken" not in str(rows["damage-well"])
        assert content.one_topic("damage-well", now_ms).logs
        hurt = content.one_topic("damage-hurt", now_ms)
        assert not hurt.logs and "is broken" in str(hurt.row)
        kept = FactsCache(platform)
        assert evaluate_topic(two.find("damage-well"), now_ms=NOW, kept=kept)
        with pytest.raises(TableError, match="is broken"):
            evaluate_topic(two.find("damage-hurt"), now_ms=NOW, kept=kept)
        outcomes = {o.topic: o for o in run_pack(spark, platform, PackRequest(ASKED, now_ms)).topics}
        assert not outcomes["damage-well"].error and "is broken" in outcomes["damage-hurt"].error
        assert load_latest(two.find("damage-well"), now_ms).to_arrow() is not None
        with pytest.raises(TableError, match="is broken"):
            load_latest(two.find("damage-hurt"), now_ms).to_arrow()
        catalog = open_catalog(platform)
        with pytest.raises(TableError, match="is broken"):
            set_position(catalog, two.find("damage-hurt"), "r", 0, 1)
        two.ok("reclaim", "damage-well")
        table = two.find("damage-hurt").table
        for command in (("adopt", table), ("mend", table), ("convert-deletes", table), ("rollback", "damage-hurt")):
            code, out, err = two.run(*command)
            assert code == 2 and "Traceback" not in err and "is broken" in err, (command, out, err)
    finally:
        file.write_bytes(whole)


@pytest.mark.parametrize(
    "kind", ["metadata", *(pytest.param(kind, marks=pytest.mark.deep) for kind in ("list", "manifest", "data"))]
)
def test_a_damaged_evidence_table_hides_no_topic_and_is_named(two, spark, kind):
    platform, now_ms = two.platform(), int(time.time() * 1000)
    evidence = open_catalog(platform).load_table(f"{platform.catalog.namespace}.{EVIDENCE}")
    [manifest, *_] = evidence.current_snapshot().manifests(evidence.io)
    entry = manifest.fetch_manifest_entry(evidence.io)[0]
    files = {
        "metadata": evidence.metadata_location,
        "list": evidence.current_snapshot().manifest_list,
        "manifest": manifest.manifest_path,
        "data": entry.data_file.file_path,
    }
    file = Path(urlparse(files[kind]).path)
    whole = file.read_bytes()
    garbage(file)
    try:
        for command in ("status", "plan", "read", "latest", "check"):
            code, _, err = two.run(command, *([] if command == "status" else ["damage-hurt"]))
            assert code in (0, 2) and "Traceback" not in err, (command, err)
        content = PageContent(two.config)
        rows = content.all_topics(ASKED, now_ms, {}).listing.rows
        assert {row.name for row in rows} == set(ASKED)
        shown = content.one_topic("damage-hurt", now_ms)
        assert shown.logs and (f"{EVIDENCE} is broken" in shown.rounds_error) == (not shown.rounds)
        assert content.cache.totals(10) is None  # not known, and no error
        two.ok(
            "ingest",
            "damage-well",
            "--file",
            two.file(f"{kind}.jsonl", [record(now_ms + n, "k", "v") for n in range(2)]),
        )
        code, _, err = two.run("compact", "damage-well")
        assert code in (0, 2) and "Traceback" not in err, err
        assert code == 0 or "evidence" in err, err
    finally:
        file.write_bytes(whole)
    two.ok("compact", "damage-well")


def of_evidence(workshop, kind):
    """A file of the evidence."""
    table = evidence_table(workshop)
    of_kind = {"data": table.inspect.files()["file_path"][0].as_py(), "list": table.current_snapshot().manifest_list}
    return Path(urlparse(of_kind[kind]).path)


@pytest.mark.parametrize("kind", ["data", "list"])
def test_a_command_that_fails_for_unreadable_evidence_has_changed_nothing(workshop, table_of, kind):
    separate(workshop, f"damaged_evidence_{kind}")
    topic = workshop.topic(f"damage-evidence-{kind}")
    for n in range(2):
        lines = [record(2 * n + i, "k", "v") for i in range(2)]
        workshop.ok("ingest", topic, "--file", workshop.file(f"{topic}-{n}.jsonl", lines))
        if n == 0:
            workshop.ok("compact", topic, "--now", NOW, "--force")
    for command, *options in (
        ("rollback", "--ingestion", "last"),
        ("rollback",),
        ("reclaim", "--now", NOW + 100 * DAY_MS),
        ("compact", "--force", "--now", NOW),
    ):
        file = of_evidence(workshop, kind)
        whole, before = file.read_bytes(), table_of(topic).load().currentSnapshot().snapshotId()
        cut(file)
        try:
            code, _, err = workshop.run(command, topic, *options)
            after = table_of(topic).load().currentSnapshot().snapshotId()
            assert code == 0 or (code, after) == (2, before) and EVIDENCE in err, (command, code, err)
        finally:
            file.write_bytes(whole)
        assert code == 0 or workshop.ok(command, topic, *options)

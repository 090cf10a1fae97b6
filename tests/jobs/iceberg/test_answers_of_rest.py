"""A REST catalog, or a gateway before it, answers 409, 500, 503 or nothing to each commit, takes it or does not, or
gets it twice: each command ends as if every answer had been good."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from cleantail.config.topic import Topic
from cleantail.lake.catalogs import kept_catalog
from cleantail.lake.own_namespace import write_answer, write_properties
from cleantail.lake.own_tables import own_table
from cleantail.rounds.approval import Answer
from spark_jobs.iceberg import commits
from tests.catalog_door import FAULTS, SILENCE_S, Fault
from tests.jobs.catalog_sites import site
from tests.jobs.iceberg.stations import STATIONS, adopted, end
from tests.jobs.round.test_rounds import record

pytestmark = pytest.mark.integration

CHEAP = {
    "no answer after": {"a first ingestion"},
    "delivered twice": {"a compaction"},
    "409 after": {"a compaction"},
    "500 before": {"a compaction"},
    "503 after": {"a reader"},
}
"""Fault -> stations that are tried with it in every run; test_answers_of_catalogs.py tries others with a SQL catalog.
The other cases are deep: their commits are those of a station that is tried."""
CASES = [
    pytest.param(
        station, fault, id=f"{station}: {fault}", marks=() if station in CHEAP.get(fault, ()) else pytest.mark.deep
    )
    for station in STATIONS
    for fault in FAULTS
]


@pytest.fixture(scope="module")
def catalog():
    with site("rest") as started:
        yield started


@pytest.fixture
def shop(catalog, workshop, monkeypatch):
    for name, value in catalog.env.items():
        monkeypatch.setenv(name, value)
    platform = {"allow_clock": True, "spark": {"master": "local[2]"}, "catalog": {"name": "faulty", **catalog.catalog}}
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": platform}))
    return workshop


@pytest.fixture(scope="module")
def good():
    """Station -> how it ends where every answer is right."""
    return {}


@pytest.mark.parametrize(("station", "fault"), CASES)
def test_a_faulty_answer_of_a_rest_catalog_does_not_change_the_result_of_a_command(
    shop, catalog, table_of, station, fault, good
):
    name = station.replace(" ", "-")
    if station not in good:
        topic = f"rest-{name}"
        STATIONS[station].find(shop, topic)
        done = STATIONS[station].run(shop, topic)
        good[station] = end(shop, table_of(topic), topic, done)
    topic = f"rest-{name}-{fault.replace(' ', '-')}"
    STATIONS[station].find(shop, topic)
    catalog.door.fault = Fault(*FAULTS[fault])
    try:
        done = STATIONS[station].run(shop, topic)
        wrong = catalog.door.fault.wrong
    finally:
        catalog.door.fault = None
    assert wrong, "no commit went wrong"
    assert end(shop, table_of(topic), topic, done) == good[station], (done, wrong)


@pytest.mark.parametrize(
    ("every", "failure", "code"), [(11, "500", 0), (11, "half", 0), (11, "silence", 0), (1, "silence", 4)]
)
def test_a_load_of_a_table_that_a_rest_catalog_does_not_answer_is_sent_again(shop, catalog, every, failure, code):
    defaults = json.loads((shop.config / "defaults.yaml").read_text())
    impatient = catalog.catalog["properties"] | {"rest.client.socket-timeout-ms": "2000"}
    defaults["platform"]["catalog"] |= {"name": f"{failure}{every}", "properties": impatient}
    (shop.config / "defaults.yaml").write_text(json.dumps(defaults))
    topic = f"rest-{failure}-{every}"
    STATIONS["a compaction"].find(shop, topic)
    catalog.door.failed, catalog.door.fails_every, catalog.door.failure = 0, every, failure
    began = time.monotonic()
    try:
        done = STATIONS["a compaction"].run(shop, topic)
    finally:
        catalog.door.fails_every = 0
    assert done[0] == code, done
    assert catalog.door.failed and time.monotonic() - began < SILENCE_S


def make_own_table(shop, namespace):
    own_table(shop.platform(), "made", pa.schema([("offset", pa.int64())]), None)


def write_a_property(shop, namespace):
    write_properties(kept_catalog(shop.platform()), namespace, {"a": "1"}, set())


def answer_a_question(shop, namespace):
    topic = Topic.model_validate({"topic": "asked", "table": f"{namespace}.asked"})
    write_answer(
        kept_catalog(shop.platform()), topic, Answer("asked", "compact", "r1", "ab", "cd", 5, True, "7", "Zoë", 6)
    )


def ingest_first(shop, namespace):
    topic = shop.topic(namespace.replace("_", "-"))
    shop.ok("ingest", topic, "--file", shop.file("a.jsonl", [record(0, "k", "v")]))


@pytest.mark.parametrize("create", [make_own_table, write_a_property, answer_a_question, ingest_first])
def test_a_creation_that_a_rest_catalog_refuses_as_existing_and_does_not_have_is_sent_again(shop, catalog, create):
    namespace = f"refused_{create.__name__}"
    defaults = json.loads((shop.config / "defaults.yaml").read_text())
    defaults["platform"]["catalog"]["namespace"] = namespace
    (shop.config / "defaults.yaml").write_text(json.dumps(defaults))
    catalog.door.fault = fault = Fault(*FAULTS["409 before"])
    try:
        create(shop, namespace)
    finally:
        catalog.door.fault = None
    assert "/v1/namespaces" in fault.wrong
    assert (f"/v1/namespaces/{namespace}/tables" in fault.wrong) == (create in (make_own_table, ingest_first))


@pytest.mark.parametrize("by", [pytest.param("before the command", marks=pytest.mark.deep), "before its commit"])
def test_no_commit_is_sent_by_which_a_rest_catalog_would_delete_metadata_of_another_table(
    shop, table_of, tmp_path, monkeypatch, by
):
    """Before the command: test_no_command_commits_where_the_commit_would_delete_another_tables_metadata holds it."""
    topic = f"rest-log-{by.split()[-1]}"
    adopted(shop, topic)
    other = tmp_path / "00001-x.metadata.json"
    other.write_text('{"table-uuid": "another"}')
    table = table_of(topic)

    def forge():
        metadata = Path(str(table.load().operations().current().metadataFileLocation()).removeprefix("file:"))
        document = json.loads(metadata.read_text())
        document["metadata-log"] = [{"timestamp-ms": 1, "metadata-file": str(other)}]
        document["properties"] |= {
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "1",
        }
        metadata.write_text(json.dumps(document))
        metadata.with_name(f".{metadata.name}.crc").unlink(missing_ok=True)  # the sum of what was there

    real = commits.COMMITS.run
    if by == "before the command":
        forge()
    else:  # when the round is made, and its first commit is not yet staged
        monkeypatch.setattr(commits, "COMMITS", SimpleNamespace(run=lambda once: (forge(), real(once))[1]))
    code, _, err = shop.run("compact", topic, "--force")
    assert (code, "a commit would delete it; nothing was changed" in err) == (2, True), err
    assert other.exists()

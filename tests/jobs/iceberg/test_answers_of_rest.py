"""A REST catalog, or a gateway before it, answers 409, 500, 503 or nothing to each commit, takes it or does not, or
gets it twice: each command ends as if every answer had been good."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_jobs.iceberg import commits
from tests.catalog_door import FAULTS, Fault
from tests.jobs.catalog_sites import site
from tests.jobs.iceberg.stations import STATIONS, adopted, end

pytestmark = pytest.mark.integration

CHEAP = {
    "no answer after": set(STATIONS) - {"a first read of a table", "a round that waits"},
    "delivered twice": {"a compaction", "a rollback", "an ingestion taken back", "a reclaim", "a first ingestion"},
    "409 after": {"a compaction", "a rollback", "a mend", "a reader that goes"},
    "500 after": {"a read of a table", "an adoption"},
    "503 after": {"a compaction", "a reader"},
    "500 before": {"a compaction", "a first ingestion"},
}
"""Fault -> stations that are tried with it in every run. The other cases are deep."""
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
def test_a_command_ends_the_same_whatever_a_rest_catalog_answers(shop, catalog, table_of, station, fault, good):
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


@pytest.mark.parametrize(("every", "codes"), [(23, [0, 0]), (1, [4, 4])], ids=["once", "for good"])
def test_a_load_of_a_table_that_a_rest_catalog_does_not_answer_is_sent_again(shop, catalog, every, codes):
    defaults = json.loads((shop.config / "defaults.yaml").read_text())
    impatient = catalog.catalog["properties"] | {"rest.client.socket-timeout-ms": "2000"}
    defaults["platform"]["catalog"] |= {"name": f"silent{every}", "properties": impatient}
    (shop.config / "defaults.yaml").write_text(json.dumps(defaults))
    topic = f"rest-silent-{every}"
    STATIONS["a reclaim"].find(shop, topic)
    catalog.door.failed, catalog.door.fails_every = 0, every
    try:
        done = [STATIONS[station].run(shop, topic) for station in ("a compaction", "a reclaim")]
    finally:
        catalog.door.fails_every = 0
    assert [code for code, *_ in done] == codes, done
    assert catalog.door.failed > 1


@pytest.mark.parametrize("by", ["before the command", "before its commit"])
def test_no_commit_is_sent_by_which_a_rest_catalog_would_delete_metadata_of_another_table(
    shop, table_of, tmp_path, monkeypatch, by
):
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

"""What Airflow's own provider for OpenLineage sends of a real run, with real jobs on real Spark.

The provider is no part of the tested environment: with it, each of Airflow's processes would start slower. It is put
into a folder of its own, by the hashes of constraints.txt, for one process of this test.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cleantail_airflow.lineage.lineage_operator import is_wanted
from tests.airflow_environment import ROOT

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.gx]
PACKAGES = (
    "apache-airflow-providers-openlineage",
    "httpcore2",
    "httpx2",
    "openlineage-integration-common",
    "openlineage-python",
    "openlineage-sql",
    "truststore",
)
"""What the extra `lineage` needs and the tested environment does not have."""
Event = dict[str, Any]


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, uv = tmp_path_factory.mktemp("provider"), Path(sys.executable).with_name("uv")
    if not uv.exists():
        pytest.skip("there is no uv in this environment to install Airflow's provider for OpenLineage with")
    pinned = folder / "requirements.txt"
    pins = re.split(r"\n(?=\S)", (ROOT / "constraints.txt").read_text())
    pinned.write_text("\n".join(pin for pin in pins if pin.partition("==")[0] in PACKAGES))
    command = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", folder / "packages"]
    command += ["--no-deps", "--require-hashes", "-r", pinned]
    made = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if "Failed to fetch" in made.stderr:
        pytest.skip("Airflow's provider for OpenLineage cannot be installed here: the package index is out of reach")
    assert made.returncode == 0, made.stderr
    return folder / "packages"


@pytest.fixture(scope="module")
def events(provider: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Event]:
    """Station -> the event at its end."""
    folder = tmp_path_factory.mktemp("lineage")
    path = os.pathsep.join([str(provider), str(ROOT)])
    env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")} | {"PYTHONPATH": path}
    command = [sys.executable, "-m", "tests.dags.lineage_run", str(folder)]
    made = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[-3000:]
    sent = [json.loads(line) for line in (folder / "events").read_text().splitlines()]
    return {event["job"]["name"].removeprefix("orders."): event for event in sent if event["eventType"] != "START"}


def told(datasets: list[Event]) -> list[tuple[str, str | None]]:
    """The last part of each dataset's name, and its snapshot."""
    return [(d["name"].rsplit("/")[-1], d["facets"].get("version", {}).get("datasetVersion")) for d in datasets]


def test_each_station_tells_what_it_has_read_and_written_at_which_snapshot(events: dict[str, Event]) -> None:
    (landed,) = events["ingest"]["inputs"]
    assert (landed["namespace"], Path(landed["name"]).name) == ("file", "a.jsonl")
    ((_, first),) = told(events["ingest"]["outputs"])
    assert events["ingest"]["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 80
    assert told(events["evaluate"]["inputs"]) == [("orders", first)]
    assert told(events["compact"]["inputs"]) == [("orders", first)]
    ((_, branch),) = told(events["compact"]["outputs"])
    assert told(events["check_quality"]["inputs"]) == [("orders", branch)]
    assert [name for name, _ in told(events["check_quality"]["outputs"])] == ["cleantail_evidence"]
    assert told(events["publish"]["inputs"]) == [("orders", branch)]
    (table, published), (evidence, _) = told(events["publish"]["outputs"])
    assert (table, evidence) == ("orders", "cleantail_evidence")
    assert len({first, branch, published}) == 3 and published


def test_a_red_check_fails_with_every_check_that_it_made(events: dict[str, Event]) -> None:
    event = events["check_quality"]
    assert event["eventType"] == "FAIL"
    assertions = event["inputs"][0]["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert len(assertions) > 5
    failed = [(a["assertion"], a["column"], a["severity"], a["description"]) for a in assertions if not a["success"]]
    assert failed == [("expect_column_value_lengths_to_be_between", "key", "error", "failed in partitions 1")]


def test_columns_come_from_those_of_the_same_name(events: dict[str, Event]) -> None:
    output = events["publish"]["outputs"][0]
    fields = output["facets"]["columnLineage"]["fields"]
    assert {"partition", "offset", "key", "value"} <= fields.keys()
    (origin,) = fields["value"]["inputFields"]
    assert (origin["namespace"], origin["name"], origin["field"]) == ("file", output["name"], "value")
    assert output["facets"]["symlinks"]["identifiers"][0]["name"] == "cleantail.orders"


def test_no_event_has_a_key_or_a_value_of_a_record(events: dict[str, Event]) -> None:
    text = json.dumps(events)
    assert "KEYMARK" not in text and "VALUEMARK" not in text


def test_without_the_provider_nobody_listens() -> None:
    assert not is_wanted()

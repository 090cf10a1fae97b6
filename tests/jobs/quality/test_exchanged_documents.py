"""A real job that is told what to do, and reports, through a store: as a driver on a cluster."""

from __future__ import annotations

import json
import os
from pathlib import Path

from spark_jobs import run_station
from tests.jobs.round.test_rounds import record


def test_a_job_reads_its_argument_from_the_store_and_reports_there_with_its_exit_code(workshop, tmp_path):
    topic = workshop.topic("exchanged")
    place, every = f"file://{tmp_path}/exchange", ["--config", str(workshop.config), "--topic", topic]
    file = Path(os.environ["CLEANTAIL_HOME"]) / "landing" / "exchanged.jsonl"  # where sources may be
    file.parent.mkdir(exist_ok=True)
    workshop.file("a.jsonl", [record(o, "a", "x") for o in range(3)]).rename(file)
    result = ["--result", f"{place}/result.json"]
    assert run_station.main(["ingest", *every, "--file", str(file), *result]) == 0
    reported = json.loads((tmp_path / "exchange" / "result.json").read_text())
    assert reported["exit_code"] == 0 and reported["result"]["ok"]
    (tmp_path / "exchange" / "argument-0.json").write_text('{"format": 1, "argument": "no unit"}')
    assert run_station.main(["compact", *every, "--unit", f"@{place}/argument-0.json", *result]) == 5
    reported = json.loads((tmp_path / "exchange" / "result.json").read_text())
    assert reported["exit_code"] == 5 and not reported["result"]["ok"]

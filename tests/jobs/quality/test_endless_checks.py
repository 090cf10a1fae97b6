"""A check that would never end is stopped: its partition is blocked, the process ends, and free text is never SQL."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from cleantail.errors import OutsideError
from tests.jobs.round.test_rounds import NOW, record

FOR_EVER = r"(.*)*\1b"
"""Java tries it on a line of 60 characters for longer than anybody waits; no interrupt reaches it."""
LIMIT_MS = 2_000


@pytest.mark.integration
@pytest.mark.deep
def test_an_endless_pattern_fails_its_check_at_the_time_limit_and_the_process_ends(workshop):
    """test_a_check_that_is_given_up_lets_the_next_try_go_on_and_its_log_rests in test_pack_run.py holds the rule."""
    check = {"expectation": "expect_column_values_to_match_regex", "kwargs": {"column": "value", "regex": FOR_EVER}}
    topic = workshop.topic("endless", checks=[check], schedule=None)
    lines = [record(n, "k", "a" * 60 + "!", partition=p) for p in (0, 1) for n in range(2)]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    settings = {"limits": {"checks.max.ms": LIMIT_MS}, "spark": {"master": "local[2]"}}
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": settings}))
    command = [sys.executable, "-m", "cleantail_cli", "compact", topic, "--now", str(NOW), "--config", workshop.config]
    began = time.monotonic()
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stderr
    assert f"took longer than {LIMIT_MS} ms; the limit is checks.max.ms" in done.stderr
    assert time.monotonic() - began < 200
    (workshop.config / "defaults.yaml").unlink()
    assert len(workshop.read(topic)) == 4
    logs = workshop.json("status", topic, "--now", NOW)["topics"][topic]
    assert all("checks.max.ms" in log["state"]["quarantine"]["reason"] for log in logs)


WAITS = """
import sys
from pathlib import Path
from cleantail.config.loading import load_platform
from spark_jobs.iceberg.session import start_session
from spark_jobs.quality import time_limit
from spark_jobs.quality.time_limit import TimeLimit, TooLongError
time_limit.GRACE_S, time_limit.POLL_EVERY_S = 8.0, 0.5
spark = start_session(load_platform(Path(sys.argv[1]), __import__("os").environ), "waits")
endless = spark.range(1).selectExpr("repeat('a', 60) || '!' AS v", "id").where(f"v || id RLIKE '{sys.argv[2]}'")
spark.range(1).count()  # a first job may take a second before its task begins
try:
    with TimeLimit(1_000).watched(spark):
        endless.count()
except TooLongError:
    assert time_limit.are_cores_lost(spark) and time_limit.lost_tasks(spark) == 1
    print("GIVEN UP", flush=True)
spark.range(1).count()
print("NOT REACHED", flush=True)
"""


@pytest.mark.deep
@pytest.mark.integration
def test_a_process_that_waits_for_a_core_that_is_lost_ends_as_one_that_failed(workshop):
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": {"spark": {"master": "local[1]"}}}))
    command = [sys.executable, "-c", WAITS, str(workshop.config), FOR_EVER.replace("\\", "\\\\")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split()[-2:]) == (OutsideError.exit_code, ["GIVEN", "UP"]), done.stderr


SQL = "x') or raise_error('SQL RAN') is null --"


def test_free_text_in_a_check_is_never_sql(workshop):
    """Each argument that takes any text: values, patterns, formats, names of columns."""
    texts = {
        "expect_column_values_to_be_in_set": {"column": "key", "value_set": [SQL, "`key`", "$(key)", "'"]},
        "expect_column_distinct_values_to_equal_set": {"column": "key", "value_set": [SQL]},
        "expect_column_pair_values_to_be_in_set": {
            "column_A": "key",
            "column_B": "value",
            "value_pairs_set": [[SQL, SQL]],
        },
        "expect_column_values_to_match_regex": {"column": "key", "regex": "x'\\) or raise_error\\('SQL RAN'\\)"},
        "expect_column_values_to_match_regex_list": {
            "column": "key",
            "regex_list": ["' or raise_error\\('SQL RAN'\\)"],
        },
        "expect_column_values_to_match_strftime_format": {"column": "key", "strftime_format": "%Y') or raise_error('"},
        "expect_table_columns_to_match_set": {"column_set": [SQL, "`key`"]},
    }
    checks = [{"expectation": name, "kwargs": kwargs, "severity": "warning"} for name, kwargs in texts.items()]
    topic = workshop.topic("free-text", checks=checks)
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(n, "k", "v") for n in range(2)]))
    code, out, err = workshop.run("compact", topic, "--now", NOW)
    assert code == 0, err
    [row] = [r for r in workshop.evidence(topic) if r["checks"]][:1]
    own = {c["expectation"]: c for c in json.loads(row["checks"]) if c["expectation"] in texts}
    assert own.keys() == texts.keys()
    assert not [c for c in own.values() if c["passed"] or c.get("error") or "could not" in c["observed"]]
    assert "USER_RAISED" not in out + err

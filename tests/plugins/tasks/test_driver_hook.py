"""What a Spark driver gets of the environment: no key, connection, variable or token of Airflow's."""

from __future__ import annotations

import json
import os
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cleantail_airflow.tasks.spark_job import CleantailSparkOperator, DriverHook
from tests.airflow_environment import ROOT
from tests.airflow_site import Site, plan
from tests.cleantail.home.test_driver_environment import NEEDED, SECRETS
from tests.plugins.tasks.test_spark_operator import FakeTask

JOB = """
import argparse, json, os
from pathlib import Path
from cleantail.config.loading import load_platform
from spark_jobs.iceberg.session import start_session
given = argparse.ArgumentParser()
for name in ("station", "--config", "--topic", "--result"):
    given.add_argument(name)
given = given.parse_args()
spark = start_session(load_platform(Path(given.config)), "environment")
jvm = spark._jvm.java.lang.System.getenv()
seen = {
    "python": sorted(os.environ),
    "jvm": sorted(str(name) for name in jvm.keySet()),
    "proc of python": sorted(e.partition("=")[0] for e in Path("/proc/self/environ").read_text().split("\\0") if e),
    "proc of jvm": sorted(
        e.partition("=")[0] for e in Path(f"/proc/{os.getppid()}/environ").read_text().split("\\0") if e
    ),
    "worker": spark.sparkContext.parallelize([0], 1).map(lambda _: sorted(os.environ)).first(),
}
Path(given.result).write_text(json.dumps({"ok": True, "seen": seen}))
spark.stop()
"""


class Names(CleantailSparkOperator):
    job = "publish"
    file = ""

    def arguments(self, context: Any) -> list[str]:
        self.application = self.file
        return []


@pytest.mark.integration
@pytest.mark.spark
def test_a_real_driver_its_python_and_its_workers_have_no_name_of_a_secret_of_airflow(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tmp_path / "environment.py"
    job.write_text(JOB)
    site.topic("orders")
    monkeypatch.setenv("CLEANTAIL_JARS", os.environ.get("CLEANTAIL_JARS", str(ROOT / ".cleantail" / "jars")))
    for name, value in {**SECRETS, **NEEDED}.items():
        if name not in ("AWS_PROFILE", "HADOOP_CONF_DIR"):  # Spark would look for what they name
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "")  # Airflow itself would use it
    operator = Names(task_id="publish", topic="orders", config_dir=str(site.config))
    operator.file = str(job)
    few = FakeTask(plan() | {"records": 10})  # with which the JVM compiles less
    seen = operator.execute({"ti": few})["seen"]  # type: ignore[arg-type, typeddict-item]
    for where, names in seen.items():
        kept = [name for name in names if name.upper().lstrip("_").startswith("AIRFLOW")]
        assert {"AIRFLOW_CTX_DAG_ID", "AIRFLOW_CTX_TASK_ID"} <= {*kept}, where
        assert all(name.startswith("AIRFLOW_CTX_") for name in kept), where  # what names the task is no secret
        assert "CLEANTAIL_METRICS_TOKEN" not in names, where
        assert {"CLEANTAIL_CATALOG_PASSWORD", "CLEANTAIL_S3_SECRET_ACCESS_KEY", "CLEANTAIL_HOME", "PATH"} <= {*names}
    assert json.dumps(seen).count("AIRFLOW_CTX_DAG_ID") == len(seen) == 5


def test_lines_of_a_driver_command_no_terminal() -> None:
    """Spark's own lines too: its JVM logs the paths of files that others named."""
    hook: Any = DriverHook.__new__(DriverHook)
    hook.__dict__.update(_driver_id=None, _is_yarn=False, _is_kubernetes=False)
    hook.__dict__.update(_exception_anchor_seen=False, _last_submit_log_lines=deque())
    hook._should_track_driver_status = False
    told: list[str] = []
    hook._log = SimpleNamespace(info=lambda form, *values: told.append(form % values if values else form))
    hook._process_spark_submit_log(iter(["WARN \x1b[31ms3://b/\u202ef\r\n", "at x\n"]))
    assert [line.strip() for line in told] == ["WARN [31ms3://b/f", "at x"]

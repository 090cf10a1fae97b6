"""What a Spark driver gets of the environment: no key, connection, variable or token of Airflow's."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cleantail_airflow.tasks.driver_environment import of_driver
from cleantail_airflow.tasks.spark_operator import CleantailSparkOperator
from tests.airflow_environment import ROOT
from tests.airflow_site import Site
from tests.plugins.test_spark_operator import FakeTask

SECRETS = {
    "AIRFLOW__API_AUTH__JWT_SECRET": "jwt",
    "AIRFLOW__API_AUTH__JWT_SECRET_CMD": "cat jwt",
    "AIRFLOW__API__SECRET_KEY": "key",
    "AIRFLOW__API__SECRET_KEY_CMD": "cat key",
    "AIRFLOW__CORE__FERNET_KEY": "fernet",
    "AIRFLOW__CORE__FERNET_KEY_SECRET": "fernet",
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": "/p.json",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql://airflow:hunter2@db/airflow",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_CMD": "cat conn",
    "AIRFLOW__SECRETS__BACKEND_KWARGS": '{"token": "hunter2"}',
    "AIRFLOW_CONN_CRM_SLACK": "http://hooks.slack.example/T0",
    "AIRFLOW_VAR_PAGER_KEY": "hunter2",
    "AIRFLOW_PASSWORD_ADMIN": "hunter2",
    "_AIRFLOW_WWW_USER_PASSWORD": "hunter2",
    "airflow__core__fernet_key": "fernet",
    "CLEANTAIL_METRICS_TOKEN": "metrics",
}
NEEDED = {
    "CLEANTAIL_CATALOG_PASSWORD": "catalog",
    "CLEANTAIL_S3_SECRET_ACCESS_KEY": "s3",
    "AIRFLOW_CTX_DAG_ID": "orders",
    "AIRFLOW_CTX_TASK_ID": "publish",
    "AWS_PROFILE": "lake",
    "HADOOP_CONF_DIR": "/etc/hadoop",
}

JOB = """
import argparse, json, os
from pathlib import Path
from cleantail.config.loading import load_platform
from spark_jobs.iceberg.session import start_session
given = argparse.ArgumentParser()
for name in ("--config", "--topic", "--result"):
    given.add_argument(name)
given = given.parse_args()
spark = start_session(load_platform(Path(given.config), os.environ), "environment")
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


def test_what_is_airflows_is_left_out_and_the_rest_stays() -> None:
    assert of_driver({**SECRETS, **NEEDED}) == NEEDED


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
    seen = operator.execute({"ti": FakeTask()})["seen"]  # type: ignore[arg-type, typeddict-item]
    for where, names in seen.items():
        kept = [name for name in names if name.upper().lstrip("_").startswith("AIRFLOW")]
        assert {"AIRFLOW_CTX_DAG_ID", "AIRFLOW_CTX_TASK_ID"} <= {*kept}, where
        assert all(name.startswith("AIRFLOW_CTX_") for name in kept), where  # what names the task is no secret
        assert "CLEANTAIL_METRICS_TOKEN" not in names, where
        assert {"CLEANTAIL_CATALOG_PASSWORD", "CLEANTAIL_S3_SECRET_ACCESS_KEY", "CLEANTAIL_HOME", "PATH"} <= {*names}
    assert json.dumps(seen).count("AIRFLOW_CTX_DAG_ID") == len(seen) == 5

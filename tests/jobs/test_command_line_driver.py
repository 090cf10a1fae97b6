"""A driver that the command line starts in Airflow's container has none of Airflow's secrets either, and its folders are
its own and go with it. test_private_files.py has the rights of the folders of a session."""

import json
import os
import subprocess
import sys

import pytest

import tests.airflow_environment  # noqa: F401  # as an Airflow has it, before a JVM starts
from tests.cleantail.home.test_driver_environment import NEEDED, SECRETS

DRIVER = """
import json, os, sys
from pathlib import Path
os.umask(0o002)
from cleantail.config.loading import load_platform
from cleantail.home.process import end_process
from spark_jobs.iceberg.session import start_session
before = dict(os.environ)
spark = start_session(load_platform(Path(sys.argv[1])), "environment")
seen = {
    "jvm": sorted(str(name) for name in spark._jvm.java.lang.System.getenv().keySet()),
    "worker": spark.sparkContext.parallelize([0], 1).map(lambda _: sorted(os.environ)).first(),
}
spark.sparkContext.parallelize([(1, "a"), (2, "b")], 2).groupByKey().count()
conf = spark.sparkContext.getConf()
folders = [conf.get("spark.local.dir"), conf.get("spark.python.unix.domain.socket.dir")]
modes = [oct(os.stat(folder).st_mode & 0o777) for folder in folders]
lost = sorted(before.keys() - os.environ.keys())
print(json.dumps({"seen": seen, "lost": lost, "folders": folders, "modes": modes}))
spark.stop()
end_process(0)
"""


def test_the_jvm_and_the_workers_of_a_session_have_no_name_of_a_secret_of_airflow(spark):
    secrets = {name for name in os.environ if name.startswith(("AIRFLOW__", "AIRFLOW_CONN_"))}
    assert "AIRFLOW__API_AUTH__JWT_SECRET" in secrets
    jvm = {str(name) for name in spark._jvm.java.lang.System.getenv().keySet()}
    worker = {*spark.sparkContext.parallelize([0], 1).map(lambda _: sorted(os.environ)).first()}
    assert "PATH" in jvm & worker
    assert not (jvm | worker) & secrets


@pytest.mark.deep
@pytest.mark.integration
def test_the_jvm_and_the_workers_of_the_command_line_have_no_name_of_a_secret_of_airflow_and_private_folders(tmp_path):
    """In a shell whose umask lets the group write the driver's folders are its own all the same."""
    (tmp_path / "topics").mkdir()
    (tmp_path / "defaults.yaml").write_text("platform: {}\n")
    needed = {name: value for name, value in NEEDED.items() if name not in ("AWS_PROFILE", "HADOOP_CONF_DIR")}
    env = os.environ | SECRETS | needed | {"CLEANTAIL_HOME": str(tmp_path / "home")}
    secrets = {*SECRETS, "CLEANTAIL_ERASURE_KEY"}  # with it this process makes marks of keys
    needed.pop("CLEANTAIL_ERASURE_KEY")
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    for where, names in result["seen"].items():
        assert not {*names} & secrets, where
        assert {*needed, "CLEANTAIL_HOME", "PATH"} <= {*names}, where
    assert result["lost"] == []  # the process itself goes on with what it had
    assert result["modes"] == ["0o700", "0o700"]
    assert not any(os.path.exists(folder) for folder in result["folders"])
    assert done.stderr == ""

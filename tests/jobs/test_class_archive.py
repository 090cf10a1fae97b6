"""The class archive is made in its time, or not at all, and Java can use it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest

from cleantail.config.platform import Platform
from cleantail.lake.spark_settings import CLASS_ARCHIVE, spark_conf

ROOT = Path(__file__).resolve().parents[2]
FETCHED = Path(os.environ.get("CLEANTAIL_JARS") or ROOT / ".cleantail" / "jars")


def test_a_class_archive_that_takes_too_long_is_killed_with_its_child_processes(tmp_path):
    """A JVM may hang on a busy machine, and `make setup` with it."""
    (tmp_path / ".classes.jsa.half").write_text("what a killed JVM leaves")
    command = [sys.executable, "-m", "cleantail_cli.class_archive", "--jars", tmp_path, "--within", "0.5"]
    began = time.monotonic()
    done = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, time.monotonic() - began < 100) == (1, True)
    assert "no class archive within 0.5 s" in done.stderr
    assert list(tmp_path.iterdir()) == []
    there = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in there


@pytest.mark.skipif(not (FETCHED / CLASS_ARCHIVE).exists(), reason="`make setup` has made no class archive")
def test_java_can_use_the_class_archive_with_the_class_path_and_options_of_a_driver(tmp_path):
    """A driver silently ignores an archive that does not fit. With -Xshare:on, Java refuses to start instead."""
    platform = Platform(home=tmp_path, config_dir=tmp_path).with_env({"CLEANTAIL_JARS": str(FETCHED)})
    conf = spark_conf(platform)
    names = ("spark.driver.extraClassPath", "spark.driver.defaultJavaOptions")
    settings = [text for name in names for text in ("--conf", f"{name}={conf[name]}")]
    assert CLASS_ARCHIVE in conf["spark.driver.defaultJavaOptions"]
    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-submit"), *settings, "--driver-java-options", "-Xshare:on", "--version"]
    environment = {**os.environ, "SPARK_HOME": str(home)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr

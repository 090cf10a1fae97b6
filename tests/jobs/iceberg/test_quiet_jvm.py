"""A JVM that does not start: the error has the reason, and speaks of a missing Java only if there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
CODE = (
    "import json, sys; from cleantail.errors import OutsideError; from spark_jobs.iceberg.session import start_jvm\n"
    "try: start_jvm(json.loads(sys.argv[1]))\n"
    "except OutsideError as e: print(e)\n"
)
TOO_OLD = "java.lang.UnsupportedClassVersionError: org/apache/spark/launcher/Main"


def not_started(settings: str, **environment: str) -> str:
    argv = [sys.executable, "-c", CODE, settings]
    ran = subprocess.run(
        argv, env=os.environ | environment, cwd=ROOT, capture_output=True, encoding="utf-8", check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        pytest.param("-javaagent:/no/such.jar", "/no/such.jar", id="an agent"),
        pytest.param("-Xms900g", "Initial heap size set to a larger value", id="the heap", marks=pytest.mark.deep),
    ],
)
def test_a_jvm_that_ends_at_once_is_reported_with_its_own_reason(options, reason):
    said = not_started(f'{{"spark.driver.extraJavaOptions": "{options}", "spark.driver.memory": "512m"}}')
    assert "Spark did not start with " in said and reason in said
    assert "Java 17" not in said


def test_a_java_that_is_missing_is_reported_as_missing(tmp_path):
    said = not_started("{}", JAVA_HOME=str(tmp_path))
    assert f"JAVA_HOME is {tmp_path}, and has no bin/java. Java 17 or newer must be on PATH" in said


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(TOO_OLD, "is too old. Java 17 or newer must be on PATH", id="too old"),
        pytest.param("no space left", ": no space left. Check memory", id="another reason"),
    ],
)
def test_a_java_that_fails_is_reported_by_what_it_says(tmp_path, text, reason):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit 1\n", encoding="utf-8")
    java.chmod(0o755)
    assert reason in not_started("{}", JAVA_HOME=str(tmp_path))

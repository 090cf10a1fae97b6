"""Facts about the machine, and versions of the measured programs, for the report. Without paths and host names."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.harness.lake import spark_jars
from differential.broker import ROOT, kafka_jars

UNKNOWN = "unknown"
ICEBERG = re.compile(r"iceberg-spark-runtime-[\d.]+_[\d.]+-([\w.]+)\.jar")
KAFKA = re.compile(r"kafka_2\.13-([\w.]+)\.jar")


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def machine() -> dict[str, str]:
    """Return cores, processor, memory and operating system as text."""
    memory_kib = int(_field("/proc/meminfo", "MemTotal").split()[0] or 0)
    return {
        "cores": str(cores()),
        "processor": _field("/proc/cpuinfo", "model name"),
        "memory": f"{memory_kib / (1 << 20):.0f} GiB",
        "system": _field("/etc/os-release", "PRETTY_NAME", "=").strip('"'),
    }


def versions() -> dict[str, str]:
    """Return the versions of the measured programs and their libraries, and the commit of Cleantail."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "Cleantail": _output_of(["git", "-C", str(ROOT), "describe", "--always", "--dirty"]),
        "Python": platform.python_version(),
        "Java": _java(),
        "Spark": _package("pyspark"),
        "Iceberg": jar_version(spark_jars(), ICEBERG),
        "Kafka": jar_version(kafka_jars(os.environ), KAFKA),
        "DuckDB": _package("duckdb"),
    }


def jar_version(directory: Path, name: re.Pattern[str]) -> str:
    """Return the version in a jar's file name."""
    matches = (name.search(jar.name) for jar in sorted(directory.glob("*.jar")))
    return next((match[1] for match in matches if match), UNKNOWN)


def _java() -> str:
    """Return the quoted part of `openjdk version "17.0.13" 2024-10-15`, which java prints to stderr."""
    quoted = re.search(r'"([^"]+)"', _output_of(["java", "-version"]))
    return quoted[1] if quoted else UNKNOWN


def _package(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _output_of(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return UNKNOWN
    return (done.stdout or done.stderr).strip() if done.returncode == 0 else UNKNOWN


def _field(file: str, name: str, separator: str = ":") -> str:
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return UNKNOWN
    pairs = (line.partition(separator) for line in lines)
    return next((text.strip() for key, _, text in pairs if key.strip() == name), UNKNOWN)

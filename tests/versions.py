"""Both ends of the ranges in pyproject.toml: `python -m tests.versions [oldest|newest]`, as `make test-versions` does.

For each end, in a virtual environment of its own outside of the repository:

1. The wheel is installed from the package index with all extras; the oldest end names its versions (OLDEST).
2. `cleantail jars` fetches Iceberg's runtime for that version of Spark.
3. Airflow's own discovery has to see the DAGs of three lines, the plugin once, and the provider.
4. A small topic is ingested and compacted (which checks and publishes) by the command line.
5. The topic's DAG runs once by `dag.test()`, from `evaluate` to `publish`, by spark-submit.

It takes minutes and asks the package index and Maven Central, so it is no part of `make test`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.package import airflow_probe
from tests.package.clean_environment import CleanEnvironment, built_wheel

TOPIC = "versions"
OLDEST = {
    "apache-airflow": "3.1.8",
    "apache-airflow-providers-apache-spark": "5.4.0",
    "apache-airflow-providers-apprise": "2.1.3",
    "apache-airflow-providers-http": "5.4.0",
    "apache-airflow-providers-smtp": "2.3.1",
    "apache-airflow-providers-standard": "1.9.0",
    "great-expectations": "1.24.0",
    "pyspark": "4.0.0",
    "pyspark-client": "4.0.0",
}
"""The oldest versions that are tried. Of Airflow 3.1 it is the last patch: 3.1.0 needs a structlog of its own time, which
its constraints name and its metadata do not."""
ENDS: dict[str, dict[str, str]] = {"oldest": OLDEST, "newest": {}}
SHOWN = ("apache-airflow", "apache-airflow-providers-apache-spark", "great-expectations", "pyiceberg", "pyspark")
DAGS = "from cleantail_airflow import topic_dags\n\nglobals().update(topic_dags({config!r}))\n"
SPARK = json.dumps({"conn_type": "spark", "host": "local[2]"})
GREEN = ("evaluate", "compact", "check_quality", "publish")


def installed(place: Path, wheel: Path, pins: dict[str, str]) -> CleanEnvironment:
    """Makes a virtual environment with the wheel and all that its extras ask for."""
    made = CleanEnvironment(place / "environment", place / "home")
    made.home.mkdir()
    uv = Path(sys.executable).with_name("uv")
    _run([uv, "venv", "--quiet", "--python", sys.executable, made.folder])
    pinned = [f"{name}=={number}" for name, number in pins.items()]
    install = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", made.python]
    _run([*install, f"cleantail[all] @ {wheel.as_uri()}", *pinned])
    return made


def tried(place: Path, wheel: Path, pins: dict[str, str]) -> dict[str, str]:
    """Goes through all steps; returns the versions. Raises AssertionError at the first that is not as it has to be."""
    made = installed(place, wheel, pins)
    config, dags, lines = _configuration(place), place / "dags", place / "lines.jsonl"
    dags.mkdir()
    (dags / "cleantail.py").write_text(DAGS.format(config=str(config)))
    made.run("cleantail", "jars")

    seen = _answer(made.run("python", airflow_probe.__file__, dags).stdout)
    assert seen["parsed"][0]["dags"] == [TOPIC], seen["parsed"]
    assert (seen["plugins"].count("cleantail"), seen["plugin_errors"]) == (1, {}), seen
    assert seen["hook"], seen

    options = ("--config", str(config), "--json")
    lines.write_text(_lines(0, 200))
    made.run("cleantail", "ingest", TOPIC, "--file", lines, *options)
    compacted = json.loads(made.run("cleantail", "compact", TOPIC, *options).stdout)
    assert compacted["compacted"]["published"] == [0], compacted

    lines.write_text(_lines(200, 400))
    made.run("cleantail", "ingest", TOPIC, "--file", lines, *options)
    airflow = {"AIRFLOW_CONN_SPARK_DEFAULT": SPARK, "AIRFLOW__CORE__DAGS_FOLDER": str(dags)}
    made.run("airflow", "db", "migrate", **airflow)
    states = _answer(made.run("python", airflow_probe.__file__, "--run", TOPIC, dags, **airflow).stdout)
    assert {states[task] for task in ("run", *GREEN)} == {"success"}, states
    latest = made.run("cleantail", "latest", TOPIC, *options).stdout.splitlines()
    assert len(latest) == 20, latest
    return {name: _version(made, name) for name in SHOWN}


def _configuration(place: Path) -> Path:
    config = place / "etc" / "config"
    (config / "topics").mkdir(parents=True)
    configs = {"segment.ms": 1, "min.cleanable.dirty.ratio": 0}
    (config / "topics" / f"{TOPIC}.yaml").write_text(json.dumps({"topic": TOPIC, "config": configs}))
    return config


def _lines(first: int, end: int) -> str:
    records: list[dict[str, Any]] = [
        {"partition": 0, "offset": n, "ts": n, "key": f"k{n % 20}", "payload": f"v{n}"} for n in range(first, end)
    ]
    return "".join(f"{json.dumps(record)}\n" for record in records)


def _answer(output: str) -> dict[str, Any]:
    (line,) = [line for line in output.splitlines() if line.startswith(airflow_probe.MARK)]
    answer: dict[str, Any] = json.loads(line.removeprefix(airflow_probe.MARK))
    return answer


def _version(made: CleanEnvironment, package: str) -> str:
    return made.run("python", "-c", f"import importlib.metadata as m; print(m.version({package!r}))").stdout.strip()


def _run(command: Sequence[str | Path]) -> None:
    subprocess.run(command, check=True, env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})


def main(ends: Sequence[str]) -> int:
    """Tries each end and prints a line for it. Returns 1 where one failed."""
    failed = False
    with tempfile.TemporaryDirectory(prefix="cleantail-versions-") as folder:
        wheel = built_wheel(Path(folder))
        for end in ends or ENDS:
            place, began = Path(folder) / end, time.monotonic()
            place.mkdir()
            try:
                versions = tried(place, wheel, ENDS[end])
            except (AssertionError, subprocess.CalledProcessError) as error:
                failed = True
                print(f"{end}: FAILED: {error}", flush=True)
                continue
            words = ", ".join(f"{name} {number}" for name, number in versions.items())
            print(f"{end}: {words}: {time.monotonic() - began:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

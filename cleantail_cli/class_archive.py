"""Make the class archive (Java's class-data sharing), with which later Spark applications start faster.

    python -m cleantail_cli.class_archive [--jars DIRECTORY] [--within SECONDS]

A JVM ingests small topics in a temporary folder, makes two runs of each, checks their tables, and rolls them back. One
topic has its own check, another has versions. Then the JVM writes its loaded classes to DIRECTORY/classes.jsa. A JVM of
another Java, or with other jars, ignores the archive.

Everything works without an archive, so a process that hangs is killed with its JVM after `--within`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from cleantail.config.loading import load_platform
from cleantail.lake.jar_list import JARS_VARIABLE, jars_directory
from cleantail.lake.spark_settings import CLASS_ARCHIVE, CONF_DIR_VARIABLE, JVM_OPTIONS, QUIET_ARCHIVE, SMALL_RUN

NUMBERS = {"expectation": "expect_column_values_to_match_regex", "kwargs": {"column": "key", "regex": "^[0-9]+$"}}
TOPICS: dict[str, dict[str, Any]] = {
    "plain": {"checks": [NUMBERS]},
    "versions": {"config": {"compaction.strategy": "timestamp", "cleantail.tombstone.lateness.ms": 86_400_000}},
}
"""Each runs code that the other does not: a topic's own check reads records, and versions are remembered."""
RECORDS, KEYS = 300, 40
DUMP_WITHIN_S = 180
WITHIN_S = 600


def make_archive(archive: Path, work: Path) -> None:
    """Run the topics in this process and end its JVM. Raises CalledProcessError, and leaves no partial archive."""
    from pyspark import SparkContext

    half = archive.with_name(f".{archive.name}.half")
    archive.unlink(missing_ok=True)  # a JVM can use one archive or write one
    config = _config(work, f"{JVM_OPTIONS} {QUIET_ARCHIVE} -XX:ArchiveClassesAtExit={half}")
    for first in (0, RECORDS):
        lines = work / f"{first}.jsonl"
        lines.write_text("".join(_lines(first)), encoding="utf-8")
        for topic in TOPICS:
            _run(config, ["ingest", topic, "--file", str(lines)], ["compact", topic], ["reclaim", topic])
        for name, value in SMALL_RUN.items():  # runs without generated code load other classes
            if name.startswith("spark.sql"):
                _session().conf.set(name, value)
    for topic in TOPICS:
        _run(config, ["check", topic], ["rollback", topic])
    _session().stop()
    gateway: Any = SparkContext._gateway
    gateway.proc.stdin.close()  # the JVM ends with its standard input
    gateway.proc.wait(DUMP_WITHIN_S)
    half.rename(archive)


def _session() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _config(work: Path, options: str) -> Path:
    topics = work / "config" / "topics"
    topics.mkdir(parents=True)
    configs = {"segment.ms": 1, "delete.retention.ms": 0, "min.cleanable.dirty.ratio": 0}
    for name, yaml in TOPICS.items():
        config = configs | yaml.get("config", {})
        (topics / f"{name}.yaml").write_text(json.dumps({"topic": name, **yaml, "config": config}), encoding="utf-8")
    spark = {"master": "local[2]", "conf": {"spark.driver.extraJavaOptions": options}}
    (topics.parent / "defaults.yaml").write_text(json.dumps({"platform": {"spark": spark}}), encoding="utf-8")
    return topics.parent


def _run(config: Path, *commands: list[str]) -> None:
    from cleantail_cli import main

    for command in commands:
        with redirect_stdout(None):
            code = main([*command, "--config", str(config), "--json"])
        if code:
            raise subprocess.CalledProcessError(code, command)


def _lines(first: int) -> Iterator[str]:
    for offset in range(first, first + RECORDS):
        record = {"partition": offset % 2, "offset": offset, "ts": offset, "key": str(offset % KEYS)}
        yield f"{json.dumps(record | {'payload': None if offset % 7 == 0 else 'value'})}\n"


def make_archive_within(archive: Path, work: Path, seconds: float) -> int:
    """Make the archive in a separate process. Kill that process and its descendants after `seconds`."""
    command = [sys.executable, "-m", "cleantail_cli.class_archive", "--jars", str(archive.parent), "--work", str(work)]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        print(f"no class archive within {seconds:g} s; JVMs start without it, but more slowly", file=sys.stderr)
        return 1
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        archive.with_name(f".{archive.name}.half").unlink(missing_ok=True)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jars", type=Path, help=f"default: {JARS_VARIABLE}, else where `cleantail jars` puts them")
    parser.add_argument("--within", type=float, default=WITHIN_S, help="seconds (default: %(default)s)")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="cleantail-classes-") as folder:
        work = options.work or Path(folder)
        jars = options.jars or jars_directory(load_platform(work).home, os.environ)
        os.environ.pop(CONF_DIR_VARIABLE, None)  # an archive cannot contain its files
        os.environ |= {JARS_VARIABLE: str(Path(jars).absolute()), "CLEANTAIL_HOME": str(work / "home")}
        archive = Path(os.environ[JARS_VARIABLE]) / CLASS_ARCHIVE
        if options.work is None:
            return make_archive_within(archive, work, options.within)
        make_archive(archive, work)
    print(f"{archive}: {archive.stat().st_size / (1 << 20):.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

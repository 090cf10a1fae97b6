"""`python -m differential`: see the package. Exit codes: 0 equal, 1 different or not compared, 130 interrupted."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

from rich.console import Console

import differential
from cleantail.human import counted
from differential.archive import Archive, ArchiveError
from differential.broker import ROOT, Broker, BrokerError, kafka_jars, running_broker
from differential.families import CHANGELOG_TOPIC, FAMILIES, Plan, changelog_plan, random_plans
from differential.summary import print_summary
from differential.trial import Progress, Trial, run_trial

CHANGELOG = ROOT.parent / "shared" / "data" / "iceberg-python-files.jsonl.gz"
HISTORIES = 56
PIPE_WIDTH = 170
SPARK = {
    "spark.sql.shuffle.partitions": 2,
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.net.preferIPv4Stack=true",
}
"""Spark's settings for small tables and short applications."""


def main(argv: list[str]) -> int:
    arguments = _parse_args(argv)
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)
    signal.signal(signal.SIGTERM, _end)
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="cleantail-differential-") as directory:
            trials = _run(console, _plans(console, arguments), Path(directory))
    except (BrokerError, ArchiveError) as error:
        console.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130
    print_summary(console, trials, arguments.seed)
    return _verdict(console, trials, time.monotonic() - started)


def _parse_args(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m differential",
        description=differential.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--histories", type=int, default=HISTORIES, metavar="N", help=f"random ones ({HISTORIES})")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="seed of the random histories (1)")
    names = [*(family.name for family in FAMILIES), CHANGELOG_TOPIC]
    parser.add_argument("--only", choices=names, action="append", help="compare only this topic; may be repeated")
    parser.add_argument("--changelog", type=Path, default=CHANGELOG, metavar="F", help="kcat -J lines of a topic")
    return parser.parse_args(argv)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _plans(console: Console, arguments: argparse.Namespace) -> list[Plan]:
    """Return the plans of the random histories and the changelog, or of those that the command line names."""
    topics = arguments.only or [*(family.name for family in FAMILIES), CHANGELOG_TOPIC]
    families = [family for family in FAMILIES if family.name in topics]
    plans = random_plans(arguments.histories, arguments.seed, families) if families else []
    if CHANGELOG_TOPIC in topics and arguments.changelog.exists():
        plans.append(changelog_plan(arguments.changelog))
    elif CHANGELOG_TOPIC in topics:
        console.print(f"NOT compared: there is no changelog at {arguments.changelog}", markup=False, soft_wrap=True)
    return plans


def _run(console: Console, plans: list[Plan], directory: Path) -> list[Trial]:
    """Return the trials, one topic after another, on one broker and one Spark application."""
    jars = kafka_jars(os.environ)
    archive = Archive(_fresh_configuration(directory))
    say: Progress = lambda text: console.print(f"  {text}", style="dim", markup=False)  # noqa: E731
    say("starting the broker ...")
    with running_broker(directory, jars) as broker:
        try:
            return [_trial(archive, plan, broker, say) for plan in plans]
        finally:
            _stop_spark()


def _trial(archive: Archive, plan: Plan, broker: Broker, say: Progress) -> Trial:
    say(f"{plan.topic}: {counted(len(plan.histories), 'history', 'histories')}, from {plan.family.source}")
    return run_trial(archive, plan, broker, say)


def _fresh_configuration(directory: Path) -> Path:
    """Return a new configuration with a new CLEANTAIL_HOME. Only the jars are the caller's."""
    jars = os.environ.get("CLEANTAIL_JARS") or Path(os.environ.get("CLEANTAIL_HOME") or ROOT / ".cleantail") / "jars"
    for name in [name for name in os.environ if name.startswith("CLEANTAIL_")]:
        del os.environ[name]
    os.environ["CLEANTAIL_HOME"] = str(directory / "home")
    os.environ["CLEANTAIL_JARS"] = str(Path(jars).absolute())
    config = directory / "config"
    config.mkdir()
    (config / "defaults.yaml").write_text(json.dumps({"platform": {"spark": {"master": "local[2]", "conf": SPARK}}}))
    return config


def _stop_spark() -> None:
    from pyspark.sql import SparkSession

    if session := SparkSession.getActiveSession():
        session.stop()


def _verdict(console: Console, trials: list[Trial], seconds: float) -> int:
    histories = sum(len(t.plan.histories) for t in trials)
    records, different = sum(t.records_in for t in trials), sum(len(t.unexplained) for t in trials)
    result = f"{different} undeclared differences" if different else "equal, offset by offset"
    console.print(f"{histories} histories, {records:,} records: {result} ({seconds:.0f} s)")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m benchmarks`: see the package. Exit codes: 0 all benchmarks succeeded, 1 a measured program failed."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from rich.console import Console

import benchmarks
from benchmarks.harness.fresh_process import BenchmarkError, say
from benchmarks.harness.lake import Lake, spark_jars
from benchmarks.harness.machine import cores
from benchmarks.harness.options import Options
from benchmarks.harness.report import RESULTS, Table, print_table, write_results
from benchmarks.topics.aged_policies import POLICIES
from differential.broker import BrokerError, kafka_jars
from differential.spark_cluster import ClusterError

MODULES = {
    "rounds": (
        *("compare", "first_clean", "growth", "engine", "large", "standalone"),
        *("reclaim", "erasure", "reading", "restore", "ingestion", "denylist", "readers"),
    ),
    "topics": (
        "groups",
        "startup",
        "tricks",
        "in_airflow",
        "many_topics",
        "page",
        "evaluation",
        "small_logs",
        "small_topics",
        "age",
    ),
}
"""Package -> its modules that are benchmarks. Each has a function `run`."""
PACKAGES = {name: package for package, names in MODULES.items() for name in names}
NAMES = tuple(PACKAGES)
RECORDS, REPETITIONS, TOPICS, RUNS, MINUTES = 10_000_000, 3, 200, 200, 15
AGED = "compact"
SIZE_VARIABLE = "CLEANTAIL_BENCH_RECORDS"
PIPE_WIDTH = 170
FOLDER = "cleantail-bench"


def main(argv: list[str]) -> int:
    arguments = _parse_args(argv)
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)
    # CLEANTAIL_HOME locates both here; later it is the lake's folder
    os.environ["CLEANTAIL_KAFKA_JARS"] = str(kafka_jars(os.environ))
    os.environ["CLEANTAIL_JARS"] = str(spark_jars())
    with _directory(arguments.work) as directory:
        lake = Lake(directory, cores())
        sizes = arguments.records, arguments.repetitions, arguments.topics, arguments.runs, arguments.minutes
        options = Options(lake, *sizes, tuple(arguments.policy.split(",")), keep=arguments.work is not None)
        try:
            for name in arguments.names or NAMES:
                _run_one(console, name, options, arguments.results)
        except (BenchmarkError, BrokerError, ClusterError) as error:
            console.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
            return 1
    return 0


def _run_one(console: Console, name: str, options: Options, results: Path) -> None:
    say(f"benchmark {name}")
    # imported only now: a missing package of one benchmark must not stop the others
    run: Callable[[Options], Table] = import_module(f"benchmarks.{PACKAGES[name]}.{name}").run
    table = run(options)
    print_table(console, table)
    for file in write_results(table, results):
        say(f"written: {file.name}")


def _parse_args(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=benchmarks.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    size = int(os.environ.get(SIZE_VARIABLE) or RECORDS)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"benchmarks to run (all): {', '.join(NAMES)}")
    records = f"records of a data set ({SIZE_VARIABLE}, else {RECORDS:,})"
    warm = f"repetitions after the cold one ({REPETITIONS})"
    parser.add_argument("--records", type=int, default=size, metavar="N", help=records)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, metavar="N", help=warm)
    parser.add_argument("--topics", type=int, default=TOPICS, metavar="N", help=f"number of small topics ({TOPICS})")
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help=f"runs of the benchmark age ({RUNS})")
    parser.add_argument("--minutes", type=int, default=MINUTES, metavar="N", help=f"between these runs ({MINUTES})")
    policies = f"policies of the benchmark age, with commas between them ({AGED}): {', '.join(POLICIES)}"
    parser.add_argument("--policy", default=AGED, metavar="NAMES", help=policies)
    parser.add_argument("--work", type=Path, metavar="DIR", help="folder to keep data sets (a temporary one)")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="folder (benchmarks/results)")
    arguments = parser.parse_args(argv)
    if unknown := [name for name in arguments.names if name not in NAMES]:
        parser.error(f"there is no benchmark {unknown[0]}; the names are {', '.join(NAMES)}")
    if unknown := [name for name in arguments.policy.split(",") if name not in POLICIES]:
        parser.error(f"there is no policy {unknown[0]}; the names are {', '.join(POLICIES)}")
    return arguments


@contextmanager
def _directory(work: Path | None) -> Iterator[Path]:
    if work is not None:
        folder = work.absolute() / FOLDER  # only the content of this folder may be deleted
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="cleantail-bench-") as temporary:
        yield Path(temporary)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Compact, check, publish and expire what is due in a pack of topics, in one Spark application.

    spark-submit spark_jobs/run_pack.py --config config --topic orders --topic customers

A topic's failure is its own: the others are published, the result names it, and the exit code is 1. The same command
again does what is still due. The work itself is in spark_jobs/packs/pack_run.py.
"""

from __future__ import annotations

import argparse
import os
import sys

from cleantail.config.loading import load_platform
from cleantail.human import counted
from cleantail.rounds.pack_results import PACK_RESULT_JSON
from spark_jobs.iceberg.session import start_session
from spark_jobs.job import Document, clock_of, common_parser, run_work
from spark_jobs.packs.pack_run import run_pack
from spark_jobs.quality.judge import preload


def _work(arguments: argparse.Namespace) -> Document:
    platform = load_platform(arguments.config, os.environ)
    now_ms = clock_of(arguments, platform)
    preload()
    spark = start_session(platform, f"cleantail pack of {counted(len(arguments.topics), 'topic')}")
    return dict(PACK_RESULT_JSON.plain(run_pack(spark, platform, arguments.topics, now_ms)))


def parse_args(argv: list[str]) -> argparse.Namespace:
    arguments = common_parser(__doc__)
    arguments.add_argument("--topic", dest="topics", action="append", required=True, help="may be repeated; @FILE")
    return arguments.parse_args(argv)


def main(argv: list[str]) -> int:
    arguments = parse_args(argv)
    return run_work(arguments, lambda: _work(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

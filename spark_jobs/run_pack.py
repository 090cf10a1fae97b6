"""Do all that is due of a pack of topics in one Spark application: ingest, compact, check, publish, expire, reclaim.

    spark-submit spark_jobs/run_pack.py --config config --request '{"topics": ["orders", "sales"], "now_ms": …}'

A topic's failure is its own: the others are published, and the result names it. The exit code is 1 where a topic
failed. The same command again does what is still due. The work itself is in spark_jobs/packs/pack_run.py.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from cleantail.config.loading import load_platform
from cleantail.home.process import run_process
from cleantail.human import counted
from cleantail.kafka.client_settings import CLIENTS_JSON
from cleantail.rounds.pack_results import PACK_REQUEST_JSON, PACK_RESULT_JSON
from spark_jobs.iceberg.session import begin_session
from spark_jobs.job import Document, common_parser, require_run_clock, run_work
from spark_jobs.quality.judge import preload


def _work(arguments: argparse.Namespace) -> Document:
    platform = load_platform(arguments.config, os.environ)
    request = PACK_REQUEST_JSON.value(arguments.request, "--request")
    require_run_clock(arguments, platform, request.now_ms)
    file = arguments.client_settings
    clients = CLIENTS_JSON.value(file.read_text(encoding="utf-8"), "--client-settings") if file else {}
    session = begin_session(platform, f"cleantail pack of {counted(len(request.topics), 'topic')}")
    from spark_jobs.packs.pack_run import run_pack  # imported while the session starts

    preload()
    return dict(PACK_RESULT_JSON.plain(run_pack(session(), platform, request, clients)))


def parse_args(argv: Sequence[str]) -> argparse.Namespace:
    arguments = common_parser(__doc__)
    arguments.add_argument("--request", required=True, help="JSON: {topics, now_ms, …}; @FILE")
    arguments.add_argument("--client-settings", type=Path, metavar="F", help="JSON: topic -> settings of its client")
    return arguments.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    arguments = parse_args(argv)
    return run_work(arguments, lambda: _work(arguments))


if __name__ == "__main__":
    run_process(main)

"""What all job files share: their arguments, their result file, and what an error does to the exit code."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cleantail.catalogs import require_usable
from cleantail.clocks import SKEW_MS, require_past
from cleantail.config import Platform, Topic, find_topic, load_platform
from cleantail.errors import CleantailError
from cleantail.outside import explained

logger = logging.getLogger("cleantail.job")

RED = 1
"""Exit code of a job whose check failed or that held partitions back; errors have their own (2, 3)."""

NOT_LOGGED = ("units", "verdicts", "checked", "sample")
"""Of a result: what is long, or holds data."""


@dataclass(frozen=True, slots=True)
class Job:
    """The resolved arguments of a job. `now_ms` is the one clock reading of the whole run (Unix ms)."""

    topic: Topic
    platform: Platform
    now_ms: int
    arguments: argparse.Namespace


def parser(description: str | None) -> argparse.ArgumentParser:
    """The arguments that every job has; the example command is in the job's docstring."""
    plain = argparse.RawDescriptionHelpFormatter
    # @FILE stands for an argument that is longer than the system takes
    made = argparse.ArgumentParser(description=description, formatter_class=plain, fromfile_prefix_chars="@")
    made.add_argument("--config", type=Path, default=Path("config"), help="directory of the configuration")
    made.add_argument("--topic", required=True)
    made.add_argument("--now", type=int, help="Unix ms; default: the clock")
    made.add_argument("--result", type=Path, help="file for the result, one JSON object")
    return made


def run_job(arguments: argparse.Namespace, work: Callable[[Job], dict[str, Any]]) -> int:
    """Resolves the arguments, does the work, writes the result file also when it fails, and returns the exit code."""
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(level=logging.WARNING, format=form, stream=sys.stderr)
    logging.getLogger("cleantail").setLevel(logging.INFO)
    result: dict[str, Any]
    try:
        result = work(_resolve(arguments))
        code = 0 if result.get("ok", True) else RED
    except CleantailError as e:
        result, code = {"ok": False, "error": str(e)}, e.exit_code
        logger.error("%s", e)
    except Exception as e:
        if (known := explained(e)) is None:
            raise
        result, code = {"ok": False, "error": str(known)}, known.exit_code
        logger.exception("%s", known)
    if arguments.result:
        arguments.result.write_text(json.dumps(result))
    logger.info("result: %s", json.dumps({k: v for k, v in result.items() if k not in NOT_LOGGED}))
    return code


def require_clock(platform: Platform, now_ms: int) -> None:
    """Raises CleantailError for a clock of a run, as its tasks hand it on, that is ahead of the real one."""
    require_past(platform, now_ms, int(time.time() * 1000), SKEW_MS)


def _resolve(arguments: argparse.Namespace) -> Job:
    platform = load_platform(arguments.config, os.environ)
    topic = find_topic(arguments.topic, arguments.config, os.environ)
    now_ms = arguments.now if arguments.now is not None else int(time.time() * 1000)
    require_clock(platform, now_ms)
    require_usable(topic, platform, os.environ)
    logger.info("topic %s, table %s, now %s, home %s", topic.topic, topic.table, now_ms, platform.home)
    return Job(topic, platform, now_ms, arguments)

"""Says what all job files share: their arguments, their result file, and what an error does to the exit code."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pyspark.sql import SparkSession

from cleantail.codec import Codec
from cleantail.config.loading import config_directory, find_topic, load_platform
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.home.process import keep_logs_printable
from cleantail.kafka.client_settings import SETTINGS_JSON, settings_of_environment
from cleantail.lake.catalogs import require_usable
from cleantail.lake.clients.exchange import is_address, read_document, write_document
from cleantail.lake.foreign_errors import DEBUG_VARIABLE, explained, stack_of
from cleantail.lake.runs.clocks import SKEW_MS, require_of_run, require_past
from spark_jobs.iceberg.jvm.quiet_jvm import SUBMITTED
from spark_jobs.iceberg.session import begin_session

logger = logging.getLogger("cleantail.job")
Document = dict[str, Any]
"""A job's result as JSON, which its file and the task's XCom hold; codecs write and parse it."""

RED = 1
"""Exit code of a job whose check failed or that held partitions back; errors have their own (2, 3)."""

NOT_LOGGED = ("units", "verdicts", "checked", "sample", "error", "topics")
"""Of a result: what is long, holds data, or was logged before it."""
SHORT_LIST, SHORT_CHARS = 20, 200
"""What is longer is left out of the line that a job ends with."""


@dataclass(frozen=True, slots=True)
class Job:
    """Holds the resolved arguments of a job. `now_ms` is the one clock reading of the whole run (Unix ms)."""

    topic: Topic
    platform: Platform
    now_ms: int
    arguments: argparse.Namespace

    def begin_session(self, work: str, workers: bool = True) -> Callable[[], SparkSession]:
        """Begins to start the session for the work, and returns how to get it, as spark_jobs.iceberg.session does.
        Raises what require_usable raises: before a JVM is started, and under spark-submit, which has started one, while
        the session starts."""
        submitted = SUBMITTED in os.environ
        if not submitted:
            require_usable(self.topic, self.platform, os.environ)
        session = begin_session(self.platform, f"cleantail {work} {self.topic.topic}", workers=workers)
        if submitted:
            require_usable(self.topic, self.platform, os.environ)
        return session


class _Judged(Protocol):
    """Is a result that says whether the job's task is green, without its codec writing it."""

    @property
    def ok(self) -> bool: ...


Judged = TypeVar("Judged", bound=_Judged)


def document(codec: Codec[Judged], result: Judged) -> Document:
    """Returns the result of a job whose codec writes it without its `ok`, with it."""
    return {"ok": result.ok, **codec.plain(result)}


class _Parser(argparse.ArgumentParser):
    """Reads @ADDRESS, too: an argument that lies in the store that Airflow shares with a driver on a cluster."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        arguments = list(sys.argv[1:] if args is None else args)
        if not any(argument.startswith("@") and is_address(argument) for argument in arguments):
            return super().parse_known_args(arguments, namespace)
        config_dir = (
            Path(arguments[arguments.index("--config") + 1])
            if "--config" in arguments
            else config_directory(os.environ)
        )
        platform = load_platform(config_dir, os.environ)
        return super().parse_known_args([_argument(platform, argument) for argument in arguments], namespace)


def _argument(platform: Platform, argument: str) -> str:
    if not (argument.startswith("@") and is_address(argument)):
        return argument
    text = read_document(platform, os.environ, argument[1:])
    if text is None:
        raise CleantailError(f"{argument[1:]} is not there: what the job is to do was not written, or removed")
    return text


def parser(description: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the arguments that every job of a topic has."""
    arguments = common_parser(description)
    arguments.add_argument("--topic", required=True)
    return arguments


def common_parser(description: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the arguments that every job has; the example command is in the job's docstring."""
    plain = argparse.RawDescriptionHelpFormatter
    # @FILE stands for an argument that is longer than the system takes
    arguments = _Parser(description=description, formatter_class=plain, fromfile_prefix_chars="@")
    where = "directory of the configuration (default: CLEANTAIL_CONFIG, else config)"
    arguments.add_argument("--config", type=Path, default=config_directory(os.environ), help=where)
    arguments.add_argument("--now", type=int, help="Unix ms; default: the clock")
    arguments.add_argument("--began", type=int, help="Unix ms: when Airflow began the run; a plan may not be older")
    arguments.add_argument("--result", help="file, or address in a store, for the result: one JSON object")
    return arguments


def with_client_settings(arguments: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Adds the argument of jobs that read from Kafka."""
    arguments.add_argument("--client-settings", type=Path, metavar="F", help="settings of the Kafka client, as JSON")
    return arguments


def client_settings(job: Job) -> Mapping[str, str]:
    """Returns the Kafka client's settings: of the file, else of the environment. Raises CleantailError where there are
    none."""
    source = job.topic.source.kafka
    if source is None:
        raise CleantailError(f"topic {job.topic.topic} has no source.kafka in its YAML; nothing was appended")
    if job.arguments.client_settings is None:
        return settings_of_environment(source, os.environ)
    return SETTINGS_JSON.value(job.arguments.client_settings.read_text(encoding="utf-8"), "--client-settings")


def run_job(arguments: argparse.Namespace, work: Callable[[Job], Document]) -> int:
    """Runs the work of one topic, as run_work does."""
    return run_work(arguments, lambda: work(_resolve(arguments)))


def run_work(arguments: argparse.Namespace, work: Callable[[], Document]) -> int:
    """Does the work, writes the result file also when it fails, and returns the exit code.

    A defect leaves no result, as a killed job. Of what it raised the log has the frames, and no message that may quote
    a record.
    """
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    keep_logs_printable()
    logging.basicConfig(level=logging.WARNING, format=form, stream=sys.stderr)
    logging.getLogger("cleantail").setLevel(logging.INFO)
    result: Document
    try:
        result = work()
        code = 0 if result.get("ok", True) else RED
    except CleantailError as e:
        result, code = {"ok": False, "error": str(e)}, e.exit_code
        logger.error("%s", e)
    except Exception as e:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        error = explained(e)
        logger.error("%s\n%s", error or "a defect of Cleantail", stack_of(e))
        if error is None:
            return RED
        result, code = {"ok": False, "error": str(error)}, error.exit_code
    if arguments.result:
        _report(arguments, code, result)
    logger.info("ended with exit code %s: %s", code, in_short(result))
    return code


def clock_of(arguments: argparse.Namespace, platform: Platform) -> int:
    """Returns the one clock reading of the job, Unix ms. Raises CleantailError as require_clock does."""
    now_ms = arguments.now if arguments.now is not None else int(time.time() * 1000)
    require_clock(platform, now_ms)
    return int(now_ms)


def _report(arguments: argparse.Namespace, code: int, result: Document) -> None:
    """Writes the result. In a store its exit code goes with it, which nobody sees of a driver on a cluster."""
    if not is_address(arguments.result):
        Path(arguments.result).write_text(json.dumps(result), encoding="utf-8")
        return
    platform = load_platform(arguments.config, os.environ)
    write_document(platform, os.environ, arguments.result, json.dumps({"exit_code": code, "result": result}))


def require_clock(platform: Platform, now_ms: int) -> None:
    """Raises CleantailError for a clock of a run, as its tasks hand it on, that is ahead of the real one."""
    require_past(platform, now_ms, int(time.time() * 1000), SKEW_MS)


def require_run_clock(arguments: argparse.Namespace, platform: Platform, now_ms: int) -> None:
    """Raises CleantailError for a clock of a plan, which came through an XCom, that is not the run's."""
    require_of_run(platform, now_ms, arguments.began, int(time.time() * 1000))


def in_short(result: Mapping[str, Any]) -> str:
    """Returns a result in one line: its numbers and names. What is nested is in the result file, which the task keeps
    as its XCom: a wall of JSON would stand before the reason of a failure."""
    return ", ".join(f"{name} {value}" for name, value in result.items() if name not in NOT_LOGGED and _short(value))


def _short(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) <= SHORT_LIST and all(isinstance(one, int) for one in value)
    return isinstance(value, (str, int)) and len(str(value)) <= SHORT_CHARS


def _resolve(arguments: argparse.Namespace) -> Job:
    platform = load_platform(arguments.config, os.environ)
    topic = find_topic(arguments.topic, arguments.config, os.environ)
    now_ms = clock_of(arguments, platform)
    logger.info("topic %s, table %s, now %s, home %s", topic.topic, topic.table, now_ms, platform.home)
    return Job(topic, platform, now_ms, arguments)

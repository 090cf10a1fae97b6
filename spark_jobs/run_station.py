"""Run one station of a topic's run, or all stations of a pack of topics: the one entry of every Spark application.

    spark-submit spark_jobs/run_station.py reclaim --config config --topic orders
    spark-submit spark_jobs/run_station.py run_pack --config config --request '{"topics": ["orders"], "now_ms": …}'

The first argument names the station (ENTRIES). Each has the arguments --config, --now, --began and --result.
A station writes its result as one JSON object to --result, also if it fails. Exit codes: 0 ok; 1 a check failed or a
topic of the pack failed; 2 bad input or configuration; 3 conflict with another writer; 4 a system that Cleantail uses
failed; 5 a person has to decide.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from cleantail.codec import Codec
from cleantail.config.loading import config_directory, find_topic, load_platform
from cleantail.config.platform import Platform
from cleantail.config.source_paths import require_inside
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.home.process import keep_logs_printable, run_process
from cleantail.human import counted
from cleantail.intake import Poll
from cleantail.kafka.client_settings import CLIENTS_JSON, SETTINGS_JSON, settings_in_driver
from cleantail.lake.catalogs import require_usable
from cleantail.lake.evaluate import SKEW_MS, parsed_unit, planned_unit, require_clock_not_ahead, require_clock_of_run
from cleantail.lake.exchange import is_address, read_numbered, write_numbered
from cleantail.lake.foreign_errors import explained, shows_stacks, stack_of
from cleantail.lake.rollbacks import ROLLBACK_RESULT_JSON
from cleantail.rounds.checked_round import (
    CHECK_REQUEST_JSON,
    CHECKED_ROUND_JSON,
    EXPIRY_REQUEST_JSON,
    ROUND_RESULT_JSON,
    STAGED_UNIT_JSON,
)
from cleantail.rounds.pack_results import PACK_REQUEST_JSON, PACK_RESULT_JSON
from cleantail.rounds.recorded_checks import REFERENCE_JSON
from cleantail.rounds.station_results import (
    INGEST_RESULT_JSON,
    RECLAIM_RESULT_JSON,
    IngestResult,
)
from cleantail.rounds.stations import (
    BY_NAME,
    CHECK_QUALITY,
    COMPACT,
    CONVERT_DELETES,
    EXPIRE_TOMBSTONES,
    INGEST,
    PUBLISH,
    RECLAIM,
    RECONCILE,
    ROLLBACK,
    RUN_PACK,
    STATIONS,
)
from cleantail.sources.source_files import require_readable
from spark_jobs.iceberg import executor_watch
from spark_jobs.iceberg.session import start_session

if TYPE_CHECKING:
    from spark_jobs.round.run import Run

logger = logging.getLogger("cleantail.job")
Document = dict[str, Any]
"""A job's result as JSON. The result file and the task's XCom store it. Codecs write and parse it."""

RED = 1
"""Exit code of a job whose check failed or that blocked partitions. Errors have their own exit codes."""

NOT_LOGGED = ("units", "verdicts", "checked", "sample", "error", "topics", "format")
"""Keys of a result that are not logged at the end: they are long or constant, hold data, or were logged before."""
SHORT_LIST, SHORT_CHARS = 20, 200
"""Maximum sizes in the last line of a job's log: longer lists and texts are left out."""


@dataclass(frozen=True, slots=True)
class Job:
    """The resolved arguments of a job. `now_ms` is the one clock reading of the whole run (Unix ms)."""

    topic: Topic
    now_ms: int
    arguments: argparse.Namespace

    def session(self, work: str) -> Callable[[], SparkSession]:
        """Return a function that starts the session for the work. Raises the errors of require_usable."""
        require_usable(self.topic)
        return partial(start_session, self.topic.platform, f"cleantail {work} {self.topic.topic}")


def _with_ok(codec: Codec[Any], result: Any) -> Document:
    """Return the result's document with `ok`, which the codec does not write."""
    return {"ok": result.ok, **codec.plain(result)}


class _Parser(argparse.ArgumentParser):
    """Also reads @ADDRESS: an argument in the store that Airflow shares with a driver on a cluster."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        arguments = list(sys.argv[1:] if args is None else args)
        if not any(argument.startswith("@") and is_address(argument) for argument in arguments):
            return super().parse_known_args(arguments, namespace)
        config_dir = Path(arguments[arguments.index("--config") + 1]) if "--config" in arguments else config_directory()
        platform = load_platform(config_dir)
        return super().parse_known_args([_argument(platform, argument) for argument in arguments], namespace)


def _argument(platform: Platform, argument: str) -> str:
    if not (argument.startswith("@") and is_address(argument)):
        return argument
    document = read_numbered(platform, argument[1:])
    if document is None or "argument" not in document:
        raise CleantailError(f"{argument[1:]} has no argument of the job: it was not written, or was removed")
    return str(document["argument"])


def parse_args(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line. argparse ends the process with exit code 2 if it is wrong."""
    plain = argparse.RawDescriptionHelpFormatter
    # @FILE passes arguments that are longer than the operating system allows
    arguments = _Parser(description=__doc__, formatter_class=plain, fromfile_prefix_chars="@")
    stations = arguments.add_subparsers(dest="station", required=True, metavar="STATION")
    for name, station in ENTRIES.items():
        description = (station.work.__doc__ or "").strip()
        of_station = stations.add_parser(name, help=description.split(".")[0], description=description)
        where = "directory of the configuration (default: CLEANTAIL_CONFIG, else config)"
        of_station.add_argument("--config", type=Path, default=config_directory(), help=where)
        of_station.add_argument("--now", type=int, help="Unix ms, if platform.allow_clock; default: the clock")
        of_station.add_argument("--began", type=int, help="Unix ms: when Airflow began the run; no plan may be older")
        of_station.add_argument("--result", help="file, or address in a store, for the result: one JSON object")
        if name != RUN_PACK:
            of_station.add_argument("--topic", required=True)
        for flag, options in station.arguments.items():
            of_station.add_argument(flag, **options)
    return arguments.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Run the station that the arguments name, and return the exit code."""
    arguments = parse_args(argv)
    if arguments.station == RUN_PACK:
        return run_work(arguments, lambda: _run_pack(arguments))
    return run_job(arguments, ENTRIES[arguments.station].work)


def _client_settings(job: Job) -> Mapping[str, str]:
    """Return the Kafka client's settings, from --client-settings, else from the environment."""
    file = job.arguments.client_settings
    handed_on = SETTINGS_JSON.value(file.read_text(encoding="utf-8"), "--client-settings") if file else None
    return settings_in_driver(job.topic, handed_on)


def _round_run(job: Job, session: Callable[[], SparkSession]) -> Run:
    """Return the settings of this application's rounds. Great Expectations is imported meanwhile."""
    from spark_jobs.iceberg.tables import TopicTable
    from spark_jobs.quality.gx_validation import preload
    from spark_jobs.round.run import Run

    preload()
    return Run(TopicTable.of(session(), job.topic))


def _silent(_: str) -> None:
    """Show no progress."""


def run_job(arguments: argparse.Namespace, work: Callable[[Job], Document]) -> int:
    """Run the work of one topic, as run_work does."""
    return run_work(arguments, lambda: work(_resolve(arguments)))


def run_work(arguments: argparse.Namespace, work: Callable[[], Document]) -> int:
    """Do the work, write the result file even if it fails, and return the exit code.

    A defect leaves no result, just like a killed job. Then only the stack frames are logged: the message may contain
    record data.
    """
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    keep_logs_printable()
    logging.basicConfig(level=logging.WARNING, format=form, stream=sys.stderr)
    logging.getLogger("cleantail").setLevel(logging.INFO)
    if arguments.result:
        executor_watch.report = lambda e: _report(arguments, e.exit_code, {"ok": False, "error": str(e)})
    result: Document
    try:
        result = work()
        code = 0 if result.get("ok", True) else RED
    except CleantailError as e:
        result, code = {"ok": False, "error": str(e)}, e.exit_code
        logger.error("%s", e)
    except Exception as e:
        if shows_stacks():
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
    """Return the one clock reading of the job (Unix ms). `--now` came through an XCom, so it counts only if the
    platform allows another clock. Raises as require_clock_not_ahead does."""
    clock_ms = int(time.time() * 1000)
    if arguments.now is None:
        return clock_ms
    require_clock_not_ahead(platform, arguments.now, clock_ms, SKEW_MS)
    return int(arguments.now) if platform.allow_clock else clock_ms


def _report(arguments: argparse.Namespace, code: int, result: Document) -> None:
    """Write the result. In a store, add the exit code: Airflow does not get the exit code of a driver on a cluster."""
    if not is_address(arguments.result):
        Path(arguments.result).write_text(json.dumps(result), encoding="utf-8")
        return
    platform = load_platform(arguments.config)
    write_numbered(platform, arguments.result, {"exit_code": code, "result": result})


def _require_run_clock(arguments: argparse.Namespace, platform: Platform, now_ms: int) -> None:
    """Raise CleantailError if a plan's clock, which came through an XCom, differs from the run's."""
    require_clock_of_run(platform, now_ms, arguments.began, int(time.time() * 1000))


def in_short(result: Mapping[str, Any]) -> str:
    """Return a result in one line: its numbers and names.

    Nested values are only in the result file, which the task stores as its XCom. In the log they would hide the reason
    of a failure.
    """
    return ", ".join(f"{name} {value}" for name, value in result.items() if name not in NOT_LOGGED and _short(value))


def _short(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) <= SHORT_LIST and all(isinstance(one, int) for one in value)
    return isinstance(value, (str, int)) and len(str(value)) <= SHORT_CHARS


def _resolve(arguments: argparse.Namespace) -> Job:
    platform = load_platform(arguments.config)
    topic = find_topic(arguments.topic, arguments.config)
    now_ms = clock_of(arguments, platform)
    logger.info("topic %s, table %s, now %s, home %s", topic.topic, topic.table, now_ms, platform.home)
    return Job(topic, now_ms, arguments)


def _ingest(job: Job) -> Document:
    """Append new records of the topic's source, each exactly once: the named files, else Kafka or the sink's table."""
    topic, given = job.topic, job.arguments
    if given.file:
        require_readable(given.file)
        files = [require_inside(file, topic.platform) for file in given.file]
        session = job.session("ingest")
        from spark_jobs.round.intake.ingest import ingest_files

        result: IngestResult = ingest_files(session(), topic, files, topic.source.encoding, _silent, run_ms=job.now_ms)
    else:
        # before Spark starts: it may raise
        client: Mapping[str, str] = {} if topic.source.table else _client_settings(job)
        session = job.session("ingest")
        from spark_jobs.round.intake.readers import read_feed

        result = read_feed(session(), Poll(topic, lambda _: client, job.now_ms), _silent)
    return dict(INGEST_RESULT_JSON.plain(result))


def _convert_deletes(job: Job) -> Document:
    """Convert the deletes by values that a sink wrote into deletion vectors (position deletes in format version 2)."""
    session = job.session("convert-deletes")
    from cleantail.adopt.equality_deletes import CONVERTED_JSON
    from spark_jobs.convert import convert_deletes

    return dict(CONVERTED_JSON.plain(convert_deletes(session(), job.topic.platform, job.topic.table)))


def _compact(job: Job) -> Document:
    """Compact one work unit: find superseded records from key columns, write delete files onto a branch."""
    requested = parsed_unit(job.arguments.unit)
    _require_run_clock(job.arguments, job.topic.platform, requested.now_ms)
    session = job.session("compact")
    from spark_jobs.iceberg.tables import TopicTable
    from spark_jobs.round.make import compact_unit

    # before a session starts: raises HeldError if the table's metadata plan another unit
    unit = planned_unit(job.topic, requested, int(time.time() * 1000))
    return _with_ok(STAGED_UNIT_JSON, compact_unit(TopicTable.of(session(), job.topic), unit))


def _check_quality(job: Job) -> Document:
    """Check a round on its branches before any reader sees it.

    With --publish, also publish the partitions that passed, unless the round waits for a person.
    """
    request = CHECK_REQUEST_JSON.value(job.arguments.round, "--round")
    session = job.session("check_quality")
    from spark_jobs.round.check_and_publish import check_and_publish

    checked = check_and_publish(_round_run(job, session), request, job.arguments.publish)
    return _with_ok(CHECKED_ROUND_JSON, checked)


def _publish(job: Job) -> Document:
    """Publish what passed its check: delete files, checkpoints, horizons and log ends in one commit on `main`."""
    reference = REFERENCE_JSON.value(job.arguments.round, "--round")
    session = job.session("publish")
    from spark_jobs.round.check_and_publish import publish_recorded

    result = publish_recorded(session, job.topic, reference, job.arguments.kind)
    return dict(ROUND_RESULT_JSON.plain(result))


def _reconcile(job: Job) -> Document:
    """Remove the keys that are live in the table but deleted at its source, in a round of its own."""
    from cleantail.kafka.source_topic import SourceTopic

    source = SourceTopic.of(job.topic, _client_settings(job))
    session = job.session("reconcile")
    from spark_jobs.round.run import reconcile_round

    result = reconcile_round(_round_run(job, session), source, job.now_ms, wait=True)
    return dict(ROUND_RESULT_JSON.plain(result))


def _expire_tombstones(job: Job) -> Document:
    """Expire the tombstones that are past their horizon: a round of its own, checked and published."""
    request = EXPIRY_REQUEST_JSON.value(job.arguments.round, "--round")
    _require_run_clock(job.arguments, job.topic.platform, request.now_ms)
    session = job.session("expire_tombstones")
    from spark_jobs.round.run import expire_round

    result = expire_round(_round_run(job, session), request.now_ms, request.partitions, request.fresh_from)
    return dict(ROUND_RESULT_JSON.plain(result))


def _reclaim(job: Job) -> Document:
    """Reclaim space when it is due: rewrite files with many deleted records, merge small ones, expire snapshots."""
    session = job.session("reclaim")
    from spark_jobs.iceberg.tables import TopicTable
    from spark_jobs.round.reclaim import reclaim_topic

    result = reclaim_topic(TopicTable.of(session(), job.topic), job.now_ms)
    return dict(RECLAIM_RESULT_JSON.plain(result))


def _rollback(job: Job) -> Document:
    """Undo published rounds: restore table and state to before them, in one commit. Later appends are kept."""
    from spark_jobs.round.undo import undo_once

    given, session = job.arguments, job.session("rollback")
    done = undo_once(session, job.topic, job.now_ms, given.to, given.by, given.request, given.asked_ms)
    return dict(ROLLBACK_RESULT_JSON.plain(done))


def _target(text: str) -> int | None:
    """Return the snapshot's id, None for `last`. Raises ArgumentTypeError for any other text."""
    if text == "last":
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise argparse.ArgumentTypeError(f"{text!r} is neither last nor the id of a snapshot")
    return int(text)


def _run_pack(arguments: argparse.Namespace) -> Document:
    """Do all due work of a pack of topics in one application.

    If one topic fails, the others continue, and the exit code is 1. The same command, run again, does the remaining due
    work.
    """
    platform = load_platform(arguments.config)
    request = PACK_REQUEST_JSON.value(arguments.request, "--request")
    _require_run_clock(arguments, platform, request.now_ms)
    file = arguments.client_settings
    clients = CLIENTS_JSON.value(file.read_text(encoding="utf-8"), "--client-settings") if file else {}
    session = partial(start_session, platform, f"cleantail pack of {counted(len(request.topics), 'topic')}")
    from spark_jobs.quality.gx_validation import preload
    from spark_jobs.run.pack_run import run_pack

    preload()
    return dict(PACK_RESULT_JSON.plain(run_pack(session(), platform, request, clients)))


@dataclass(frozen=True, slots=True)
class StationEntry:
    """The function of a station, and its own command-line arguments (flag -> options of argparse)."""

    work: Callable[..., Document]
    arguments: Mapping[str, dict[str, Any]]


KINDS = [station.kind for station in STATIONS if station.checks]
_CLIENT = {"--client-settings": {"type": Path, "metavar": "F", "help": "settings of the Kafka client, as JSON"}}
ENTRIES: Mapping[str, StationEntry] = {
    INGEST: StationEntry(
        _ingest,
        {
            "--file": {"type": Path, "action": "append", "help": "a file of kcat -J lines; repeatable"},
            **_CLIENT,
        },
    ),
    CONVERT_DELETES: StationEntry(_convert_deletes, {}),
    COMPACT: StationEntry(_compact, {"--unit": {"required": True, "help": "JSON: the work unit that evaluate made"}}),
    CHECK_QUALITY: StationEntry(
        _check_quality,
        {
            "--round": {"required": True, "help": 'JSON: {"round", "branches": those that compact has made}'},
            "--publish": {"action": "store_true", "help": "publish logs that passed, unless the round waits"},
        },
    ),
    PUBLISH: StationEntry(
        _publish,
        {
            "--round": {"required": True, "help": "JSON: the round, its branches' heads, the logs that passed"},
            "--kind": {"choices": KINDS, "default": BY_NAME[PUBLISH].kind, "help": "default: %(default)s"},
        },
    ),
    RECONCILE: StationEntry(_reconcile, _CLIENT),
    EXPIRE_TOMBSTONES: StationEntry(
        _expire_tombstones, {"--round": {"required": True, "help": 'JSON: {"now_ms", "partitions", "fresh_from"}'}}
    ),
    RECLAIM: StationEntry(_reclaim, {}),
    ROLLBACK: StationEntry(
        _rollback,
        {
            "--to": {"type": _target, "default": "last", "help": "last, or a snapshot's id"},
            "--by": {"required": True, "help": "user who requested it; recorded in the snapshot"},
            "--request": {
                "default": "",
                "help": "name of the request, which runs once even if the task is tried again",
            },
            "--asked-ms": {"type": int, "help": "time of the request, Unix ms; no later round is undone"},
        },
    ),
    RUN_PACK: StationEntry(
        _run_pack,
        {
            "--request": {"required": True, "help": "JSON: {topics, now_ms, …}; @FILE"},
            "--client-settings": {"type": Path, "metavar": "F", "help": "JSON: topic -> settings of its client"},
        },
    ),
}
"""The stations in the order of a run (cleantail.rounds.stations), then the entries that a user or a group starts: a
rollback, and a pack of topics through all stations."""


if __name__ == "__main__":
    run_process(main)

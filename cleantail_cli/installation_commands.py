"""`init` writes the files of a first topic, `jars` finds or fetches Spark's jars, `doctor` examines the installation.

If an Airflow was set up here, `doctor` examines its connections, channels and DAGs too. Airflow's part runs in a
separate process (`cleantail_airflow.tasks.doctor_task`), because importing Airflow creates its configuration and writes
to stdout.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from cleantail.config.loading import load_platform
from cleantail.config.topic_source import ADDRESS_PATTERN
from cleantail.doctor import OK, UNKNOWN, WRONG, Finding, examine, exit_code_of
from cleantail.errors import CleantailError, OutsideError
from cleantail.human import counted
from cleantail.kafka.import_config import validated, write_file
from cleantail.lake.jar_list import fetch, kinds_of, listed_jars, mixed_versions, problems, spark_version, take
from cleantail.lake.spark_settings import jars_directory, needs_mysql, needs_s3
from cleantail_cli.command import Invocation, command
from cleantail_cli.output import Lines, line_width
from cleantail_cli.parameters import DIRECTORY

DAG_FILE = "cleantail_dags.py"
DAGS = """\
from cleantail_airflow import doctor_dag, topic_dags

globals().update(topic_dags({config}))
doctor = doctor_dag({config})
"""
"""The DAG file. docs/installing.md shows the same."""
DEFAULTS = """\
# Settings that all topics share. The package has all of them with their defaults, in cleantail/config/defaults.yaml.
# Secrets do not belong here: they come from the environment, or from Airflow connections.
format: 1                         # of the configuration; a version that does not support 1 refuses the file
platform:
  catalog:
    type: sqlite                  # for a trial on one machine; or rest, postgres, mysql, glue, hive
    # uri: https://catalog.example.org/api/catalog
    # warehouse: s3://archive/warehouse
"""
TABLES = """\
  source_tables: [{table}]        # tables that topics may read
"""
TOPIC = """\
# docs/topics.md and docs/configs.md have all keys. `cleantail check-config` reports wrong lines.
topic: {topic}
source:
{source}
schedule: "@hourly"
config:
  cleanup.policy: compact
  min.cleanable.dirty.ratio: 0.5
  segment.ms: 7d                  # younger records are in the active segment, and are not compacted yet
  delete.retention.ms: 1d         # time for readers to read a tombstone before it is removed
"""
FILES = """\
  # files of kcat -J lines, .jsonl or .jsonl.gz, below CLEANTAIL_HOME
  path: {value}"""
CONNECTION = """\
  kafka:
    # an Airflow connection of type cleantail_kafka, with librdkafka's settings as JSON in its extra
    connection: {value}
    topic: null                   # null: the topic's own name"""
BROKERS = """\
  kafka:
    # a login comes from the environment: CLEANTAIL_KAFKA_BOOTSTRAP_SERVERS, CLEANTAIL_KAFKA_SASL_USERNAME and so on
    bootstrap.servers: {value}
    topic: null                   # null: the topic's own name"""
TABLE = """\
  table:
    name: {value}
    # the columns of the table that form a record: correct them
    columns:
      partition: redpanda.partition
      offset: redpanda.offset
      timestamp: redpanda.timestamp
      key: redpanda.key
      value: value"""
NEXT = """\
next:
  1. name your catalog in defaults.yaml; its login belongs in the environment
  2. set CLEANTAIL_CONFIG={config} for scheduler, workers and API server
  3. run `cleantail doctor` until nothing is wrong
  4. unpause the DAG: airflow dags unpause {topic}"""
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9._/*-]*")
"""Matches texts that need no quotes in YAML."""


@command(
    "init",
    click.argument("topic", metavar="TOPIC", help="The name of the first topic."),
    click.option("--kafka", metavar="CONNECTION", help="Read it from Kafka: an Airflow connection, or HOST:PORT."),
    click.option("--table", metavar="NAMESPACE.NAME", help="Read it from a table that a sink fills."),
    click.option("--path", metavar="PATTERN", help="Read it from files (default: landing/TOPIC/*.jsonl)."),
    click.option("--dags", type=DIRECTORY, metavar="DIR", help=f"Write {DAG_FILE} into this DAGs folder too."),
    configured=False,
    checked=False,
    examples=[
        "cleantail init orders --kafka kafka_default --dags ~/airflow/dags --config /etc/cleantail/config",
        "cleantail init orders --path 'landing/orders/*.jsonl'",
    ],
)
def init(
    call: Invocation, topic: str, kafka: str | None, table: str | None, path: str | None, dags: Path | None
) -> int:
    """Write the files of a first topic: the configuration, and the DAG file.

    Existing files are kept and listed. The exit code is 2 if all files exist already. `cleantail doctor` then names
    the next steps.
    """
    if sum(each is not None for each in (kafka, table, path)) > 1:
        raise CleantailError("give one of --kafka, --table and --path: a topic has one source")
    config = call.config.absolute()
    texts = {config / "defaults.yaml": DEFAULTS + (TABLES.format(table=_scalar(f"cleantail.{table}")) if table else "")}
    file = config / "topics" / f"{topic}.yaml"
    texts[file] = TOPIC.format(topic=_scalar(topic), source=_source(topic, kafka, table, path))
    _require_valid(texts[file], file, texts[config / "defaults.yaml"], config)
    if dags is not None:
        texts[dags.absolute() / DAG_FILE] = DAGS.format(config=json.dumps(str(config), ensure_ascii=False))
    written = {each: _write(each, text) for each, text in texts.items()}
    files = [{"file": str(each), "written": new} for each, new in written.items()]
    lines = [f"{each}: {'written' if new else 'exists already and is kept'}" for each, new in written.items()]
    call.output.show(Lines({"ok": True, "files": files}, [*lines, NEXT.format(config=config, topic=topic)]))
    return 0 if any(written.values()) else 2


def _require_valid(text: str, file: Path, defaults: str, config: Path) -> None:
    """Raise ConfigError if the configuration would reject the topic. Called before a file is written."""
    if (config / "defaults.yaml").exists():
        load_platform(config)
        defaults = (config / "defaults.yaml").read_text(encoding="utf-8")
    with TemporaryDirectory() as folder:
        trial = Path(folder)
        (trial / "defaults.yaml").write_text(defaults, encoding="utf-8")
        validated(text, file, trial)


def _write(file: Path, text: str) -> bool:
    """Write a new file. Returns False, and changes nothing, if the file exists."""
    try:
        write_file(file, text, new=True)
    except FileExistsError:
        return False
    return True


def _source(topic: str, kafka: str | None, table: str | None, path: str | None) -> str:
    if table:
        return TABLE.format(value=_scalar(table))
    if kafka:
        is_address = re.fullmatch(f"{ADDRESS_PATTERN}(,{ADDRESS_PATTERN})*", kafka)
        return (BROKERS if is_address else CONNECTION).format(value=_scalar(kafka))
    return FILES.format(value=_scalar(path or f"landing/{topic}/*.jsonl"))


def _scalar(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


@command(
    "jars",
    click.option("--s3", is_flag=True, help="Include the jars for a warehouse on an object store."),
    click.option(
        "--from",
        "source",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Take the jars from a folder, on a machine without a network.",
    ),
    click.option(
        "--repository",
        "repositories",
        multiple=True,
        metavar="URL",
        help="A Maven repository for jars that Maven Central does not have; may be repeated.",
    ),
    configured=False,
    examples=["cleantail jars", "cleantail jars --from /mnt/jars"],
)
def jars(call: Invocation, s3: bool, source: Path | None, repositories: tuple[str, ...]) -> int:
    """Find or download the jars that Spark needs.

    They are stored in CLEANTAIL_JARS, else in a cache that all homes of a user share. Every jar is checked against the
    SHA-256 in Cleantail's list. If platform.spark.jars leaves the jars to the cluster, no jars are fetched.
    """
    spark = spark_version()
    if warning := mixed_versions():
        call.output.warning(warning)
    if call.platform.spark.jars_of_cluster:
        document = {"ok": True, "spark": spark, "directory": None, "fetched": False, "jars": []}
        text = "platform.spark.jars is cluster: the cluster has the jars, and none are fetched"
        call.output.show(Lines(document, [text]))
        return 0
    directory = jars_directory(call.platform)
    kinds = kinds_of(spark, s3 or needs_s3(call.platform), needs_mysql(call.platform))
    missing = problems(directory, kinds)
    if missing and source is not None:
        take(source, directory, kinds)
    elif missing:
        with call.output.progress() as progress:
            progress("fetching jars")
            fetch(directory, kinds, repositories, call.platform.env)
    listed = listed_jars(kinds)
    facts = [{"name": jar.name, "sha256": jar.sha256, "bytes": jar.bytes} for jar in listed]
    done = {"ok": True, "spark": spark, "directory": str(directory), "fetched": bool(missing), "jars": facts}
    what = "fetched" if missing else "found"
    end = f"Spark {spark}: {counted(len(listed), 'jar')} {what}, SHA-256 checked, in {directory}"
    call.output.show(Lines(done, [*(jar.name for jar in listed), end]))
    return 0


AIRFLOW_WITHIN_S = 600
STATE_CHARS, LABEL_CHARS = 6, 24
_SHOWN = {OK: "ok", WRONG: "WRONG", UNKNOWN: "-"}


@command(
    "doctor",
    click.option("--send-test", is_flag=True, help="Send a test message to each alert channel. Needs Airflow."),
    configured=False,
    checked=False,
    examples=["cleantail doctor", "cleantail doctor --send-test"],
)
def doctor(call: Invocation, send_test: bool) -> int:
    """Examine everything that a run needs, and name the next step for what is wrong.

    It checks configuration, state, catalogs, store, tables, the Kafka topics, Spark, jars, Java and Python. If Airflow
    is set up here, it also checks connections, alert channels, plugin and DAGs. Nothing is changed. All checks run,
    even after one failed. The exit code is 2 if something is wrong on this machine or in the configuration, and 4 if
    only something outside is wrong.
    """
    with call.output.progress() as progress:
        progress("examining the installation")
        env = call.platform.env
        findings = _with_airflow(call.config, send_test, env) if airflow_is_set_up(env) else _alone(call.config, env)
    code, checks = exit_code_of(findings), counted(len(findings), "check")
    wrong = sum(finding.state == WRONG for finding in findings)
    lines = ["\n".join(_lines(finding, line_width())) for finding in findings]
    lines.append(f"{wrong} of {checks} found something wrong" if wrong else f"nothing is wrong: {checks}")
    call.output.show(Lines({"ok": code == 0, "checks": [each.as_json() for each in findings]}, lines))
    return code


def airflow_is_set_up(env: Mapping[str, str]) -> bool:
    """Return whether this environment has an Airflow with a configuration. Does not import Airflow."""
    home = Path(env.get("AIRFLOW_HOME") or Path.home() / "airflow")
    configured = any(name.startswith("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN") for name in env)
    return find_spec("airflow") is not None and (configured or (home / "airflow.cfg").is_file())


def _alone(config: Path, env: Mapping[str, str]) -> list[Finding]:
    text = "no Airflow is set up here (AIRFLOW_HOME has no airflow.cfg): run this where its scheduler or a worker runs"
    return [*examine(config, env), Finding("airflow", "", UNKNOWN, text)]


def _with_airflow(config: Path, send_test: bool, env: Mapping[str, str]) -> list[Finding]:
    """Return all findings of a process that reads connections as Airflow's own servers do."""
    arguments = ["-m", "cleantail_airflow.tasks.doctor_task", str(config.absolute())]
    arguments += ["--send-test"] if send_test else []
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            env={**env, "_AIRFLOW_PROCESS_CONTEXT": "server"},
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=AIRFLOW_WITHIN_S,
        )
        return [Finding(**finding) for finding in json.loads(done.stdout.rpartition("\n\0")[2])]
    except (subprocess.TimeoutExpired, ValueError) as e:
        text = f"Airflow's part could not be examined: {type(e).__name__}"
        step = f"run `{Path(sys.executable).name} {' '.join(arguments)}` and read its error"
        return [*examine(config, env), Finding("airflow", "", WRONG, text, step, OutsideError.exit_code)]


def _lines(finding: Finding, width: int) -> list[str]:
    """Return the finding in two columns, wrapped between words."""
    label = finding.label
    texts = [*finding.text.splitlines(), *([f"next: {finding.next_step}"] if finding.next_step else [])]
    begin = STATE_CHARS + LABEL_CHARS
    lines = textwrap.TextWrapper(max(width - begin, 30), break_long_words=False, break_on_hyphens=False)
    parts = [part for text in texts for part in lines.wrap(text) or [""]]
    head = f"{_SHOWN[finding.state]:{STATE_CHARS}}{label:{LABEL_CHARS - 1}} "
    first = [head.rstrip()] if len(label) >= LABEL_CHARS else [f"{head}{parts.pop(0)}"]
    return [*first, *(f"{'':{begin}}{part}" for part in parts)]

"""`init`: write the files of a first topic: defaults.yaml, the topic's YAML, and the DAG file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from cleantail.config.loading import load_platform
from cleantail.config.topic_source import ADDRESS_PATTERN
from cleantail.errors import CleantailError
from cleantail.kafka.import_config import validated, write_file
from cleantail_cli.command import Invocation, command
from cleantail_cli.output import ConsoleOutput
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
    call.output.show(Initial(written, config, topic))
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


@dataclass(frozen=True)
class Initial:
    """Answer of `init`: whether each file was written, or existed already."""

    files: Mapping[Path, bool]
    config: Path
    topic: str

    def document(self) -> dict[str, Any]:
        return {"ok": True, "files": [{"file": str(file), "written": new} for file, new in self.files.items()]}

    def tell(self, page: ConsoleOutput) -> None:
        for file, new in self.files.items():
            page.line(f"{file}: {'written' if new else 'exists already and is kept'}")
        page.line("next:")
        page.line("  1. name your catalog in defaults.yaml; its login belongs in the environment")
        page.line(f"  2. set CLEANTAIL_CONFIG={self.config} for scheduler, workers and API server")
        page.line("  3. run `cleantail doctor` until nothing is wrong")
        page.line(f"  4. unpause the DAG: airflow dags unpause {self.topic}")

"""One Spark session, one CLEANTAIL_HOME and one catalog for all job tests. Each test has its own topics."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView
from pyiceberg.expressions import EqualTo
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from cleantail.config.loading import find_topic, load_platform
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.config.topic_table import EVIDENCE
from cleantail.lake.catalogs import open_catalog
from cleantail.log.source_position import position_of
from cleantail.sources.kcat import Record
from cleantail_cli import main
from spark_jobs.engine import compared_readers, tasks
from spark_jobs.iceberg.java_calls import texts
from spark_jobs.iceberg.session import start_session
from spark_jobs.iceberg.tables import TopicTable
from tests.jobs.kafka_site import KafkaSite, kafka_site, landed_record
from tests.jobs.source_tables import FLAT, Sink, allow, as_text

REPOSITORY = Path(__file__).resolve().parents[2]
HEADERS = "array<struct<key: string, value: binary>>"
REDPANDA = (
    f"struct<`partition`: int, `offset`: bigint, `timestamp`: timestamp, headers: {HEADERS}, key: binary, "
    "timestamp_type: int>"
)

SINK = [
    "named_struct('partition', p, 'offset', o, 'timestamp', timestamp_millis(ms), 'headers', "
    f"CAST(array(named_struct('key', 'h', 'value', X'01')) AS {HEADERS}), 'key', CAST(k AS BINARY), "
    "'timestamp_type', 0) AS redpanda",
    "CAST(v AS BINARY) AS value",
]
"""A row of lake() as Redpanda writes it."""


@dataclass
class Workshop:
    """A configuration directory on the shared home, and functions that run the command line."""

    config: Path
    capture: pytest.CaptureFixture[str]

    def topic(self, name: str, config: dict[str, Any] | None = None, **more: Any) -> str:
        """Write the YAML (JSON is YAML) of a topic whose segments are never active. Return its name."""
        _claim(name)
        settings = {"segment.ms": 1, "delete.retention.ms": 1000} | (config or {})
        folder = self.config / "topics"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.yaml").write_text(json.dumps({"topic": name, "config": settings, **more}))
        return name

    def file(self, name: str, records: Iterable[dict[str, Any]]) -> Path:
        path = self.config / name
        path.write_text("".join(json.dumps(r) + "\n" for r in records))
        return path

    def run(self, *argv: object) -> tuple[int, str, str]:
        self.capture.readouterr()
        code = main([*map(str, argv), "--config", str(self.config)])
        out, err = self.capture.readouterr()
        return code, out, err

    def ok(self, *argv: object) -> str:
        code, out, err = self.run(*argv)
        assert code == 0, err
        return out

    def json(self, *argv: object) -> Any:
        return json.loads(self.ok(*argv, "--json"))

    def read(self, topic: str, *argv: object) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.ok("read", topic, *argv).splitlines()]

    def platform(self) -> Platform:
        return load_platform(self.config)

    def evidence(self, topic: str) -> list[dict[str, Any]]:
        """Return the topic's rows of the evidence, oldest first. Empty if the table does not exist yet."""
        platform = self.platform()
        catalog, name = open_catalog(platform), f"{platform.catalog.namespace}.{EVIDENCE}"
        if not catalog.table_exists(name):
            return []
        table = catalog.load_table(name)
        rows = table.scan(row_filter=EqualTo("topic", topic)).to_arrow().to_pylist()
        return sorted(rows, key=lambda r: (r["checked_at_ms"], r["partition"]))

    def find(self, topic: str) -> Topic:
        return find_topic(topic, self.config)


def _claim(topic: str) -> None:
    """Fail if two test files use one topic: they would share its table if one process runs both."""
    here, home = os.environ["PYTEST_CURRENT_TEST"].split("::")[0], Path(os.environ["CLEANTAIL_HOME"])
    run = home.parent.parent if "PYTEST_XDIST_WORKER" in os.environ else home.parent
    claim = run / "topics" / topic
    claim.parent.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        claim.symlink_to(here)  # the link and its target appear at once
    owner = os.readlink(claim)
    assert owner == here, f"{here}: {owner} also has a topic {topic!r}"


class QuietWorkshop(Workshop):
    """A workshop for a whole module, for which pytest has no capsys."""

    def __init__(self, config: Path) -> None:
        self.config = config

    def run(self, *argv: object) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([*map(str, argv), "--config", str(self.config)])
        return code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """CLEANTAIL_HOME of the whole session, with the jars of the checkout."""
    place = tmp_path_factory.mktemp("home")
    jars = os.environ.get("CLEANTAIL_JARS") or str(REPOSITORY / ".cleantail" / "jars")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLEANTAIL_HOME", str(place))
        patch.setenv("CLEANTAIL_JARS", jars)
        yield place


@pytest.fixture(scope="session")
def spark(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session. Later start_session calls get it, since they name the same catalog."""
    config = tmp_path_factory.mktemp("platform")
    # Generated and compiled code does not pay off for small tables. Tests of other processes and of whole DAG runs use
    # the shipped settings.
    conf = {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": 1,
        "spark.sql.ui.explainMode": "simple",  # the plans are only for pages, which these tests do not open
        # 1. The compiled code of a test session does not fit into C1's default cache, and would be compiled repeatedly.
        # 2. The garbage of one command does not fit into the default young generation.
        # 3. The JVM first collects the whole heap to unload classes at 256 MiB of classes, not at 21.
        # 4. Planning runs much code a few times each, so code is compiled five times as early as by default.
        "spark.driver.extraJavaOptions": (
            "-XX:TieredStopAtLevel=1 -XX:CompileThresholdScaling=0.2 -XX:+UseSerialGC "
            "-XX:ReservedCodeCacheSize=256m -XX:MetaspaceSize=256m -Xms1g -Xmn512m"
        ),
    }
    (config / "defaults.yaml").write_text(json.dumps({"platform": {"spark": {"master": "local[2]", "conf": conf}}}))
    with pytest.MonkeyPatch.context() as patch:
        keep_names_of_the_jvm(patch)
        session = start_session(load_platform(config), "cleantail tests")
        yield session
        session.stop()


def keep_names_of_the_jvm(patch: pytest.MonkeyPatch) -> None:
    """Resolve each name of the JVM once.

    py4j asks the JVM at each use of `jvm.org.apache…` what each part of it is, and the JVM then searches all jars, some
    300, for a class of that name: a quarter of what a warm JVM does for a round of a few records.
    """
    for kind in (JVMView, JavaPackage, JavaClass):
        patch.setattr(kind, "__getattr__", _that_keeps(kind.__getattr__))


def _that_keeps(look_up: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """Python calls this only for missing attributes. Packages, classes and methods become attributes, values do not."""

    def kept(self: Any, name: str) -> Any:
        found = look_up(self, name)
        if isinstance(found, (JavaPackage, JavaClass, JavaMember)):
            self.__dict__[name] = found
        return found

    return kept


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSite]:
    """One real broker for all tests of a Kafka source. The user `reader` has the rights that a test grants."""
    with kafka_site(tmp_path_factory.mktemp("broker")) as site:
        yield site


@pytest.fixture
def landed(table_of):  # type: ignore[no-untyped-def]
    """Return a function that reads a table's records, in the order of the log."""
    return lambda topic: in_log_order(table_of(topic))


@pytest.fixture
def position(table_of):  # type: ignore[no-untyped-def]
    """Return a function that reads a table's position in Kafka."""
    return lambda topic: position_of(texts(table_of(topic).load().properties()), topic)


@pytest.fixture
def workshop(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Workshop:
    (tmp_path / "config" / "topics").mkdir(parents=True)
    return Workshop(tmp_path / "config", capsys)


@pytest.fixture
def table_of(workshop: Workshop, spark: SparkSession):  # type: ignore[no-untyped-def]
    return lambda topic: TopicTable.of(spark, workshop.find(topic))


@pytest.fixture
def lake(spark, workshop):  # type: ignore[no-untyped-def]
    """Make tables as sinks do: lake(SQL of columns, rows, partitioned by, properties). Each group of rows is one append."""

    def make(name, columns, groups, select, by="", properties="'format-version'='2'"):
        workshop.platform()
        spark.sql("CREATE NAMESPACE IF NOT EXISTS cleantail.sinks")
        full = f"cleantail.sinks.`{name}`"
        spark.sql(f"CREATE TABLE {full} ({columns}) USING iceberg {by} TBLPROPERTIES ({properties})")
        for rows in groups:
            flat = "p int, o bigint, ms bigint, k string, v string"
            made = spark.createDataFrame(list(rows), flat).coalesce(1).selectExpr(*select)
            made.writeTo(full).append()
        return f"sinks.{name}"

    return make


@pytest.fixture
def redpanda(lake):  # type: ignore[no-untyped-def]
    """Redpanda in key_value mode: a file has one partition, the table is cut by hour, no metrics are in the metadata."""

    def make(name, records, version=2):
        groups = [[r for r in records if r[0] == p] for p in sorted({r[0] for r in records})]
        return lake(
            name,
            f"redpanda {REDPANDA}, value binary",
            groups,
            SINK,
            "PARTITIONED BY (hours(redpanda.timestamp))",
            f"'format-version'='{version}', 'write.metadata.metrics.default'='none', 'write.spark.fanout.enabled'='true'",
        )

    return make


@pytest.fixture
def adopted(workshop, redpanda):  # type: ignore[no-untyped-def]
    """Adopt a table of format version 2 as Redpanda writes it. Returns (topic, table)."""

    def make(topic, records, **config):
        table = redpanda(topic, records, 2)
        workshop.ok("adopt", table)
        settings(workshop, topic, **config)
        return topic, table

    return make


@pytest.fixture
def sink(spark, workshop):
    """Make a table as a sink does, which topics may read."""

    def make(name, columns=FLAT, properties="'format-version'='2'", catalog="cleantail"):
        allow(workshop)
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.sinks")
        table = f"{catalog}.sinks.`{name}`"
        spark.sql(f"CREATE TABLE {table} ({columns}) USING iceberg TBLPROPERTIES ({properties})")
        return Sink(spark, table, f"sinks.{name}", columns)

    return make


@pytest.fixture
def reading(workshop):
    """Makes a topic that reads a table."""
    return lambda name, lake, **more: workshop.topic(name, source={"table": lake.source | more})


@pytest.fixture
def records(table_of):
    """A topic's records as (partition, offset, ms, key, value), in the order of the log."""

    def of(topic):
        texts_of = ((r, as_text(r.key), as_text(r.value)) for r in in_log_order(table_of(topic)))
        return [(r.partition, r.offset, r.timestamp_ms, key, value) for r, key, value in texts_of]

    return of


def _wrapped(mutate: Any, work: Any, store: Any, task: Any) -> Any:
    """Run a task with another reader of files."""
    from spark_jobs.engine import task_records

    real = task_records.column_batches
    task_records.column_batches = partial(_mutated, mutate, real)
    try:
        return work(store, task)
    finally:
        task_records.column_batches = real


def _mutated(mutate: Any, real: Any, io: Any, file: Any, layout: Any, columns: Any) -> Iterator[Any]:
    for at, arrays in real(io, file, layout, columns):
        yield at, mutate(file, dict(arrays))


@pytest.fixture
def misreading(monkeypatch):  # type: ignore[no-untyped-def]
    """Let tasks read the arrays that `mutate(file, arrays)` returns, until the test ends or undo() is called."""
    real = tasks.stored_work

    def begin(mutate):
        for module in (__name__, mutate.__module__):
            cloudpickle.register_pickle_by_value(sys.modules[module])  # workers do not import tests
        monkeypatch.setattr(compared_readers, "_equal", set())
        monkeypatch.setattr(
            tasks, "stored_work", lambda work, store, met=None: real(partial(_wrapped, mutate, work), store, met)
        )
        return monkeypatch.undo

    return begin


def in_log_order(table: TopicTable) -> list[Record]:
    """Sort in this process: a shuffle is not worth it for a few records."""
    return sorted(map(landed_record, table.current().collect()), key=lambda r: (r.partition, r.offset))


def places(spark: SparkSession, table: str, offset: str, partition: str) -> dict[tuple[int, int], list[str]]:
    """Return (partition, offset) -> the data files with a record there. Copies of a record differ by their file."""
    rows = spark.sql(f"SELECT {partition} AS p, {offset} AS o, _file FROM {table}").collect()
    found: dict[tuple[int, int], list[str]] = {}
    for row in rows:
        found.setdefault((row.p, row.o), []).append(row._file)
    return found


def settings(workshop: Workshop, topic: str, **config: Any) -> None:
    """Write the topic's YAML again, with these configs."""
    file = workshop.config / "topics" / f"{topic}.yaml"
    file.write_text(file.read_text() + "config: " + json.dumps({"segment.ms": 1, "delete.retention.ms": 1000} | config))

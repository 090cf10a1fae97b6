"""Examine everything that a run needs, part by part. Changes nothing.

A check returns what it found, or raises an error with what is wrong. `examine` runs every check, even after one failed.
What only Airflow has (connections, channels, DAGs) is examined by `cleantail_airflow.tasks.doctor_task`.

1. A SQL catalog is opened without creating its tables. A missing SQLite file is not created.
2. The store is reached through each topic's table. If the warehouse has no tables, only its existence is checked. The
   first ingestion shows whether it can be written.
3. Brokers are queried for a description of each topic. An ingestion begins with the same query.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cleantail.config.claims import in_its_sources
from cleantail.config.loading import load_platform, scan_groups, scan_topics
from cleantail.config.platform import Platform, network_problem, runs_in_one_process
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, ConfigError, OutsideError
from cleantail.home.driver_process import with_own_python
from cleantail.home.home_folder import open_to_others
from cleantail.human import counted, one_line
from cleantail.kafka.broker_clients import SilentBrokers
from cleantail.kafka.client_settings import settings_of_topic
from cleantail.kafka.read_plan import without_outcome
from cleantail.kafka.source_topic import Brokers
from cleantail.lake.catalogs import load_named, load_table, open_catalog, unreachable
from cleantail.lake.exchange import file_io
from cleantail.lake.foreign_errors import explained
from cleantail.lake.jar_list import kinds_of, mixed_versions, problems, spark_version
from cleantail.lake.spark_settings import jars_directory, needs_mysql, needs_s3

OK, WRONG, UNKNOWN = "ok", "wrong", "not examined"
ANSWERED_WITHIN_MS = 10_000
"""Maximum wait for the brokers of a topic."""
CONNECTED_WITHIN_S = 5.0
PROCESS_WITHIN_S = 60.0
OLDEST_JAVA = 17
_NO_TABLES = re.compile(r"""no such table|relation "[^"]*" does not exist|Table '[^']*' doesn't exist""")
"""Matches the errors of SQLite, Postgres and MySQL for a missing table."""
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: `part` of the installation, `of` which topic or file, and the next step if it failed."""

    part: str
    of: str
    state: str
    text: str
    next_step: str = ""
    exit_code: int = 0

    @property
    def label(self) -> str:
        return f"{self.part} {self.of}".strip()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class NotExaminedError(CleantailError):
    """A check cannot be made here. This is not a failure."""


def _login_of_environment(_: Platform) -> None:
    raise NotExaminedError("an Airflow connection: without Airflow the login comes from the environment")


@dataclass(frozen=True, slots=True)
class Access:
    """The sources of logins and of the Spark master. The defaults need no Airflow."""

    login: Callable[[Platform], None] = _login_of_environment
    """Puts the logins of the platform's catalogs into the environment."""
    kafka: Callable[[Topic], Mapping[str, str]] = settings_of_topic
    master: Callable[[Platform], str] = lambda platform: platform.spark.master


def checked(part: str, of: str, next_step: str, check: Callable[..., str], *args: Any) -> Finding:
    """Return the result of the check. Only the type of an unexpected error is named: its text may have a secret."""
    try:
        return Finding(part, of, OK, check(*args))
    except NotExaminedError as e:
        return Finding(part, of, UNKNOWN, str(e))
    except Exception as e:
        error = e if isinstance(e, CleantailError) else explained(e)
        text, code = (str(error), error.exit_code) if error else (f"the check failed: {type(e).__name__}", 2)
        return Finding(part, of, WRONG, text, next_step, code)


def exit_code_of(findings: Iterable[Finding]) -> int:
    """Return 0 if nothing is wrong, 4 if only things outside are (catalog, network, Java), else 2."""
    codes = {finding.exit_code for finding in findings if finding.state == WRONG}
    return 0 if not codes else OutsideError.exit_code if codes == {OutsideError.exit_code} else 2


def examine(config_dir: Path, env: Mapping[str, str], access: Access = Access()) -> Iterator[Finding]:
    """Yield the finding of each check, in the order of a run's needs. Broken files do not hide others."""
    platform, topics = yield from _configuration(config_dir, env)
    if platform is None:
        yield Finding("catalog", "", UNKNOWN, "without a configuration nothing else can be checked")
    else:
        yield checked("state", "", "", _state, platform)
        yield from _lake(platform, topics, access)
        yield from _brokers(topics, access)
        yield from _spark(platform, env, access)
    yield checked("java", "", f"install Java {OLDEST_JAVA} or newer, or set JAVA_HOME", _java, env)
    yield checked("pyspark", "", "pip install 'cleantail[spark]', with pyspark-client in the same version", _pyspark)


def _configuration(
    config_dir: Path, env: Mapping[str, str]
) -> Generator[Finding, None, tuple[Platform | None, list[Topic]]]:
    """Yield where the files are wrong, without values. Return the platform, None if it is broken, and usable topics."""
    step = "correct the file; `cleantail check-config` shows all of its errors"
    platform: Platform | None = None
    try:
        platform = load_platform(config_dir, env)
        scanned = [*scan_topics(config_dir, env)]
        files = [(file, in_its_sources(file, topic)) for file, topic in scanned]
        groups = [*scan_groups(config_dir, env)]
    except ConfigError as e:
        text = "\n".join(e.locations) if config_dir.is_dir() else f"{config_dir.absolute()} is not a directory"
        missing = "`cleantail init` writes one; --config or CLEANTAIL_CONFIG names another"
        yield Finding("configuration", "", WRONG, text, step if config_dir.is_dir() else missing, e.exit_code)
        return platform, []
    broken = [(file, error) for file, error in (*files, *groups) if isinstance(error, ConfigError)]
    for file, error in broken:
        yield Finding("configuration", file.name, WRONG, "\n".join(error.locations), step, error.exit_code)
    if not files:
        text = f"{config_dir / 'topics'} has no topic"
        yield Finding("configuration", "", WRONG, text, "`cleantail init TOPIC` writes one", ConfigError.exit_code)
    elif not broken:
        of = f" and {counted(len(groups), 'group')}" if groups else ""
        yield Finding("configuration", "", OK, f"{counted(len(files), 'topic')}{of} in {config_dir.absolute()}")
    return platform, [topic for _, topic in files if isinstance(topic, Topic)]


# ---- state, catalog and store


def _state(platform: Platform) -> str:
    home = platform.home
    there = _nearest_folder(home)
    if not os.access(there, os.W_OK | os.X_OK):
        raise CleantailError(
            f"{there} cannot be written by this user, but the state belongs in {home}. Change the folder's rights, or "
            "name another folder in CLEANTAIL_HOME or platform.state"
        )
    if warning := open_to_others(home):
        raise CleantailError(warning)
    return f"{home} can be written" if there == home else f"{home} does not exist yet: the first run makes it"


def _nearest_folder(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _lake(platform: Platform, topics: list[Topic], access: Access) -> Iterator[Finding]:
    """Yield what was found of the catalogs, of the warehouse, and of each topic's tables."""
    catalogs = (platform.catalog, *platform.source_catalogs.values())
    if named := [catalog.connection for catalog in catalogs if catalog.connection]:
        step = "make the Airflow connection, or correct `connection` of the catalog in defaults.yaml"
        yield checked("catalog login", ", ".join(named), step, _login, platform, access)
    opened: list[Any] = []
    step = "start the catalog, or correct platform.catalog in defaults.yaml and its login in the environment"
    yield checked("catalog", platform.catalog.name, step, _catalog, platform, opened)
    for name in platform.source_catalogs:
        step = f"correct platform.source_catalogs.{name} in defaults.yaml, or its login"
        yield checked("catalog", name, step, _catalog, platform.reading(name), [])
    yield checked("store", "", "correct platform.catalog.warehouse, or the store's login", _store, platform)
    step = "check the store, its login, and its network from this machine"
    for topic in topics if opened else ():
        yield checked("table", topic.topic, step, _table, opened[0], topic)
    for topic in topics:
        if topic.source.table is not None:
            step = "correct source.table, or the login of its catalog"
            yield checked("source table", topic.topic, step, _source_table, topic)


def _login(platform: Platform, access: Access) -> str:
    access.login(platform)
    return "the connection exists"


def _catalog(platform: Platform, opened: list[Any]) -> str:
    """Open the catalog without changing it, and put it into `opened`."""
    at = platform.catalog
    file = Path(platform.catalog_uri.removeprefix("sqlite:///"))
    if at.type == "sqlite" and not (file.exists() and platform.home.exists()):
        return f"{file} does not exist yet: the first run makes it"
    as_it_is = at.model_copy(update={"properties": {**at.properties, "init_catalog_tables": "false"}})
    catalog = open_catalog(platform.model_copy(update={"catalog": as_it_is}))
    where = f"{at.type} at {at.uri or platform.catalog_uri}" if at.type != "glue" else at.type
    try:
        catalog.load_namespace_properties(platform.catalog.namespace)
    except Exception as e:
        if _NO_TABLES.search(str(e)):
            return f"{where} has no tables yet: the first run makes them"
        if type(e).__name__ != "NoSuchNamespaceError":
            raise unreachable(platform, e) from None
    opened.append(catalog)
    return f"{where} answers"


def _store(platform: Platform) -> str:
    warehouse = platform.warehouse
    address = urlsplit(warehouse)
    if address.path.startswith("/") and address.scheme in ("", "file"):
        folder = Path(address.path)
        there = _nearest_folder(folder)
        if not os.access(there, os.W_OK | os.X_OK):
            raise CleantailError(f"{there} cannot be written by this user, but tables belong in {folder}")
        return f"{folder} can be written"
    if not address.netloc:
        raise NotExaminedError("the catalog names the store: each topic's table shows whether it can be read")
    bucket = f"{address.scheme}://{address.netloc}"
    if not file_io(platform, bucket).new_input(bucket).exists():
        raise OutsideError(f"{bucket} does not exist, or this login may not see it")
    return f"{bucket} answers"


def _table(catalog: Any, topic: Topic) -> str:
    table = load_table(catalog, topic)
    if table is None:
        return f"{topic.table} does not exist yet: the first ingestion makes it"
    if not table.io.new_input(table.metadata_location).exists():
        raise OutsideError(f"{one_line(table.metadata_location)} is missing, or this login may not read it")
    return f"{topic.table} and its store can be read"


def _source_table(topic: Topic) -> str:
    source = topic.source.table
    assert source is not None
    load_named(topic.platform.reading(source.catalog), source.name)
    return f"{source.name} can be read"


# ---- Kafka


def _brokers(topics: list[Topic], access: Access) -> Iterator[Finding]:
    """Yield what the brokers return for each topic. Brokers that do not answer are queried only once."""
    silent = SilentBrokers()
    for topic in topics:
        if (kafka := topic.source.kafka) is not None:
            where = f"the connection {kafka.connection}" if kafka.connection else "source.kafka, or the environment"
            step = f"start the brokers, or correct address and login in {where}"
            yield checked("kafka", topic.topic, step, _described, topic, silent, access)


def _described(topic: Topic, silent: SilentBrokers, access: Access) -> str:
    try:
        settings = access.kafka(topic)
        with silent.asked(settings, ANSWERED_WITHIN_MS):
            broker = Brokers(settings, ANSWERED_WITHIN_MS).describe(topic.kafka_topic)
    except CleantailError as e:
        kind = OutsideError if isinstance(e, OutsideError) else CleantailError
        raise kind(without_outcome(e)) from None
    return f"{topic.kafka_topic} has {counted(len(broker.logs), 'partition')}, and this login may read it"


# ---- Spark, Java and Python


def _spark(platform: Platform, env: Mapping[str, str], access: Access) -> Iterator[Finding]:
    step = "name a Spark master that runs: in the Airflow connection spark_default, or in platform.spark.master"
    yield checked("spark master", "", step, _master, platform, access)
    yield checked("jars", "", "run `cleantail jars`", _jars, platform)
    step = "set PYSPARK_PYTHON to a Python of this version that has the package cleantail[spark]"
    yield checked("workers' python", "", step, _workers_python, platform, env, access)


def _master(platform: Platform, access: Access) -> str:
    master = access.master(platform)
    if problem := network_problem(master, platform.spark.conf, platform.spark.insecure):
        raise CleantailError(f"{master} is not allowed: it needs {problem}")
    if runs_in_one_process(master):
        return f"{master}: Spark runs in the driver's process"
    address = urlsplit(master.removeprefix("k8s://").split(",")[0])
    if not address.hostname:
        raise NotExaminedError(f"{master}: the first job shows whether it can be reached")
    port = address.port or _PORTS.get(address.scheme, 7077)
    try:
        socket.create_connection((address.hostname, port), CONNECTED_WITHIN_S).close()
    except OSError as e:
        raise OutsideError(f"{master}: {address.hostname}:{port} cannot be reached: {e.strerror or e}") from None
    return f"{master} accepts connections"


def _jars(platform: Platform) -> str:
    if platform.spark.jars_of_cluster:
        raise NotExaminedError("platform.spark.jars is cluster: the cluster has the jars")
    directory = jars_directory(platform)
    kinds = kinds_of(spark_version(), needs_s3(platform), needs_mysql(platform))
    if wrong := problems(directory, kinds):
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise CleantailError(f"{directory}: {wrong[0]}{more}")
    return f"Iceberg's jars for Spark {spark_version()} are in {directory}, SHA-256 checked"


def _java(env: Mapping[str, str]) -> str:
    home = env.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java", path=env.get("PATH"))
    output = _output_of([java or "java", "-version"], env)
    found = re.search(r'version "(?:1\.)?(\d+)[^"]*"', output)
    if not found or int(found[1]) < OLDEST_JAVA:
        raise OutsideError(f"{java} is {found[0] if found else 'not Java'}; Spark needs {OLDEST_JAVA} or newer")
    return f"{java}: {found[0]}"


def _output_of(command: list[str], env: Mapping[str, str]) -> str:
    """Return the output of a program. Raises OutsideError if it cannot be run."""
    try:
        done = subprocess.run(
            command,
            env=dict(env),
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=PROCESS_WITHIN_S,
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise OutsideError(f"{command[0]} cannot be run: {getattr(e, 'strerror', None) or type(e).__name__}") from None
    return done.stdout + done.stderr


def _pyspark() -> str:
    try:
        spark = version("pyspark")
    except PackageNotFoundError:
        raise CleantailError("PySpark is not installed") from None
    if warning := mixed_versions():
        raise CleantailError(warning)
    try:
        return f"pyspark and pyspark-client are both {version('pyspark-client')}"
    except PackageNotFoundError:
        return f"pyspark {spark}, without pyspark-client"


def _workers_python(platform: Platform, env: Mapping[str, str], access: Access) -> str:
    """Compare the Python of Spark's tasks with this one, which the driver runs on: PySpark needs the same version."""
    here = "{}.{}".format(*sys.version_info)
    try:
        master = access.master(platform)
    except CleantailError:
        raise NotExaminedError("it depends on the Spark master, which is not known") from None
    if not runs_in_one_process(master):
        raise NotExaminedError(f"executors have their own Python: they need {here}, with the package cleantail[spark]")
    python = with_own_python(env)["PYSPARK_PYTHON"]
    if python == sys.executable:
        return f"{python} is also the driver's: Python {here}"
    program = "import sys, cleantail, pyspark; print('{}.{}'.format(*sys.version_info), 'has cleantail')"
    found = re.search(r"^(\S+) has cleantail$", output := _output_of([python, "-c", program], env), re.MULTILINE)
    if not found:
        last = one_line(output.strip().rpartition("\n")[2])
        raise CleantailError(f"{python} cannot import cleantail and pyspark: {last}")
    if found[1] != here:
        raise CleantailError(f"{python} is Python {found[1]}, and the driver runs on {here}")
    return f"{python} is Python {here}, the driver's version"

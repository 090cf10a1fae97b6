"""The settings of a Spark application: catalog, jars, plans (docs/architecture.md, decision 6).

`spark_conf` may travel on a command line and holds no secret; `spark_secrets` is added inside the driver, from the
environment, by the session module.
"""

from __future__ import annotations

import os
from pathlib import Path

from cleantail.config.catalog import Catalog
from cleantail.config.platform import Platform, authentication, network_problem
from cleantail.config.state_home import INSTALLED_IN
from cleantail.errors import CleantailError
from cleantail.lake import client_properties, jar_list
from cleantail.lake.jar_list import on_class_path
from cleantail.log.task_shares import DEFAULT_CORES

SPARK_SECRET = "CLEANTAIL_SPARK_SECRET"
"""The secret that a driver needs for a Spark cluster with spark.authenticate=true."""

LOGGING = INSTALLED_IN / "spark_jobs" / "conf" / "log4j2.properties"
CONF_DIR_VARIABLE = "SPARK_CONF_DIR"
CLASS_ARCHIVE = "classes.jsa"
"""File next to the jars, made by cleantail_cli/class_archive.py, so that a JVM need not load and verify classes."""
QUIET_ARCHIVE = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Suppress warnings about classes that cannot be archived and about an archive that is not used."""
AS_ARCHIVED = "-XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"
"""Valid because the archive stays where it was made. Otherwise every start of a JVM rewrites all addresses in it."""

JVM_OPTIONS = "-XX:+UseParallelGC -Djava.net.preferIPv4Stack=true"
SMALL_RECORDS = 100_000
"""A run of up to this many records ends before the compilation of generated code pays off."""
SMALL_RUN = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.net.preferIPv4Stack=true",
}
LOCAL_FILES = {"spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"}
"""Hadoop's local disk, but Java sets the permissions of a new file. Without its native library, which PySpark lacks,
Hadoop starts a process `chmod` for each file: about forty in a run of a small topic."""
OWN_OVERHEAD_MIB = 512
"""Memory of an executor outside its heap, without Cleantail's tasks: the JVM's own and Python's modules."""


def jars(platform: Platform) -> list[Path]:
    """Return the listed jars (spark_jobs/conf/jars.txt) that `cleantail jars` or `make setup` fetched.

    They are fetched once, so that no job resolves packages when it starts. Empty if the cluster has the jars. Raises
    CleantailError if the size of a jar differs from the list.
    """
    return [] if platform.spark.jars_of_cluster else on_class_path(jars_directory(platform))


def jars_directory(platform: Platform) -> Path:
    """Return where the jars of the platform's applications are (cleantail.lake.jar_list)."""
    return jar_list.jars_directory(platform.home, platform.env)


def needs_s3(platform: Platform) -> bool:
    """Return whether the jars of S3 are needed: for tables in S3, or for Glue's client, which is in the same jars."""
    catalogs = _catalogs(platform)
    locations = [platform.warehouse, *(catalog.warehouse or "" for catalog in catalogs)]
    by_client = any(c.type == "glue" or c.properties.get("io-impl", "").endswith("S3FileIO") for c in catalogs)
    return by_client or any(location.startswith(("s3:", "s3a:", "s3n:")) for location in locations)


def needs_mysql(platform: Platform) -> bool:
    """Return whether a catalog is in MySQL: its driver is in a separate jar."""
    return any(catalog.type == "mysql" for catalog in _catalogs(platform))


def _catalogs(platform: Platform) -> tuple[Catalog, ...]:
    """Return the platform's own catalog and the catalogs that topics read."""
    return (platform.catalog, *platform.source_catalogs.values())


def spark_conf(platform: Platform, records: int | None = None) -> dict[str, str]:
    """Return the settings of a Spark application: catalog, jars, plans.

    The platform's own `spark.conf` wins, with one exception: SQL can never read a file by its path.

    `records`: number of records that the application will read, if known (SMALL_RECORDS).

    Raises CleantailError for a master that strangers could command (cleantail.config.platform), and for a jar that is
    not the listed one.
    """
    if allowed := network_problem(platform.spark.master, platform.spark.conf, platform.spark.insecure):
        raise CleantailError(f"platform.spark.master {platform.spark.master} is not allowed: {allowed}")
    prefix = f"spark.sql.catalog.{platform.catalog.name}"
    catalog = {f"{prefix}.{key}": value for key, value in client_properties.spark_catalog(platform).items()}
    return {
        "spark.master": platform.spark.master,
        **_class_path(platform),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        **catalog,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        # without this, each column function makes six calls to the JVM, so that an error can name the line of the call
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # over TCP every Python task waits 40 ms for an acknowledgement that its system delays
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
        "spark.driver.memory": "3g",
        "spark.driver.defaultJavaOptions": _default_options(platform),
        "spark.driver.extraJavaOptions": JVM_OPTIONS,
        "spark.driver.bindAddress": "127.0.0.1" if platform.spark.master.startswith("local") else "0.0.0.0",
        **({"spark.driver.host": "127.0.0.1"} if platform.spark.master.startswith("local") else {}),
        **_worker_settings(platform),
        **authentication(platform.spark.master),
        **(SMALL_RUN if records is not None and records <= SMALL_RECORDS else {}),
        **platform.spark.conf,
        "spark.sql.runSQLOnFiles": "false",  # wins over spark.conf: no SQL reads a file by its path
    }


def _worker_settings(platform: Platform) -> dict[str, str]:
    """Return Spark's settings for Python workers.

    Local workers are forked from a daemon that has already done the imports. Other executors get extra memory for what
    their tasks use outside the JVM, in addition to Spark's own share.
    """
    if platform.spark.master.startswith("local"):
        return {"spark.python.daemon.module": "spark_jobs.engine.workers.daemon"}
    cores = int(platform.spark.conf.get("spark.executor.cores", DEFAULT_CORES))
    tasks_mib = cores * platform.cleaner.cleantail_task_memory_bytes >> 20
    return {"spark.executor.memoryOverhead": f"{tasks_mib + OWN_OVERHEAD_MIB}m"}


def _class_path(platform: Platform) -> dict[str, str]:
    """Return the jars as the driver's class path, so that classes can come from the archive.

    Executors fetch their jars. Empty if the cluster has the jars.
    """
    if platform.spark.jars_of_cluster:
        return {}
    paths = [str(jar) for jar in jars(platform)]
    by_master = LOCAL_FILES if platform.spark.master.startswith("local") else {"spark.jars": ",".join(paths)}
    return {"spark.driver.extraClassPath": os.pathsep.join(paths), **by_master}


def _default_options(platform: Platform) -> str:
    """Return JVM options, so that spark.driver.extraJavaOptions stays free for the user.

    An option sets up logging, because the class archive does not allow a directory of files on the class path.
    """
    if platform.env.get(CONF_DIR_VARIABLE):
        return ""
    archive = jars_directory(platform) / CLASS_ARCHIVE
    shared = f'-XX:SharedArchiveFile="{archive}" {AS_ARCHIVED} {QUIET_ARCHIVE}' if archive.exists() else ""
    return f'-Dlog4j2.configurationFile="{LOGGING.as_uri()}" {shared}'.strip()


def spark_secrets(platform: Platform) -> dict[str, str]:
    """Return credentials from the environment as Spark settings. Only set them inside the driver."""
    prefix = f"spark.sql.catalog.{platform.catalog.name}"
    secrets = {f"{prefix}.{key}": value for key, value in client_properties.spark_secrets(platform).items()}
    return secrets | (
        {"spark.authenticate.secret": platform.env[SPARK_SECRET]} if platform.env.get(SPARK_SECRET) else {}
    )

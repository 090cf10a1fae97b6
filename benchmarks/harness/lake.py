"""A catalog, a warehouse and a configuration of the benchmarks' own, in one directory."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cleantail.config.loading import find_topic, load_platform
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from differential.broker import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.iceberg.tables import TopicTable

PLAIN = {
    "spark.driver.memory": "4g",
    "spark.driver.extraJavaOptions": "-Djava.net.preferIPv4Stack=true",
    "spark.sql.shuffle.partitions": "200",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "true",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "true",
}
"""Spark's own defaults for settings that Cleantail changes, for jobs of other systems."""

CLUSTER = {"spark.executor.memory": "1g", "spark.executor.cores": 1, "spark.pyspark.python": sys.executable}
"""Settings for executors of one core with this Python."""


def spark_jars() -> Path:
    """Return CLEANTAIL_JARS, else `jars` under CLEANTAIL_HOME (default: .cleantail next to this package)."""
    home = Path(os.environ.get("CLEANTAIL_HOME") or ROOT / ".cleantail")
    return Path(os.environ.get("CLEANTAIL_JARS") or home / "jars").absolute()


@dataclass(frozen=True, slots=True)
class Lake:
    """The benchmarks' own catalog, warehouse and configuration.

    `plain`: use Spark's defaults instead of Cleantail's. `cluster`: the address of a Spark master, instead of a local
    master. The object is small, because it is pickled for each fresh process.
    """

    directory: Path
    cores: int
    plain: bool = False
    cluster: str = ""

    @property
    def home(self) -> Path:
        return self.directory / "home"

    @property
    def config(self) -> Path:
        return self.directory / "config"

    @property
    def platform(self) -> Platform:
        """Return the configuration. Sets CLEANTAIL_HOME of this process to the lake's."""
        os.environ["CLEANTAIL_JARS"] = str(spark_jars())
        os.environ["CLEANTAIL_HOME"] = str(self.home)
        conf = PLAIN if self.plain else {}
        spark: dict[str, Any] = {"master": f"local[{self.cores}]", "conf": conf}
        if self.cluster:
            executors = CLUSTER | {"spark.executor.instances": self.cores}
            spark = {"master": self.cluster, "insecure": True, "conf": executors}
        defaults = {"platform": {"spark": spark}}
        (self.config / "topics").mkdir(parents=True, exist_ok=True)
        (self.config / "defaults.yaml").write_text(json.dumps(defaults))  # JSON is YAML
        return load_platform(self.config)

    def session(self) -> SparkSession:
        """Return the one session of this process."""
        from spark_jobs.iceberg.session import start_session

        return start_session(self.platform, "benchmarks")

    def write_topic(self, name: str, config: Mapping[str, Any], **more: Any) -> None:
        folder = self.config / "topics"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.yaml").write_text(json.dumps({"topic": name, "config": dict(config), **more}))

    def topic(self, name: str) -> Topic:
        return find_topic(name, self.config, self.platform.env)

    def table(self, name: str) -> TopicTable:
        from spark_jobs.iceberg.tables import TopicTable

        return TopicTable.of(self.session(), self.topic(name))

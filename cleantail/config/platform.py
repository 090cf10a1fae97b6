"""`platform:` of config/defaults.yaml: catalog, cleaner, Spark, limits. It holds no secrets.

A Spark driver accepts commands from every process that reaches its ports. It also sends secrets of catalog and store to
its executors. A local master's ports are on the loopback interface, which other users of the machine reach; a cluster's
are on the network. So a master needs authentication, and on a cluster also encryption (`network_problem`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from cleantail.config.catalog import LOCAL_WAREHOUSE, Catalog, SourceCatalog
from cleantail.config.config_model import ConnectionId, Model, SettingText, cross_field_error, matching
from cleantail.config.platform_configs import CleanerConfigs, LimitConfigs
from cleantail.config.topic_checks import OWN_NAME, class_problem
from cleantail.config.topic_source import ADDRESS_PATTERN, CatalogName, TablePattern

PREFIX_CHARS = 64
MASTER = "spark.master"
"""A name that platform.spark.conf may not have: it would override the validated master."""
AUTHENTICATE = "spark.authenticate"
ENCRYPTIONS = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
"""Spark's two ways to encrypt what its processes send each other. One is enough."""


def runs_in_one_process(master: str) -> bool:
    """Return whether Spark generates a secret for this master: local and local[n], but not local-cluster[…]."""
    return re.fullmatch(r"local(\[[^\[\]]*\])?", master) is not None


def authentication(master: str) -> dict[str, str]:
    """Return settings, without a secret, that lock out other users of the machine."""
    return {AUTHENTICATE: "true"} if runs_in_one_process(master) else {}


def network_problem(master: str, conf: Mapping[str, str], insecure: bool) -> str | None:
    """Return the settings that a master needs to be safe, or None. With `insecure` it needs none.

    A local master is safe unless the settings switch authentication off.
    """
    if insecure:
        return None
    if runs_in_one_process(master):
        if AUTHENTICATE not in conf or _is_on(conf, AUTHENTICATE):
            return None
        return (
            f"{AUTHENTICATE}: true under platform.spark.conf, the default of a local master: else every user of the "
            f"machine can command the driver. On a machine without other users: insecure: true"
        )
    missing = [] if _is_on(conf, AUTHENTICATE) else [f"{AUTHENTICATE}: true"]
    if not any(_is_on(conf, name) for name in ENCRYPTIONS):
        missing.append(f"{ENCRYPTIONS[0]}: true (or {ENCRYPTIONS[1]})")
    if not missing:
        return None
    return (
        f"a local master, or under platform.spark.conf {' and '.join(missing)}, with the secret in "
        f"CLEANTAIL_SPARK_SECRET: else any host on the network can command the driver, and the secrets of catalog and "
        f"store are sent unencrypted. On a network that is closed by other means: insecure: true"
    )


def _is_on(conf: Mapping[str, str], name: str) -> bool:
    return conf.get(name, "").strip().lower() == "true"


ROOT_ALLOWED = (
    "a folder without .., absolute or inside CLEANTAIL_HOME, but neither that folder itself nor a folder of Cleantail's"
)
_FOLDERS_OF_RUNS = ("airflow", "data_docs", "drivers", "locks", "alerts", "packs", "page", "erasures")
_RESERVED_FOLDERS = (*_FOLDERS_OF_RUNS, "warehouse", "jars", "demo")
"""Folders of CLEANTAIL_HOME that are not sources of records."""


def _root(text: str) -> str:
    path = PurePosixPath(text)
    is_reserved = not path.is_absolute() and (not path.parts or path.parts[0] in _RESERVED_FOLDERS)
    if (
        is_reserved
        or path == PurePosixPath("/")
        or ".." in path.parts
        or not text.isprintable()
        or set("*?[") & set(text)
    ):
        raise ValueError("not a folder of sources")
    return text


Root = Annotated[str, AfterValidator(_root), Field(json_schema_extra={"x-allowed": ROOT_ALLOWED})]
ConnectionName = Annotated[
    str, matching(r"[A-Za-z0-9_.-]{1,250}\*?", "the id of an Airflow connection, or a prefix with * at the end")
]
KafkaServer = Annotated[
    str, matching(rf"\*|{ADDRESS_PATTERN}", "host:port of a broker that topics may name, or * for any")
]
DagPrefix = Annotated[
    str, matching(rf"[A-Za-z0-9._-]{{0,{PREFIX_CHARS}}}", f"up to {PREFIX_CHARS} of the characters a-z A-Z 0-9 . _ -")
]
HomeFolder = Annotated[str, matching(r"/[^?%#]*", "an absolute path without ? % #: it becomes part of addresses")]
SparkKey = Annotated[str, Field(pattern=r"^spark\.[A-Za-z0-9_.-]+$")]


SharedSource = Annotated[
    str,
    matching(r"(kafka|path|group):\S{1,1000}", "kafka:, path: or group:, then a name, or a prefix with * at the end"),
]
FolderAddress = Annotated[str, matching(r"(/|[a-z0-9]+:/)[^\s?#]+", "an address of a folder, such as s3://bucket/raw")]
OwnExpectation = Annotated[str, matching(OWN_NAME, "a class with its module, such as acme_checks.ExpectIban")]
KafkaPattern = Annotated[str, matching(r"[\x21-\x7e]{1,250}", "a name, or a prefix with * at the end")]


class KafkaAccess(Model):
    """The topics and groups that topics may use through one connection."""

    topics: Annotated[tuple[KafkaPattern, ...], Field(strict=False)] = Field(
        default=("*",), description="Topics in Kafka: names, or prefixes with * at the end."
    )
    groups: Annotated[tuple[KafkaPattern, ...], Field(strict=False)] = Field(
        default=("*",), description="Consumer groups whose offsets may be set: names, or prefixes with * at the end."
    )


class Spark(Model):
    """How Spark applications start."""

    master: str = Field(default="local[*]", description="Spark master, as in spark-submit --master.")
    conf: dict[SparkKey, SettingText] = Field(
        default={},
        description="More Spark settings.",
        json_schema_extra={"x-allowed": "names that begin with spark., each with a text or a number"},
    )
    jars: Literal["fetched", "cluster"] = Field(
        default="fetched",
        description="Where Iceberg's jars come from. fetched: `cleantail jars`. cluster: the cluster has them, for "
        "example in an image. With Iceberg's runtime in spark.jars.packages, `cleantail jars` fetches none either.",
    )
    exchange: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9]+://[^\s?#]+$",
        description="Folder in a store that Airflow's workers share with drivers on a cluster, for arguments and "
        "results. Required for deploy-mode cluster.",
        json_schema_extra={"x-allowed": "an address of a folder, such as s3://bucket/cleantail-exchange"},
    )
    jobs: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9]+:///?[^\s?#]+$",
        description="The folder spark_jobs on drivers of a cluster. null: the folder of this installation.",
        json_schema_extra={"x-allowed": "an address of a folder, such as local:///opt/cleantail/spark_jobs"},
    )
    insecure: bool = Field(
        default=False,
        description="true: a cluster master may run without authentication and encryption, and a local one without "
        "authentication. For a network that is closed by other means, or a machine without other users.",
    )

    @model_validator(mode="after")
    def _network_is_closed(self) -> Self:
        if MASTER in self.conf:
            raise cross_field_error(f"conf.{MASTER}", self.conf[MASTER], "leave it out and set platform.spark.master")
        if allowed := network_problem(self.master, self.conf, self.insecure):
            raise cross_field_error("master", self.master, allowed)
        return self

    @property
    def jars_of_cluster(self) -> bool:
        """Whether the cluster provides Iceberg's jars."""
        return self.jars == "cluster" or "iceberg-spark-runtime" in self.conf.get("spark.jars.packages", "")


class PlatformSettings(Model):
    """The `platform:` section of defaults.yaml."""

    state: HomeFolder | None = Field(
        default=None,
        description="Folder of the state. null: .cleantail next to the configuration if it exists, else a folder of "
        "the user's data. CLEANTAIL_HOME takes precedence.",
    )
    catalog: Catalog = Field(default=Catalog(), description="Where the Iceberg tables are listed and stored.")
    sources: Annotated[tuple[Root, ...], Field(strict=False)] = Field(
        default=("landing",),
        description="Folders from which topics' source.path may read, absolute or inside CLEANTAIL_HOME.",
        json_schema_extra={"x-allowed": f"a list, each {ROOT_ALLOWED}"},
    )
    cleaner: CleanerConfigs = Field(default=CleanerConfigs(), description="Limits over all topics.")
    spark: Spark = Field(default=Spark(), description="How Spark applications start.")
    limits: LimitConfigs = Field(default=LimitConfigs(), description="Limits of input.")
    data_docs: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9]+://[^\s?#]+$",
        description="Folder in a store to which drivers copy Data Docs, with the login of the warehouse. null: Data "
        "Docs are only in CLEANTAIL_HOME.",
        json_schema_extra={"x-allowed": "an address of a folder, such as s3://bucket/cleantail-docs"},
    )
    allow_clock: bool = Field(
        default=False,
        description="true: a run from Airflow may use another clock than the real one, by which snapshots and branches "
        "expire too. For trials.",
    )
    dag_prefix: DagPrefix = Field(
        default="",
        description="Prefix of the ids of the topics' DAGs, so that no topic gets the id and the rights of another "
        "team's DAG.",
    )
    alert_connections: Annotated[tuple[ConnectionName, ...], Field(strict=False)] = Field(
        default=("smtp_default", "apprise_default", "cleantail_*"),
        description="Airflow connections that alerts of topics may use: ids, or prefixes with * at the end.",
    )
    kafka_connections: Annotated[tuple[ConnectionName, ...], Field(strict=False)] = Field(
        default=("kafka_*", "cleantail_*"),
        description="Airflow connections that topics' source.kafka may use: ids, or prefixes with * at the end.",
    )
    kafka_servers: Annotated[tuple[KafkaServer, ...], Field(strict=False)] = Field(
        default=("*",),
        description="Brokers that topics' source.kafka may name without a connection, as host:port. *: any.",
    )
    imported_folders: Annotated[tuple[FolderAddress, ...], Field(strict=False)] = Field(
        default=(),
        description="Folders outside an adopted table's own folder that may contain its files, as after add_files or "
        "migrate.",
    )
    kafka_access: dict[ConnectionName, KafkaAccess] = Field(
        default={},
        description="Topics and consumer groups of each connection of kafka_connections, by its id, or a prefix with * "
        "at the end. A connection that is not listed here has no such limit.",
    )
    shared_sources: Annotated[tuple[SharedSource, ...], Field(strict=False)] = Field(
        default=(),
        description="Sources that several topics may read: kafka: with a topic in Kafka, path: with a source.path as "
        "it is written, group: with a consumer group; or a prefix with * at the end. Others belong to one topic.",
    )
    source_catalogs: dict[CatalogName, SourceCatalog] = Field(
        default={},
        description="Other catalogs whose tables topics may read (source.table), by name, each as platform.catalog.",
    )
    source_tables: Annotated[tuple[TablePattern, ...], Field(strict=False)] = Field(
        default=(),
        description="Tables that topics' source.table may name: catalog.namespace.name, or a prefix with * at the end. "
        "Names of the platform's own catalog begin with its name too.",
    )

    erasure_connection: ConnectionId | None = Field(
        default=None,
        description="Airflow connection with the secrets of erasures that are not in the environment: its password is "
        "CLEANTAIL_ERASURE_KEY, and certificate_key in its extra CLEANTAIL_CERTIFICATE_KEY.",
    )
    expectations: Annotated[tuple[OwnExpectation, ...], Field(strict=False)] = Field(
        default=(),
        description="Expectations of your own that topics' checks may name: classes of Great Expectations, each with "
        "its module. Spark drivers import these modules, and no others.",
    )

    @model_validator(mode="after")
    def _expectations_have_names_of_their_own(self) -> Self:
        if name := class_problem(self.expectations):
            allowed = "a class with a name that no other expectation has"
            raise cross_field_error("expectations", name, allowed)
        return self

    @model_validator(mode="after")
    def _catalogs_have_names_of_their_own(self) -> Self:
        if self.catalog.name in self.source_catalogs:
            raise cross_field_error(
                "source_catalogs", self.catalog.name, "names other than platform.catalog.name, which is this one"
            )
        return self


class Platform(PlatformSettings):
    """The platform section, with the absolute paths of CLEANTAIL_HOME and of the configuration, and the environment.

    The environment has the secrets. Pickles and texts of a platform leave the environment out.
    """

    home: Path
    config_dir: Path
    _env: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @property
    def env(self) -> Mapping[str, str]:
        return self._env

    def with_env(self, env: Mapping[str, str]) -> Self:
        platform = self.model_copy()
        platform._env = env
        return platform

    def __getstate__(self) -> dict[Any, Any]:
        return {**super().__getstate__(), "__pydantic_private__": {"_env": {}}}

    @property
    def catalog_uri(self) -> str:
        """The catalog's address in the form of SQLAlchemy and PyIceberg."""
        return self.catalog.uri or f"sqlite:///{self.home / 'catalog.db'}"

    @property
    def warehouse(self) -> str:
        """Root of the tables: a URI, or the name by which a REST catalog identifies it. Empty if a REST catalog has
        its own."""
        local = f"file:{self.home / 'warehouse'}" if self.catalog.type in LOCAL_WAREHOUSE else ""
        return self.catalog.warehouse or local

    def reading(self, catalog: str | None) -> Platform:
        """Return the platform with a catalog of source_catalogs instead of its own, for reads only. None returns
        itself.
        """
        if catalog is None:
            return self
        other = self.source_catalogs[catalog].model_copy(update={"name": catalog})
        return self.model_copy(update={"catalog": other})

"""What the `platform:` of config/defaults.yaml says: catalog, cleaner, Spark. Without secrets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from cleantail.cleaner_configs import CleanerConfigs
from cleantail.config_row import Model, cross_field_error
from cleantail.topic import TopicDefaults

Identifier = Annotated[
    str, Field(pattern="^[A-Za-z0-9_]+$", json_schema_extra={"x-allowed": "characters a-z A-Z 0-9 _"})
]


def _scalar_text(value: object) -> object:
    """Numbers and booleans as Spark and PyIceberg write them: 8 -> "8", true -> "true"."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


Setting = Annotated[str, BeforeValidator(_scalar_text)]
SparkKey = Annotated[str, Field(pattern=r"^spark\.[A-Za-z0-9_.-]+$")]


_ADDRESSES = {"sqlite": "sqlite:///.", "postgres": r"postgresql(\+\w+)?://.", "rest": "https?://[^/]"}
"""How the address of a catalog of each type begins, as SQLAlchemy and PyIceberg take it."""
_EXAMPLES = {
    "sqlite": "sqlite:////srv/catalog.db",
    "postgres": "postgresql://host:5432/database",
    "rest": "https://host:8181",
}


class Catalog(Model):
    """Where the Iceberg tables are listed and stored."""

    name: Identifier = Field(default="cleantail", description="Name of the catalog in Spark SQL.")
    type: Literal["sqlite", "postgres", "rest"] = Field(default="sqlite", description="Kind of catalog.")
    uri: str | None = Field(default=None, description="Address; null is CLEANTAIL_HOME/catalog.db, for sqlite only.")
    warehouse: str | None = Field(default=None, description="Where tables go; null is CLEANTAIL_HOME/warehouse.")
    namespace: Identifier = Field(default="cleantail", description="Namespace of tables that name none.")
    properties: dict[str, Setting] = Field(default={}, description="More catalog properties, such as s3.endpoint.")

    @model_validator(mode="after")
    def _server_is_named(self) -> Self:
        if self.type != "sqlite" and not self.uri:
            raise cross_field_error("uri", self.uri, f"the address of the {self.type} catalog")
        if self.uri and not re.match(_ADDRESSES[self.type], self.uri):
            raise cross_field_error("uri", self.uri, f"an address as {_EXAMPLES[self.type]}")
        return self


class Spark(Model):
    """How Spark applications start."""

    master: str = Field(default="local[*]", description="Spark master, as in spark-submit --master.")
    columnar: Literal["auto", "always", "never"] = Field(
        default="auto",
        description="Whether tasks match keys by columns, with DuckDB, for which workers need this Python and its "
        "packages. auto: where the master is local.",
    )
    conf: dict[SparkKey, Setting] = Field(
        default={},
        description="More Spark settings.",
        json_schema_extra={"x-allowed": "names that begin with spark., each with a text or a number"},
    )


class PlatformSettings(Model):
    """The `platform:` section."""

    catalog: Catalog = Field(default=Catalog(), description="Where the Iceberg tables are listed and stored.")
    cleaner: CleanerConfigs = Field(default=CleanerConfigs(), description="Bounds over all topics.")
    spark: Spark = Field(default=Spark(), description="How Spark applications start.")


class DefaultsFile(Model):
    """config/defaults.yaml."""

    platform: PlatformSettings = Field(default=PlatformSettings(), description="The platform.")
    topic: TopicDefaults = Field(default=TopicDefaults(), description="What all topics share.")


class Platform(PlatformSettings):
    """The platform section together with the place of the state, CLEANTAIL_HOME (absolute)."""

    home: Path
    config_dir: Path

    @property
    def catalog_uri(self) -> str:
        """The catalog's address in the form of SQLAlchemy and PyIceberg."""
        return self.catalog.uri or f"sqlite:///{self.home / 'catalog.db'}"

    @property
    def warehouse(self) -> str:
        """The root of the tables, as a URI."""
        return self.catalog.warehouse or f"file:{self.home / 'warehouse'}"

"""Holds what `platform.catalog:` of config/defaults.yaml says: which Iceberg catalog it is, and how both clients open
it.

The properties are the catalog's own, in the words of Iceberg's Java library or in those of PyIceberg: each client gets
them in its own (cleantail.lake.clients). Secrets are named by their variables of the environment.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from cleantail.config.config_model import Model, cross_field_error, matching
from cleantail.config.secret_filter import VARIABLE, VARIABLE_ALLOWED

Identifier = Annotated[
    str, Field(pattern="^[A-Za-z0-9_]+$", json_schema_extra={"x-allowed": "characters a-z A-Z 0-9 _"})
]


def _scalar_text(value: object) -> object:
    """Returns numbers and booleans as the texts that Spark and PyIceberg take: "8" for 8, "true" for true."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


Setting = Annotated[str, BeforeValidator(_scalar_text)]
Variable = Annotated[str, matching(VARIABLE, VARIABLE_ALLOWED)]
CatalogType = Literal["sqlite", "postgres", "mysql", "rest", "glue", "hive"]

_ADDRESSES = {
    "sqlite": "sqlite:///.",
    "postgres": r"postgresql(\+\w+)?://.",
    "mysql": r"(mysql|mariadb)(\+\w+)?://.",
    "rest": "https?://[^/]",
    "hive": "thrift://.",
}
"""Type of a catalog -> how its address begins, as SQLAlchemy and PyIceberg take it. Glue has none."""
_EXAMPLES = {
    "sqlite": "sqlite:////srv/catalog.db",
    "postgres": "postgresql://host:5432/database",
    "mysql": "mysql://host:3306/database",
    "rest": "https://host:8181",
    "hive": "thrift://host:9083",
}
LOCAL_WAREHOUSE = ("sqlite", "postgres", "mysql")
"""Types whose warehouse is a folder of CLEANTAIL_HOME where none is named."""
_OWN_KEYS = {"type": "type", "uri": "uri", "warehouse": "warehouse", "catalog-impl": "type", "py-catalog-impl": "type"}
"""Property of a client -> the key of platform.catalog that says it."""
_BY_TASKS = (
    "a store that its clients may read and write by credentials: Spark's tasks read and write files by pyarrow, which"
)
_REFUSED = {
    "s3.remote-signing-enabled": ("true", f"{_BY_TASKS} has no requests signed elsewhere. Vended credentials work"),
    "s3.signer": ("", f"{_BY_TASKS} has no requests signed elsewhere. Vended credentials work"),
    "s3.sse.type": ("!none", f"{_BY_TASKS} asks for no encryption. Set it as the bucket's default encryption"),
    "s3.server-side-encryption": (
        "!none",
        f"{_BY_TASKS} asks for no encryption. Set it as the bucket's default encryption",
    ),
}
"""Property -> the value that is refused (! is any other; none is any), and what is allowed."""


class Catalog(Model):
    """Says where the Iceberg tables are listed and stored."""

    name: Identifier = Field(default="cleantail", description="Name of the catalog in Spark SQL.")
    type: CatalogType = Field(default="sqlite", description="Kind of catalog.")
    uri: str | None = Field(
        default=None, description="Address; null is CLEANTAIL_HOME/catalog.db for sqlite, and the account's for glue."
    )
    warehouse: str | None = Field(
        default=None,
        description="Where tables go; null is CLEANTAIL_HOME/warehouse, and of a REST catalog its own. A REST catalog "
        "may know it by a name.",
    )
    namespace: Identifier = Field(default="cleantail", description="Namespace of tables that name none.")
    properties: dict[str, Setting] = Field(
        default={},
        description="More catalog properties, such as s3.endpoint, by Iceberg's names or PyIceberg's: each client gets "
        "them by its own.",
    )
    secrets: dict[str, Variable] = Field(
        default={}, description="Properties whose values are secrets: property -> variable of the environment."
    )
    connection: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_.-]{1,250}$",
        description="Airflow connection with the catalog's login, for what the environment does not have.",
        json_schema_extra={"x-allowed": "the id of an Airflow connection"},
    )

    @property
    def keeps_case(self) -> bool:
        """Return whether names that differ in their case alone are two names. Hive, Glue and MySQL fold the case; of a
        REST catalog that is unknown."""
        return self.type in ("sqlite", "postgres")

    @model_validator(mode="after")
    def _server_is_named(self) -> Self:
        if self.type not in ("sqlite", "glue") and not self.uri:
            raise cross_field_error("uri", self.uri, f"the address of the {self.type} catalog")
        if self.type == "glue" and self.uri:
            raise cross_field_error("uri", self.uri, "none for glue: glue.endpoint is a property, where it is another")
        if self.uri and not re.match(_ADDRESSES[self.type], self.uri):
            raise cross_field_error("uri", self.uri, f"an address as {_EXAMPLES[self.type]}")
        if self.type in ("glue", "hive") and not self.warehouse:
            raise cross_field_error("warehouse", self.warehouse, "where tables go, as s3://bucket/warehouse")
        return self

    @model_validator(mode="after")
    def _properties_are_for_both(self) -> Self:
        for key in self.properties.keys() | self.secrets.keys():
            if key in _OWN_KEYS:
                raise cross_field_error(
                    f"properties.{key}", self.properties.get(key), f"platform.catalog.{_OWN_KEYS[key]}"
                )
        for key, (refused, allowed) in _REFUSED.items():
            value = self.properties.get(key)
            if value is not None and (value != refused[1:] if refused.startswith("!") else refused in ("", value)):
                raise cross_field_error(f"properties.{key}", value, allowed)
        if both := sorted(self.properties.keys() & self.secrets.keys()):
            raise cross_field_error(f"secrets.{both[0]}", self.secrets[both[0]], "in properties or in secrets, once")
        return self


class SourceCatalog(Catalog):
    """Says where tables are that topics may only read (source.table): as platform.catalog says it of the platform's
    own, but that its logins are what `secrets` names, and nothing of the platform's own. Both clients call it by its
    name in platform.source_catalogs, under which a database has to list its tables."""

    @model_validator(mode="after")
    def _is_another(self) -> Self:
        if self.type == "sqlite" and not self.uri:
            raise cross_field_error("uri", self.uri, f"the address of the catalog, as {_EXAMPLES['sqlite']}")
        for key in ("name", "namespace"):
            if key in self.model_fields_set:
                raise cross_field_error(key, getattr(self, key), "left out: a table is named with its namespace")
        return self

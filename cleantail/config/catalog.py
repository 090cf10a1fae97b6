"""`platform.catalog:` of config/defaults.yaml: the Iceberg catalog, for both of its clients (Java and PyIceberg).

Properties may have Iceberg's names or PyIceberg's. Each client gets its own names (cleantail.lake.client_properties).
Secrets are given by the names of environment variables.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cleantail.config.config_model import Model, SettingText, cross_field_error, matching
from cleantail.config.secret_filter import VARIABLE, VARIABLE_ALLOWED

Identifier = Annotated[str, matching("[A-Za-z0-9_]+", "characters a-z A-Z 0-9 _")]


Variable = Annotated[str, matching(VARIABLE, VARIABLE_ALLOWED)]
CatalogType = Literal["sqlite", "postgres", "mysql", "rest", "glue", "hive"]

_ADDRESSES = {
    "sqlite": "sqlite:///.",
    "postgres": r"postgresql(\+\w+)?://.",
    "mysql": r"(mysql|mariadb)(\+\w+)?://.",
    "rest": "https?://[^/]",
    "hive": "thrift://.",
}
"""Type of a catalog -> beginning of its address, in the form of SQLAlchemy and PyIceberg. Glue has no address."""
_EXAMPLES = {
    "sqlite": "sqlite:////srv/catalog.db",
    "postgres": "postgresql://host:5432/database",
    "mysql": "mysql://host:3306/database",
    "rest": "https://host:8181",
    "hive": "thrift://host:9083",
}
_OTHERS_NAMES = {"jdbc": "postgres or mysql", "sql": "sqlite, postgres or mysql"}
"""Type of a catalog in Iceberg's Java or in PyIceberg -> the possible types in platform.catalog."""
LOCAL_WAREHOUSE = ("sqlite", "postgres", "mysql")
"""Types whose default warehouse is a folder of CLEANTAIL_HOME."""
_OWN_KEYS = {"type": "type", "uri": "uri", "warehouse": "warehouse", "catalog-impl": "type", "py-catalog-impl": "type"}
"""Property of a client -> the key of platform.catalog that replaces it."""
_NO_SIGNER = "leave it out: tasks access files through pyarrow, which has no remote signing. Vended credentials work"
_NO_ENCRYPTION = "leave it out: tasks access files through pyarrow, which requests no encryption. Use the bucket's"
_REFUSED = {
    "s3.remote-signing-enabled": ("true", _NO_SIGNER),
    "s3.signer": ("", _NO_SIGNER),
    "s3.sse.type": ("!none", _NO_ENCRYPTION),
    "s3.server-side-encryption": ("!none", _NO_ENCRYPTION),
}
"""Property -> refused value ("" is any; ! before a value is any other), and the allowed values."""


class Catalog(Model):
    """The catalog that lists the Iceberg tables, and where they are stored."""

    name: Identifier = Field(default="cleantail", description="Name of the catalog in Spark SQL.")
    type: CatalogType = Field(
        default="sqlite", description="Kind of catalog.", json_schema_extra={"x-meant": {**_OTHERS_NAMES}}
    )
    uri: str | None = Field(
        default=None, description="Address. null: CLEANTAIL_HOME/catalog.db for sqlite, the account's for glue."
    )
    warehouse: str | None = Field(
        default=None,
        description="Root folder of tables. null: CLEANTAIL_HOME/warehouse, or a REST catalog's own. For a REST "
        "catalog it may be a name.",
    )
    namespace: Identifier = Field(default="cleantail", description="Namespace of tables whose name has none.")
    properties: dict[str, SettingText] = Field(
        default={},
        description="More catalog properties, such as s3.endpoint, with Iceberg's names or PyIceberg's. Each client "
        "gets its own names.",
    )
    secrets: dict[str, Variable] = Field(
        default={}, description="Properties whose values are secrets: property -> environment variable."
    )
    connection: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_.-]{1,250}$",
        description="Airflow connection with the catalog's login, for secrets that are not in the environment.",
        json_schema_extra={"x-allowed": "the id of an Airflow connection"},
    )

    @property
    def keeps_case(self) -> bool:
        """Return whether names that differ only in case are two names.

        Hive, Glue and MySQL fold the case. For a REST catalog this is unknown.
        """
        return self.type in ("sqlite", "postgres")

    @model_validator(mode="after")
    def _server_is_named(self) -> Self:
        if self.type not in ("sqlite", "glue") and not self.uri:
            raise cross_field_error("uri", self.uri, f"the address of the {self.type} catalog", by="type")
        if self.type == "glue" and self.uri:
            raise cross_field_error("uri", self.uri, "nothing for glue; set an endpoint by glue.endpoint", by="type")
        if self.uri and not re.match(_ADDRESSES[self.type], self.uri):
            raise cross_field_error("uri", self.uri, f"an address such as {_EXAMPLES[self.type]}", by="type")
        if self.type in ("glue", "hive") and not self.warehouse:
            allowed = "the root folder of tables, such as s3://bucket/warehouse"
            raise cross_field_error("warehouse", self.warehouse, allowed)
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
            raise cross_field_error(f"secrets.{both[0]}", self.secrets[both[0]], "in properties or secrets, not both")
        return self


class SourceCatalog(Catalog):
    """A catalog whose tables topics may only read (source.table).

    It gets only the logins that `secrets` names. Both clients use its name in platform.source_catalogs, and a database
    catalog must list its tables under this name.
    """

    @model_validator(mode="after")
    def _is_another(self) -> Self:
        if self.type == "sqlite" and not self.uri:
            allowed = f"the address of the catalog, such as {_EXAMPLES['sqlite']}"
            raise cross_field_error("uri", self.uri, allowed, by="type")
        for key in ("name", "namespace"):
            if key in self.model_fields_set:
                raise cross_field_error(key, getattr(self, key), "left out: a table is named with its namespace")
        return self

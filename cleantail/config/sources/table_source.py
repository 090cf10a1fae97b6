"""Holds what `source.table` in a topic's YAML says: which table of another writer is read, what its columns are, and
what a change of it does. The table is only read; the topic's records are in a table of its own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from cleantail.config.columns import Columns
from cleantail.config.settings.config_model import Model, cross_field_error, matching

MAIN = "main"
"""Iceberg's name of the branch that readers see."""
_PART = "[A-Za-z0-9_-]{1,250}"
_CATALOG = "[A-Za-z0-9_]{1,100}"
SourceTableName = Annotated[
    str,
    matching(rf"{_PART}(?:\.{_PART}){{1,3}}", "namespace.name, each of the characters a-z A-Z 0-9 _ -"),
]
CatalogName = Annotated[
    str, matching(_CATALOG, "the name of a catalog in platform.source_catalogs: characters a-z A-Z 0-9 _")
]
BranchName = Annotated[str, matching(r"[A-Za-z0-9._-]{1,250}", "the name of a branch: characters a-z A-Z 0-9 . _ -")]
TablePattern = Annotated[
    str,
    matching(
        rf"{_CATALOG}(?:\.{_PART}){{1,3}}\.(?:{_PART}\*?|\*)",
        "catalog.namespace.name of a table, or of several with * at the end",
    ),
]


class TableSource(Model):
    """A topic that is read from a table that a sink fills, snapshot by snapshot."""

    name: SourceTableName = Field(description="The table, as namespace.name in its catalog. It is only read.")
    catalog: CatalogName | None = Field(
        default=None, description="Which of platform.source_catalogs has it; null is the platform's own catalog."
    )
    columns: Columns = Field(description="Which of its columns hold what, as of an adopted table.")
    on_change: Literal["fail", "continue"] = Field(
        default="fail",
        description="What a read does where snapshots have removed or changed records, or have gone before they were "
        "read: fail, or continue behind them, with what was passed over in the evidence and an alert.",
    )
    branch: BranchName = Field(default=MAIN, description="The branch of the table that is read.")

    @model_validator(mode="after")
    def _require_offsets(self) -> TableSource:
        """Refuses a source whose records have no offsets: a topic's own table needs them."""
        if not self.columns.has_offsets:
            needed = "a mapping with partition and offset: a table with `order` can only be adopted"
            raise cross_field_error("columns.order", self.columns.order, needed)
        return self

    @property
    def in_own_catalog(self) -> bool:
        """Returns whether the platform's own catalog has the table."""
        return self.catalog is None

    def named_in(self, own_catalog: str) -> str:
        """Returns the table's name with its catalog's before it. `own_catalog`: the name of the platform's."""
        return f"{self.catalog or own_catalog}.{self.name}"


def may_be_read(name: str, patterns: tuple[str, ...]) -> bool:
    """Returns whether a table is one of those that topics may read: by its name, or by its beginning before a *."""
    return any(name == p or (p.endswith("*") and name.startswith(p[:-1])) for p in patterns)

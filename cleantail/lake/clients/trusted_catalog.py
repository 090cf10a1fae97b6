"""The one place where PyIceberg's catalogs are opened: what a table's metadata say is data to them.

PyIceberg opens the files of a table by the properties of the catalog, and over them those of the table. There
`py-io-impl` names a callable, which is called with the login of the catalog and of the store, and `s3.endpoint` names
the server that gets signed requests. Whoever writes a table could so run code, or get the keys. Therefore:

1. A FileIO is built from the properties of the catalog alone, and with a REST catalog also from what its server sends
   with the table: configuration and credentials of the store.
2. The server names no code: what it says of that is dropped, and what the platform says of it stays.
3. A table whose properties name code that a writer would load is committed by no catalog (`require_data_alone`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cleantail.config.platform_configs import LimitConfigs
from cleantail.errors import TableError
from cleantail.human import one_line
from cleantail.lake.clients.bounded_reads import bound_reads, bounded_response

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

NAMES_CODE = re.compile(
    r"(.*[-_.])?impl"
    r"|(write|read|parquet|orc|mapred|mapreduce)\.(.*[-.])?(class|factory|codecs)"
    r"|(fs|dfs|hadoop|io\.compression|io\.serializations?|parquet\.(crypto|encryption))(\..*)?",
    re.IGNORECASE | re.ASCII | re.DOTALL,
)
"""Names of properties by which a writer loads a class, or finds files and logins: those of PyIceberg and Iceberg, and
those of Hadoop. Iceberg's writers of Parquet and ORC copy a table's properties into Hadoop's configuration."""
_OF_PLATFORM = re.compile(r"py-.*|(auth|ssl)(\..*)?|botocore_session|" + NAMES_CODE.pattern, NAMES_CODE.flags)
"""Names that a REST catalog's server may not give a value: its `auth` would name a class as well."""


def opened(name: str, properties: Mapping[str, Any], limits: LimitConfigs) -> Catalog:
    """Opens a catalog by PyIceberg, which reads no more of a table's metadata than the limits. Raises whatever its
    driver raises."""
    bound_reads(limits)
    from pyiceberg.catalog import _ENV_CONFIG, load_catalog

    if properties.get("type") == "rest":  # its server is asked while it is opened
        from pyiceberg.catalog.rest import RestCatalog
        from pyiceberg.utils.config import merge_config

        configured: Any = merge_config(_ENV_CONFIG.get_catalog_config(name) or {}, dict(properties))
        return _trusted(RestCatalog)(name, **configured)
    catalog = load_catalog(name, **properties)
    catalog.__class__ = _trusted(type(catalog))
    return catalog


def require_data_alone(table: str, names: Iterable[str]) -> None:
    """Raises TableError where one of the table's properties names code, or a store, to whoever writes the table."""
    if named := sorted(name for name in names if NAMES_CODE.fullmatch(name)):
        raise TableError(
            f"table {table} has the property {one_line(named[0])}, which names code or a store for its writers: "
            f"Cleantail takes neither from a table; nothing was changed. Take it out: "
            f"ALTER TABLE … UNSET TBLPROPERTIES"
        )


@lru_cache
def _trusted(kind: type[Catalog]) -> type[Catalog]:
    """Returns a catalog of that kind which gives a FileIO nothing that a table says."""

    class Trusted(kind):  # type: ignore[misc, valid-type]
        properties: dict[str, Any]

        def _load_file_io(self, properties: object = None, location: str | None = None) -> Any:
            return super()._load_file_io({}, location)

        def _fetch_config(self) -> None:
            own = dict(self.properties)
            super()._fetch_config()
            theirs = {k: v for k, v in self.properties.items() if not _OF_PLATFORM.fullmatch(k)}
            self.properties = theirs | {k: v for k, v in own.items() if _OF_PLATFORM.fullmatch(k)}

        def _create_session(self) -> Any:
            session = super()._create_session()
            session.hooks["response"].insert(0, bounded_response)
            return session

        def _response_to_table(self, identifier: Any, response: Any) -> Any:
            table = super()._response_to_table(identifier, response)
            table.io = self._vended(response)
            return table

        def _response_to_staged_table(self, identifier: Any, response: Any) -> Any:
            table = super()._response_to_staged_table(identifier, response)
            table.io = self._vended(response)
            return table

        def _vended(self, response: Any) -> Any:
            """Returns a FileIO of what the server of a REST catalog sends with a table. Credentials of a folder win."""
            location = response.metadata_location
            credentials = self._resolve_storage_credentials(response.storage_credentials, location)
            sent = {k: v for k, v in {**response.config, **credentials}.items() if not _OF_PLATFORM.fullmatch(k)}
            return super()._load_file_io(sent, location)

        def _update_and_stage_table(self, current_table: Any, *arguments: Any, **named: Any) -> Any:
            if current_table is not None:
                require_data_alone(".".join(current_table.name()), current_table.metadata.properties)
            return super()._update_and_stage_table(current_table, *arguments, **named)

    Trusted.__name__, Trusted.__qualname__, Trusted.__module__ = kind.__name__, kind.__qualname__, kind.__module__
    return Trusted

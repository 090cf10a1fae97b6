"""The login of the catalog in an Airflow connection: what the environment does not have of it is put there.

The variables are those of the environment (docs/catalogs.md), and what opens the catalog reads them there, in this
process and in the Spark driver that it starts. Nothing of it is logged, and nothing goes onto a command line.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from typing import Any

from airflow.sdk import BaseHook

from cleantail.config.platform import Platform
from cleantail.errors import CleantailError
from cleantail.lake.clients.client_properties import (
    CATALOG_CREDENTIAL,
    CATALOG_PASSWORD,
    CATALOG_TOKEN,
    CATALOG_USER,
    secret_variables,
)
from cleantail_airflow.airflow_exceptions import AirflowNotFoundException

_given: dict[str, str] = {}
"""What this process has put into its environment before: it is replaced when the connection has changed."""


def with_login(platform: Platform, env: MutableMapping[str, str] | None = None) -> None:
    """Puts into the environment what the connection has and the environment lacks. Raises CleantailError where the
    configuration names a connection that is not there."""
    target = os.environ if env is None else env
    if platform.catalog.connection is None:
        return
    try:
        connection = BaseHook.get_connection(platform.catalog.connection)
    except AirflowNotFoundException:
        raise CleantailError(
            f"there is no Airflow connection {platform.catalog.connection}, which platform.catalog.connection names"
        ) from None
    extra = {key: value for key, value in connection.extra_dejson.items() if isinstance(value, str)}
    for name, value in variables_of(platform, connection.login, connection.password, extra).items():
        if target.get(name) in (None, "", _given.get(name)):
            target[name] = _given[name] = value


def variables_of(platform: Platform, login: str | None, password: str | None, extra: dict[str, Any]) -> dict[str, str]:
    """Returns variable -> value: of login and password, and of those keys of the extra that are secrets of this
    catalog."""
    by_property = secret_variables(platform)
    found = {by_property[key]: value for key, value in extra.items() if key in by_property}
    if platform.catalog.type == "rest" and password:
        return {CATALOG_CREDENTIAL: f"{login}:{password}"} | found if login else {CATALOG_TOKEN: password} | found
    if platform.catalog.type in ("postgres", "mysql") and login:
        return {CATALOG_USER: login, CATALOG_PASSWORD: password or ""} | found
    return found

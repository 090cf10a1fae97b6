"""Set missing environment variables of the catalog's login from an Airflow connection.

docs/catalogs.md lists the variables. This process and its Spark driver read them when they open the catalog. The login
is never logged and never on a command line.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, MutableMapping
from typing import Any

from airflow.sdk import BaseHook, Connection

from cleantail.config.platform import Platform
from cleantail.erasure.erased_keys import ERASURE_KEY
from cleantail.errors import CleantailError
from cleantail.home.driver_process import CERTIFICATE_KEY
from cleantail.lake.client_properties import secret_variables
from cleantail_airflow.airflow_exceptions import AirflowNotFoundException

logger = logging.getLogger("cleantail.login")
_logins_put: dict[str, str] = {}
"""The variables that this process has set. A changed connection replaces them."""


def with_login(platform: Platform, env: MutableMapping[str, str] | None = None) -> None:
    """Set missing login variables of the platform's catalog, of catalogs that topics may read, and of erasures.

    Raises CleantailError if the platform's own catalog names a missing connection. For another catalog this is only a
    warning, because only the topics that read from it fail.
    """
    target = os.environ if env is None else env
    _put_erasure_keys(platform, target)
    _put_login(platform, "platform.catalog", target)
    for name in platform.source_catalogs:
        try:
            _put_login(platform.reading(name), f"platform.source_catalogs.{name}", target)
        except CleantailError as e:
            logger.warning("%s", e)


def _put_login(platform: Platform, key: str, target: MutableMapping[str, str]) -> None:
    if platform.catalog.connection is None:
        return
    connection = _connection(platform.catalog.connection, f"{key}.connection")
    extra = {key: value for key, value in connection.extra_dejson.items() if isinstance(value, str)}
    _put(variables_of(platform, connection.login, connection.password, extra), target)


def _put_erasure_keys(platform: Platform, target: MutableMapping[str, str]) -> None:
    if platform.erasure_connection is None:
        return
    connection = _connection(platform.erasure_connection, "platform.erasure_connection")
    keys = {ERASURE_KEY: connection.password, CERTIFICATE_KEY: connection.extra_dejson.get("certificate_key")}
    _put({name: value for name, value in keys.items() if isinstance(value, str) and value}, target)


def _connection(name: str, key: str) -> Connection:
    try:
        return BaseHook.get_connection(name)
    except AirflowNotFoundException:
        raise CleantailError(f"Airflow has no connection {name}, which {key} names") from None


def _put(variables: Mapping[str, str], target: MutableMapping[str, str]) -> None:
    for name, value in variables.items():
        if target.get(name) in (None, "", _logins_put.get(name)):
            target[name] = _logins_put[name] = value


def variables_of(platform: Platform, login: str | None, password: str | None, extra: dict[str, Any]) -> dict[str, str]:
    """Return variable -> value: from login and password, and from the extra's keys that are secrets of this catalog."""
    by_property = secret_variables(platform)
    properties = _login_properties(platform.catalog.type, login, password) | extra
    return {by_property[key]: value for key, value in properties.items() if key in by_property}


def _login_properties(catalog_type: str, login: str | None, password: str | None) -> dict[str, str]:
    if catalog_type == "rest" and password:
        return {"credential": f"{login}:{password}"} if login else {"token": password}
    if catalog_type in ("postgres", "mysql") and login:
        return {"jdbc.user": login, "jdbc.password": password or ""}
    return {}

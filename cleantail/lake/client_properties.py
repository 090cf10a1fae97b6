"""Properties of one catalog for Spark's Iceberg catalog and for PyIceberg, with secrets kept separate. Pure.

A catalog that is only read (platform.source_catalogs) gets no login except those that it names itself. Neither client
creates or alters database tables for such a catalog.

`spark_catalog` may travel on a command line and holds no secret. `secret_variables` maps each property to its
environment variable. The process that opens the catalog adds the values.

Iceberg's Java library and PyIceberg call some properties of catalogs and stores by different names:

1. Most properties have one name in both (s3.endpoint, oauth2-server-uri, scope, glue.id, header.…). Each client gets
   them as they are written.
2. A property in NAMES may be written by either name. The other client gets it under its own name, with the value
   converted. If both names are written, each client gets the value of its own name.
3. A property that only one client supports (py-io-impl, jdbc.…) goes to that client alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from cleantail.config.catalog import SourceCatalog
from cleantail.config.platform import Platform

Convert = Callable[[str], str]


def _same(value: str) -> str:
    return value


def _opposite(value: str) -> str:
    return "false" if value.strip().lower() == "true" else "true"


def _seconds(milliseconds: str) -> str:
    return f"{float(milliseconds) / 1000:g}"


def _milliseconds(seconds: str) -> str:
    return f"{float(seconds) * 1000:.0f}"


@dataclass(frozen=True, slots=True)
class PropertyName:
    """One row of NAMES: a property's name in Java and in PyIceberg, and how its value is converted.

    `note` describes the conversion in the documentation.
    """

    java: str
    pyiceberg: str
    to_pyiceberg: Convert = _same
    to_java: Convert = _same
    note: str = "the same"


NAMES = (
    PropertyName("client.region", "s3.region"),
    PropertyName("client.region", "glue.region"),
    PropertyName("s3.path-style-access", "s3.force-virtual-addressing", _opposite, _opposite, "the opposite"),
    PropertyName("client.assume-role.arn", "client.role-arn"),
    PropertyName("client.assume-role.session-name", "client.role-session-name"),
    PropertyName("http-client.proxy-endpoint", "s3.proxy-uri"),
    PropertyName("http-client.apache.connection-timeout-ms", "s3.connect-timeout", _seconds, _milliseconds, "ms, s"),
    PropertyName("http-client.apache.socket-timeout-ms", "s3.request-timeout", _seconds, _milliseconds, "ms, s"),
)
"""Every known property that both clients have under different names."""
_IMPLIED_BY_JAVA = {"rest.auth.type": {"sigv4": {"rest.sigv4-enabled": "true"}}}
_IMPLIED_BY_PYICEBERG = {"rest.sigv4-enabled": {"true": {"rest.auth.type": "sigv4"}}}
"""Name -> value -> properties for the other client, for names without a counterpart."""
JAVA_ONLY = ("io-impl", "cache-enabled", "clients", "jdbc.", "io.manifest.", "lock.", "lock-impl")
"""Names and prefixes that PyIceberg does not use: Java's classes, caches and connections."""
PYICEBERG_ONLY = (
    "py-io-impl",
    "pool_pre_ping",
    "echo",
    "init_catalog_tables",
    "downcast-ns-timestamp-to-us-on-write",
    "glue.max-retries",
    "glue.retry-mode",
)


def of_java(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties under the names that Spark's Iceberg catalog uses."""
    translated = {row.java: row.to_java(properties[row.pyiceberg]) for row in NAMES if row.pyiceberg in properties}
    theirs = {row.pyiceberg for row in NAMES}
    untranslated = {k: v for k, v in properties.items() if k not in theirs and not _begins(k, PYICEBERG_ONLY)}
    return translated | _implied(_IMPLIED_BY_PYICEBERG, properties) | untranslated


def of_pyiceberg(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties under PyIceberg's names. client.region stays, because Glue's client reads it."""
    translated = {row.pyiceberg: row.to_pyiceberg(properties[row.java]) for row in NAMES if row.java in properties}
    theirs = {row.java for row in NAMES} - {"client.region"}
    untranslated = {k: v for k, v in properties.items() if k not in theirs and not _begins(k, JAVA_ONLY)}
    return translated | _implied(_IMPLIED_BY_JAVA, properties) | untranslated


def _implied(table: Mapping[str, Mapping[str, Mapping[str, str]]], properties: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for key, by_value in table.items()
        for name, value in by_value.get(properties.get(key, ""), {}).items()
    }


def _begins(name: str, names: tuple[str, ...]) -> bool:
    return any(name == one or (one.endswith(".") and name.startswith(one)) for one in names)


CATALOG_USER = "CLEANTAIL_CATALOG_USER"
CATALOG_PASSWORD = "CLEANTAIL_CATALOG_PASSWORD"
CATALOG_TOKEN = "CLEANTAIL_CATALOG_TOKEN"
"""For a REST catalog: the bearer token that every request carries."""
CATALOG_CREDENTIAL = "CLEANTAIL_CATALOG_CREDENTIAL"
"""For a REST catalog: client id and secret (`id:secret`), exchanged for a token (OAuth2)."""
S3_ACCESS_KEY = "CLEANTAIL_S3_ACCESS_KEY_ID"
S3_SECRET_KEY = "CLEANTAIL_S3_SECRET_ACCESS_KEY"
S3_SESSION_TOKEN = "CLEANTAIL_S3_SESSION_TOKEN"
"""For temporary credentials of the store."""

LOCK_WAIT_S = 30
"""How long a client waits for SQLite's lock. The defaults (3 s and 5 s) are shorter than a busy commit."""
DELEGATION = "header.X-Iceberg-Access-Delegation"
"""Requests credentials of the store with each table from a REST catalog.

PyIceberg sends this header by default; Java's client does not. A catalog without such credentials leaves them out.
"""
SILENCE = "rest.client.socket-timeout-ms"
"""How long both clients wait for an answer of a REST catalog. By default, they wait for ever. After a longer wait a
commit may have been taken, and the next load shows it."""
MARGIN_S = 10
"""How many seconds before its expiry a token is renewed."""
_SERVICES = {
    "rest": {"type": "rest", DELEGATION: "vended-credentials", SILENCE: "60000"},
    "glue": {"type": "glue"},
    "hive": {"type": "hive"},
}
"""Settings that both clients share, for catalogs that are not databases."""
_DATABASES = {"postgres": ("60", "connect_timeout=60"), "mysql": ("60000", "connect_timeout=60&read_timeout=60")}
"""Database -> how long its clients wait for an answer: jdbc.socketTimeout, and the query of the address for SQLAlchemy.
psycopg2 has such a limit only for the login."""
_PY_DRIVERS = {"postgresql": "postgresql+psycopg2", "mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql"}
"""SQLAlchemy's name of a database, together with its driver."""


def spark_catalog(platform: Platform) -> dict[str, str]:
    """Return the properties of Spark's catalog, without the prefix `spark.sql.catalog.NAME.`."""
    catalog = platform.catalog
    # with a version, the client upgrades an older database; a catalog that is only read must not change
    version = {} if isinstance(catalog, SourceCatalog) else {"jdbc.schema-version": "V1"}
    if catalog.type == "sqlite":
        path = platform.catalog_uri.removeprefix("sqlite:///")
        kind = {"type": "jdbc", "uri": f"jdbc:sqlite:{path}?busy_timeout={LOCK_WAIT_S * 1000}", **version}
    elif catalog.type in _DATABASES:
        patience = {"jdbc.socketTimeout": _DATABASES[catalog.type][0]}
        kind = {"type": "jdbc", "uri": f"jdbc:{_plain(catalog.uri)}", **patience, **version}
    else:
        kind = _SERVICES[catalog.type] | ({"uri": catalog.uri} if catalog.uri else {})
    # cache-enabled=false: a cached table hides the commits of other processes, so its next delete may fail
    shared = {**_warehouse(platform), "cache-enabled": "false"}
    return {**kind, **shared, **of_java(catalog.properties)}


def pyiceberg_properties(platform: Platform) -> dict[str, str]:
    """Return the properties of the same catalog for PyIceberg's load_catalog, with its secrets."""
    catalog = platform.catalog
    # a database that was restarted may have closed the connection
    ping = {"pool_pre_ping": "true"} if catalog.type in _DATABASES else {}
    if catalog.type == "sqlite" or catalog.type in _DATABASES:
        as_it_is = {"init_catalog_tables": "false"} if isinstance(catalog, SourceCatalog) else {}
        kind = {"type": "sql", "uri": _sql_uri(platform), **ping, **as_it_is}
    else:
        kind = _SERVICES[catalog.type] | ({"uri": catalog.uri} if catalog.uri else {})
    secrets = {k: v for k, v in secret_properties(platform).items() if not k.startswith("jdbc.")}
    return {**kind, **_warehouse(platform), **of_pyiceberg({**catalog.properties, **secrets})}


def with_renewed_tokens(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return properties that make PyIceberg renew its token before it expires, as Java's client does.

    With the credential alone, PyIceberg requests only one token. Unchanged if the token's address is unknown.
    """
    client, colon, secret = properties.get("credential", "").partition(":")
    token_url = properties.get("oauth2-server-uri")
    if not (colon and token_url) or properties.get("token"):
        return dict(properties)
    login = {"client_id": client, "client_secret": secret, "token_url": token_url, "refresh_margin": MARGIN_S}
    login |= {"scope": properties.get("scope", "catalog")}
    kept = {k: v for k, v in properties.items() if k not in ("credential", "oauth2-server-uri", "scope")}
    return {**kept, "auth": {"type": "oauth2", "oauth2": login}}


def spark_secrets(platform: Platform) -> dict[str, str]:
    """Return the secrets of Spark's catalog, without the prefix `spark.sql.catalog.NAME.`. For the driver only."""
    return of_java(secret_properties(platform))


def secret_properties(platform: Platform) -> dict[str, str]:
    return {
        name: platform.env[variable]
        for name, variable in secret_variables(platform).items()
        if platform.env.get(variable)
    }


def secret_variables(platform: Platform) -> dict[str, str]:
    """Return property -> environment variable with its value.

    These are the variables of every platform of this type, and those that platform.catalog.secrets names. A catalog
    that is only read gets the latter alone: the platform's own login is not for its server.
    """
    if isinstance(platform.catalog, SourceCatalog):
        return dict(platform.catalog.secrets)
    kind = platform.catalog.type
    store = {
        "s3.access-key-id": S3_ACCESS_KEY,
        "s3.secret-access-key": S3_SECRET_KEY,
        "s3.session-token": S3_SESSION_TOKEN,
    }
    login = {"jdbc.user": CATALOG_USER, "jdbc.password": CATALOG_PASSWORD} if kind in _DATABASES else {}
    rest = {"token": CATALOG_TOKEN, "credential": CATALOG_CREDENTIAL} if kind == "rest" else {}
    return {**store, **login, **rest, **platform.catalog.secrets}


def _warehouse(platform: Platform) -> dict[str, str]:
    return {"warehouse": platform.warehouse} if platform.warehouse else {}


def _plain(uri: str | None) -> str:
    """Return the address as JDBC writes it (postgresql://…), without the driver that SQLAlchemy reads in it."""
    scheme, _, rest = (uri or "").partition("://")
    return f"{scheme.split('+')[0]}://{rest}"


def _sql_uri(platform: Platform) -> str:
    """Return the database's address for SQLAlchemy, with user and password if it is a server.

    The address is never shown, so its parts need only quoting.
    """
    if platform.catalog.type == "sqlite":
        return f"{platform.catalog_uri}?timeout={LOCK_WAIT_S}"
    scheme, _, rest = _plain(platform.catalog.uri).partition("://")
    limit = ("&" if "?" in rest else "?") + _DATABASES[platform.catalog.type][1]
    secrets = secret_properties(platform)
    user, password = secrets.get("jdbc.user"), secrets.get("jdbc.password")
    login = f"{quote(user, safe='')}:{quote(password or '', safe='')}@" if user else ""
    return f"{_PY_DRIVERS[scheme]}://{login}{rest}{'' if 'connect_timeout' in rest else limit}"

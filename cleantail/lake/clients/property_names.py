"""The properties of catalogs and stores that Iceberg's Java library and PyIceberg call by different names. Pure.

1. Most properties have one name in both (s3.endpoint, oauth2-server-uri, scope, glue.id, header.…): each client gets
   them as they are written.
2. One that stands in the table is written by either name, and goes to the other client by that one's, with its value
   as that one takes it. Where both names are written, each client has what was written for it.
3. What only one of them knows (py-io-impl, jdbc.…) goes to it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

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
    """Describes one row: what a property is called in Java and in PyIceberg, and how a value goes from the one to the
    other, which `note` says to people."""

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
"""Every property of which it is known that the two clients call it otherwise, and that both have."""
_IMPLIED_BY_JAVA = {"rest.auth.type": {"sigv4": {"rest.sigv4-enabled": "true"}}}
_IMPLIED_BY_PYICEBERG = {"rest.sigv4-enabled": {"true": {"rest.auth.type": "sigv4"}}}
"""Name -> value -> what the other client is told instead, where no name stands for the other."""
JAVA_ONLY = ("io-impl", "cache-enabled", "clients", "jdbc.", "io.manifest.", "lock.", "lock-impl")
"""Names and beginnings of names that say nothing to PyIceberg: classes of Java, its caches and its connections."""
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
    """Returns the properties as Spark's Iceberg catalog is told them."""
    translated = {row.java: row.to_java(properties[row.pyiceberg]) for row in NAMES if row.pyiceberg in properties}
    theirs = {row.pyiceberg for row in NAMES}
    untranslated = {k: v for k, v in properties.items() if k not in theirs and not _begins(k, PYICEBERG_ONLY)}
    return translated | _implied(_IMPLIED_BY_PYICEBERG, properties) | untranslated


def of_pyiceberg(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties as PyIceberg is told them. It knows client.region as well, of which Glue's client reads
    its region."""
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

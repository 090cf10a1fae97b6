"""Small documents between an Airflow task and a remote Spark driver: the request and the report.

The documents are under platform.spark.exchange, which both sides reach with the store's login. All tries of a task
share one folder, so a retry reads the report of the previous driver. Documents have numbers and names, no records and
no secrets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cleantail.codec import FORMAT, digest_of, require_format
from cleantail.config.platform import Platform
from cleantail.lake.client_properties import pyiceberg_properties

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

OF_FILES = ("s3.", "client.", "gcs.", "adls.", "hdfs.", "hf.", "buffer-size", "DEFAULT_")
"""Prefixes of the properties with which PyIceberg opens files."""


def is_address(text: str) -> bool:
    """Return whether a document's place is an address in a store. Otherwise it is a local path."""
    return "://" in text


def folder_of(exchange: str, identity: Sequence[object]) -> str:
    """Return the folder of one task. All its tries share it."""
    return f"{exchange.rstrip('/')}/{digest_of(map(str, identity))}"


def file_io(platform: Platform, address: str) -> FileIO:
    """Return the file IO for an address in a store, with the store's login."""
    from pyiceberg.io import load_file_io

    return load_file_io({k: v for k, v in pyiceberg_properties(platform).items() if k.startswith(OF_FILES)}, address)


def write_document(platform: Platform, address: str, text: str) -> None:
    with file_io(platform, address).new_output(address).create(overwrite=True) as stream:
        stream.write(text.encode())


def read_document(platform: Platform, address: str) -> str | None:
    """Return a document, or None if it does not exist."""
    try:
        with file_io(platform, address).new_input(address).open() as stream:
            return stream.read().decode()
    except FileNotFoundError:
        return None


def write_numbered(platform: Platform, address: str, document: Mapping[str, Any]) -> None:
    """Write a JSON document with the number of its format: Airflow and the driver may have different versions."""
    write_document(platform, address, json.dumps({"format": FORMAT, **document}))


def read_numbered(platform: Platform, address: str) -> dict[str, Any] | None:
    """Return a document of write_numbered. None if it does not exist, or is not a whole JSON object.

    Raises TableError for an unknown format."""
    try:
        document = json.loads(read_document(platform, address) or "")
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    require_format(address, "format", document.get("format"))
    return document


def remove_document(platform: Platform, address: str) -> None:
    io = file_io(platform, address)
    if io.new_input(address).exists():
        io.delete(address)

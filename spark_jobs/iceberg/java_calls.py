"""Call Java: static members by the full name of their class, elements of collections, and objects as JSON.

One call for each key of a map, or for each field of a file, would mean thousands of calls. Iceberg has no public parser
for a single data or delete file. Workaround: wrap the file in a dummy `FileScanTask`, for which Iceberg has a parser.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

from py4j.java_collections import JavaList
from py4j.java_gateway import JavaClass

from spark_jobs.iceberg.file_facts import FileFacts, facts_of_file


def static(jvm: Any, class_name: str, name: str) -> Any:
    """Return a static method of a class, or the value of a constant.

    `jvm`: the JVM of a session, or any of its objects. `class_name` is the full name: `jvm.org.apache…` would make the
    JVM search every jar for each package first. Raises Py4JError if the class or member does not exist.
    """
    return getattr(JavaClass(class_name, jvm._gateway_client), name)


RELOCATED = "org.apache.iceberg.relocated.com.google.common"
"""Iceberg's own copy of Guava."""
LISTS = f"{RELOCATED}.collect.Lists"


def each(iterable: Any) -> Iterator[Any]:
    """Yield the elements of a Java collection or Iterable. Python's own loop over them ends with an exception in the
    JVM, which takes tens of milliseconds."""
    is_list = isinstance(iterable, JavaList)
    elements = iterable if is_list else static(iterable, LISTS, "newArrayList")(iterable)
    for number in range(elements.size()):
        yield elements.get(number)


def entries(java_map: Any) -> dict[Any, Any]:
    """Return a small Java map as a dict. As in `each`, Python's own loop over it would end with an exception."""
    return {key: java_map.get(key) for key in each(java_map.keySet())}


ICEBERG = "org.apache.iceberg"
JACKSON = "com.fasterxml.jackson.databind.ObjectMapper"
"""Writes any map as JSON. Spark includes it."""
Described = Mapping[str, Any]
"""A data or delete file in Iceberg's JSON."""
FILES_AT_ONCE = 50
"""Maximum number of descriptions that are sent to the JVM as texts at a time."""
NO_FILE = {"content": "data", "file-path": "", "file-format": "parquet", "file-size-in-bytes": 0, "record-count": 0}
"""Data file of a dummy task that only has delete files."""


def texts(java_map: Any) -> dict[str, str]:
    """Return a Java map of texts, such as properties or a summary, as a dict, in one call of the JVM."""
    mapping: dict[str, str] = json.loads(_writer(java_map._gateway_client).writeValueAsString(java_map))
    return mapping


@cache
def _writer(client: Any) -> Any:
    """Return the JSON writer of a JVM, which is created once for each JVM."""
    return JavaClass(JACKSON, client)()


def schema_json(schema: Any) -> str:
    return str(static(schema, f"{ICEBERG}.SchemaParser", "toJson")(schema))


def described_file(jvm: Any, table: Any, file: Any) -> FileFacts:
    """Return the facts of a data or delete file in Iceberg's metadata."""
    to_json = static(jvm, f"{ICEBERG}.ContentFileParser", "toJson")
    return facts_of_file(to_json(file, table.specs().get(file.specId())))


class DescribedFiles:
    """Makes Iceberg's objects for the files of one table and one partition spec."""

    def __init__(self, jvm: Any, table: Any, spec_id: int) -> None:
        self._jvm, self._table, self._spec_id = jvm, table, spec_id

    def data_files(self, described: Iterable[Described]) -> list[Any]:
        """Return Iceberg's objects, made in portions: each text contains the whole schema."""
        files, made = list(described), list[Any]()
        for first in range(0, len(files), FILES_AT_ONCE):
            texts = [self._task(file, ()) for file in files[first : first + FILES_AT_ONCE]]
            made += [self._from_json(text, True).file() for text in texts]
        return made

    def delete_files(self, files: Sequence[FileFacts]) -> list[Any]:
        """Return Iceberg's objects, made by one parse."""
        if not files:
            return []
        task = self._task(NO_FILE | {"partition": files[0].partition}, [file.as_delete_json() for file in files])
        return list(each(self._from_json(task, True).deletes()))

    @property
    def _from_json(self) -> Any:
        return static(self._jvm, f"{ICEBERG}.ScanTaskParser", "fromJson")

    def _task(self, data_file: Described, deletes: Iterable[Described]) -> str:
        described = {"spec-id": self._spec_id, **data_file}
        return json.dumps(self._scan | {"data-file": described, "delete-files": list(deletes)})

    @cached_property
    def _scan(self) -> dict[str, Any]:
        spec = self._table.specs().get(self._spec_id)
        return {
            "task-type": "file-scan-task",
            "schema": json.loads(schema_json(self._table.schema())),
            "spec": json.loads(static(self._jvm, f"{ICEBERG}.PartitionSpecParser", "toJson")(spec)),
            "start": 0,
            "length": 0,
            "residual-filter": True,
        }

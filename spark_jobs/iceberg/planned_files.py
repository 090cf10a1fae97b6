"""The data files of a snapshot as a scan plans them, each with its delete files and what Iceberg's metadata say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import UnsupportedOperationException

from cleantail.errors import TableError
from spark_jobs.iceberg.few_records import FileSize
from spark_jobs.iceberg.jvm.java_collections import PORTION, each
from spark_jobs.iceberg.jvm.manifest_threads import scanning
from spark_jobs.iceberg.jvm.many_calls import answers, ask, facts_of
from spark_jobs.iceberg.jvm.static_members import static

UNKNOWN_TYPE = "Type: unknown"
"""What Iceberg says of a partition field whose source column was dropped."""
REPARTITION = (
    "Iceberg writes them anew by the present columns: CALL system.rewrite_data_files(table => …, options => "
    "map('rewrite-all', 'true'))"
)


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """Describes a data file of a snapshot and its delete files: Iceberg's own object for them, and what its metadata
    say, as Iceberg writes it in JSON. One call for a file, where asking for each number takes thirty.
    `sequence_numbers`: that of its data, and that of the file, which the JSON does not have."""

    task: Any
    data_file: Mapping[str, Any]
    delete_files: Sequence[Mapping[str, Any]]
    sequence_numbers: tuple[Any, Any]

    @property
    def path(self) -> str:
        return str(self.data_file["file-path"])

    @property
    def arrived(self) -> int:
        """Returns the data sequence number."""
        return int(self.sequence_numbers[0])

    @property
    def updated(self) -> int:
        """Returns the file sequence number, which records inherit as that of their last change."""
        return int(self.sequence_numbers[1])

    @property
    def bounds(self) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """Returns the lower and the upper bounds of the columns, by field id."""
        lower, upper = self.counts("lower-bounds"), self.counts("upper-bounds")
        return ({n: bytes.fromhex(b) for n, b in lower.items()}, {n: bytes.fromhex(b) for n, b in upper.items()})

    @property
    def size(self) -> FileSize:
        return int(self.data_file["record-count"]), int(self.data_file["file-size-in-bytes"])

    def counts(self, name: str) -> dict[int, Any]:
        """Returns a mapping by field id, such as null-value-counts or lower-bounds; empty where there is none."""
        pairs = self.data_file.get(name) or {"keys": (), "values": ()}
        return dict(zip(pairs["keys"], pairs["values"], strict=True))


def planned_files(table: Any, jvm: Any, snapshot_id: int) -> list[PlannedFile]:
    """Returns the data files of a snapshot, each with its delete files. Raises TableError where a file is partitioned
    by a column that the table has no more."""
    to_json = static(jvm, "org.apache.iceberg.ScanTaskParser", "toJson")
    tasks = scanning(table).useSnapshot(snapshot_id).includeColumnStats().planFiles()
    try:
        each_task = list(each(tasks))
        portions = (each_task[first : first + PORTION] for first in range(0, len(each_task), PORTION))
        return [planned for portion in portions for planned in _planned(to_json, portion)]
    except UnsupportedOperationException as e:
        if UNKNOWN_TYPE not in str(e):
            raise
        raise TableError(f"{table.name()} has files that are partitioned by a dropped column. {REPARTITION}") from None
    finally:
        tasks.close()


def _planned(to_json: Any, tasks: Sequence[Any]) -> Iterator[PlannedFile]:
    """Yields the files of a portion of tasks."""
    told = answers((to_json, (task,)) for task in tasks)
    numbers = facts_of(ask(tasks, "file"), "dataSequenceNumber", "fileSequenceNumber")
    for task, text, (of_data, of_file) in zip(tasks, told, numbers, strict=True):
        described = json.loads(text)
        yield PlannedFile(task, described["data-file"], described.get("delete-files", ()), (of_data, of_file))


def by_path(files: Iterable[PlannedFile]) -> dict[str, list[PlannedFile]]:
    """Returns the registrations of each file by its name: one, unless a sink has registered it again."""
    registrations: dict[str, list[PlannedFile]] = {}
    for file in files:
        registrations.setdefault(file.path, []).append(file)
    return registrations

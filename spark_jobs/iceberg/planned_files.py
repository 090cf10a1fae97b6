"""The data files of a snapshot as a scan plans them, each with its delete files and what Iceberg's metadata say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import UnsupportedOperationException

from cleantail.errors import TableError
from spark_jobs.iceberg.few_records import FileSize
from spark_jobs.iceberg.jvm.file_facts import FileFacts, facts_of_task
from spark_jobs.iceberg.jvm.java_collections import PORTION, each
from spark_jobs.iceberg.jvm.manifest_threads import scanning
from spark_jobs.iceberg.jvm.many_calls import answers, ask, facts_of
from spark_jobs.iceberg.jvm.static_members import static
from spark_jobs.iceberg.log_files import Deletes

UNKNOWN_TYPE = "Type: unknown"
"""What Iceberg says of a partition field whose source column was dropped."""
REPARTITION = (
    "Iceberg writes them anew by the present columns: CALL system.rewrite_data_files(table => …, options => "
    "map('rewrite-all', 'true'))"
)


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """Describes a data file of a snapshot and its delete files: Iceberg's own object for them, and what its metadata
    say, which Iceberg writes in JSON: one call for a file, where asking for each number takes thirty.
    `sequence_numbers`: that of its data, and that of the file, which the JSON does not have."""

    task: Any
    facts: FileFacts
    delete_files: Deletes
    sequence_numbers: tuple[Any, Any]

    @property
    def path(self) -> str:
        return self.facts.path

    @property
    def arrived(self) -> int:
        """Returns the data sequence number."""
        return int(self.sequence_numbers[0])

    @property
    def updated(self) -> int:
        """Returns the file sequence number, which records inherit as that of their last change."""
        return int(self.sequence_numbers[1])

    @property
    def size(self) -> FileSize:
        return self.facts.records, self.facts.size_bytes


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
        facts, deletes = facts_of_task(text)
        yield PlannedFile(task, facts, deletes, (of_data, of_file))


def by_path(files: Iterable[PlannedFile]) -> dict[str, list[PlannedFile]]:
    """Returns the registrations of each file by its name: one, unless a sink has registered it again."""
    registrations: dict[str, list[PlannedFile]] = {}
    for file in files:
        registrations.setdefault(file.path, []).append(file)
    return registrations

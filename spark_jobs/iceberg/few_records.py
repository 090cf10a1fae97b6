"""Says where records are so few that one task of Spark goes through all of them sooner than several share them out.

1. Iceberg gives a task files of 128 MiB together, and reckons each as 4 MiB at least: opening one takes time as well
   (`read.split.target-size` and `read.split.open-file-cost`). Records of more files are not few.
2. However small their files are, more than 100,000 records are not few. Deleted ones count: whoever looks at hidden
   records reads them too.
"""

from __future__ import annotations

from collections.abc import Iterable

FEW_RECORDS = 100_000
TASK_BYTES, LEAST_FILE_BYTES = 128 << 20, 4 << 20
FileSize = tuple[int, int]
"""Records and bytes of a data file."""


def are_few(sizes: Iterable[FileSize]) -> bool:
    """Returns whether files of these sizes have few records."""
    known = list(sizes)
    reckoned = sum(max(size, LEAST_FILE_BYTES) for _, size in known)
    return reckoned <= TASK_BYTES and sum(records for records, _ in known) <= FEW_RECORDS

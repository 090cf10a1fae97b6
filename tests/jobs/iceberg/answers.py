"""Answers of a catalog that differ from what it did, for tests with the session's own catalog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from spark_jobs.iceberg import commits


@contextmanager
def delivered_twice(every: bool = True) -> Iterator[list[Any]]:
    """Each commit is taken, and its answer is that another was faster: as if a gateway had sent it again. Yields the
    metadata that were taken. `every`: not only the first."""
    taken: list[Any] = []

    def take(iceberg: Any, metadata: Any) -> None:
        if every or not taken:
            operations = iceberg.operations()
            operations.commit(operations.current(), metadata)
            taken.append(metadata)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commits, "before_commit", take)
        yield taken

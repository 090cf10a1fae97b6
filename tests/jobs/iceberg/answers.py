"""Answers of a catalog that differ from what it did, for tests with the session's own catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from sqlalchemy.exc import OperationalError

from spark_jobs.iceberg import commits


@contextmanager
def answering(refused: bool, taken: bool, spark: Any) -> Iterator[list[str]]:
    """The first answer to each commit, by Iceberg in the JVM and by PyIceberg, is that another was faster (`refused`),
    or that nobody knows; whether it was `taken` is another thing. Yields what went wrong."""
    wrong: list[str] = []
    retried: set[str] = set()

    def fails_now(table: str) -> bool:
        """A commit that was not taken comes a second time."""
        if table in retried:
            retried.discard(table)
            return False
        wrong.append(table)
        if not taken:
            retried.add(table)
        return True

    def before_commit(iceberg: Any, metadata: Any) -> None:
        if not fails_now(str(iceberg.name())):
            return
        operations, jvm = iceberg.operations(), spark._jvm
        if taken:
            operations.commit(operations.current(), metadata)
        if not (taken and refused):  # the commit that follows is refused by itself
            kinds = jvm.org.apache.iceberg.exceptions
            cause = jvm.java.lang.RuntimeException("the answer was lost")
            error = (
                kinds.CommitFailedException(
                    cause, "another was faster", spark.sparkContext._gateway.new_array(jvm.Object, 0)
                )
                if refused
                else kinds.CommitStateUnknownException(cause)
            )
            jvm.java.util.concurrent.CompletableFuture.failedFuture(error).join()

    real = SqlCatalog.commit_table

    def commit_table(self: Any, table: Any, requirements: Any, updates: Any) -> Any:
        fails = fails_now(f"PyIceberg {table.name()}")
        answer = real(self, table, requirements, updates) if taken or not fails else None
        if fails:
            raise (CommitFailedException if refused else CommitStateUnknownException)("the answer was lost")
        return answer

    write = SqlCatalog.update_namespace_properties

    def update_namespace_properties(self: Any, namespace: Any, *arguments: Any, **named: Any) -> Any:
        fails = fails_now(f"namespace {namespace}")
        answer = write(self, namespace, *arguments, **named) if taken or not fails else None
        if fails and not (taken and namespace in retried):
            retried.add(namespace)
            raise OperationalError("", {}, Exception("the connection was closed"))
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqlCatalog, "update_namespace_properties", update_namespace_properties)
        patch.setattr(commits, "before_commit", before_commit)
        patch.setattr(SqlCatalog, "commit_table", commit_table)
        yield wrong


FAULTS: dict[str, Callable[[Any], AbstractContextManager[list[str]]]] = {
    "409 after": partial(answering, True, True),
    "unknown after": partial(answering, False, True),
    "409 before": partial(answering, True, False),
    "unknown before": partial(answering, False, False),
}

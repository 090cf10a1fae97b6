"""Commit to Iceberg without deleting old metadata files.

With `write.metadata.delete-after-commit.enabled` Iceberg's client deletes the files that leave the table's metadata
log, with the login of this process. The log may name any file, because every writer of the table can change it, also
between two tries of a commit. Iceberg cannot skip the deletion for one commit, so this module calls the steps around
it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from py4j.java_gateway import JavaClass

from spark_jobs.iceberg.java_calls import of_class

DELETING = "org.apache.iceberg.BaseMetastoreTableOperations"
"""The class that commits to a SQL, Hive or Glue catalog. The client of a REST catalog deletes nothing, but its server
may."""


def can_keep(operations: Any) -> bool:
    kind, *_ = _steps(operations._gateway_client)
    return bool(kind.isInstance(operations))


def commit_and_keep(operations: Any, start: Any, metadata: Any) -> None:
    """Replace the metadata `start` by `metadata`. Raises the errors of `operations.commit`."""
    client = operations._gateway_client
    _, swap, refresh = _steps(client)
    for step, arguments in ((swap, (operations, start, metadata)), (refresh, (operations,))):
        values = JavaClass("java.util.ArrayList", client)()
        for value in arguments:
            values.add(value)
        step.invokeWithArguments(values)


@cache
def _steps(client: Any) -> tuple[Any, Any, Any]:
    """Return the class, and its protected methods that swap the metadata and that invalidate its cached metadata.

    A method handle raises the method's own errors, as a direct call does.
    """
    kind = JavaClass(DELETING, client)._java_lang_class
    methods = {str(method.getName()): method for method in kind.getDeclaredMethods()}
    lookup = of_class(client, "java.lang.invoke.MethodHandles", "publicLookup")()

    def step(name: str) -> Any:
        methods[name].setAccessible(True)
        return lookup.unreflect(methods[name])

    return kind, step("doCommit"), step("requestRefresh")

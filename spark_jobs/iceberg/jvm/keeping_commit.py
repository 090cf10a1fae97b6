"""A commit by Iceberg that deletes no file of old metadata.

With `write.metadata.delete-after-commit.enabled` Iceberg's client deletes the files that leave the table's log of
metadata, with the login of this process. The log may name any file: whoever writes the table writes it, also between
two tries of a commit. Iceberg cannot leave the deletion out of one commit, so this calls the steps around it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from py4j.java_gateway import JavaClass

from spark_jobs.iceberg.jvm.static_members import of_class

DELETING = "org.apache.iceberg.BaseMetastoreTableOperations"
"""What commits to a SQL, Hive or Glue catalog. The client of a REST catalog deletes nothing: its server may."""


def can_keep(operations: Any) -> bool:
    """Return whether commit_and_keep can commit by these."""
    kind, *_ = _steps(operations._gateway_client)
    return bool(kind.isInstance(operations))


def commit_and_keep(operations: Any, start: Any, metadata: Any) -> None:
    """Replace `start` by the metadata, as `operations.commit` does, and raise what that raises."""
    client = operations._gateway_client
    _, swap, refresh = _steps(client)
    for step, arguments in ((swap, (operations, start, metadata)), (refresh, (operations,))):
        values = JavaClass("java.util.ArrayList", client)()
        for value in arguments:
            values.add(value)
        step.invokeWithArguments(values)


@cache
def _steps(client: Any) -> tuple[Any, Any, Any]:
    """Return the class, and its steps that swap the metadata and that drop what it keeps of them. They are protected.
    A handle raises what the step raises, as a call does."""
    kind = JavaClass(DELETING, client)._java_lang_class
    methods = {str(method.getName()): method for method in kind.getDeclaredMethods()}
    lookup = of_class(client, "java.lang.invoke.MethodHandles", "publicLookup")()

    def step(name: str) -> Any:
        methods[name].setAccessible(True)
        return lookup.unreflect(methods[name])

    return kind, step("doCommit"), step("requestRefresh")

"""The files that a transaction of Iceberg has written, and that its snapshots do not name.

An append that merges manifests first writes one of its own. `commitTransaction` deletes such files after its commit.
This project commits without it (spark_jobs.iceberg.commits).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError

from spark_jobs.iceberg.jvm.java_collections import each
from spark_jobs.iceberg.jvm.static_members import of_class

TRANSACTION = "org.apache.iceberg.BaseTransaction"


def delete_unneeded(transaction: Any, metadata: Any, io: Any) -> None:
    """Delete such files of the transaction whose metadata these are: committed, or never to be sent.

    A file that cannot be deleted stays for `reclaim`."""
    client = transaction._gateway_client
    if (deleted_files := _deleted_files(client)) is None:
        return
    arguments = JavaClass("java.util.ArrayList", client)()
    arguments.add(transaction)
    try:
        unneeded = {str(path) for path in each(deleted_files.invokeWithArguments(arguments))}
        if not unneeded:
            return
        for update in each(metadata.changes()):
            if str(update.getClass().getSimpleName()) == "AddSnapshot":
                snapshot = update.snapshot()
                unneeded -= {str(snapshot.manifestListLocation())}
                unneeded -= {str(manifest.path()) for manifest in each(snapshot.allManifests(io))}
        for path in sorted(unneeded):
            io.deleteFile(path)
    except Py4JJavaError:
        return


@cache
def _deleted_files(client: Any) -> Any:
    """Return a handle of the method that returns the paths, or None if this Iceberg has none. It is not public."""
    kind = JavaClass(TRANSACTION, client)._java_lang_class
    method = next((m for m in kind.getDeclaredMethods() if str(m.getName()) == "deletedFiles"), None)
    if method is None:
        return None
    method.setAccessible(True)
    return of_class(client, "java.lang.invoke.MethodHandles", "publicLookup")().unreflect(method)

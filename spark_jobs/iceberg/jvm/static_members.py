"""Look up static methods and fields of Java classes by the full name of the class, and each package once.

Py4J asks the JVM for each part of `jvm.org.apache…`, at every use. For a package the JVM first searches every jar for
a class of that name. PySpark does so for every column, and thirteen times for every exception of Java.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from py4j.java_gateway import JavaClass, JavaPackage, JVMView


def of_class(client: Any, class_name: str, name: str) -> Any:
    """Return a static method of a class, or the value of a constant.

    `client`: the connections to the JVM, as any of its objects has them. `class_name` is the full name:
    `jvm.org.apache…` would make the JVM search every jar for each package first. Raises Py4JError if the class or
    member does not exist.
    """
    return getattr(JavaClass(class_name, client), name)


def static(jvm: Any, class_name: str, name: str) -> Any:
    """Return a static member as of_class does, for the JVM of a session."""
    return of_class(jvm._gateway_client, class_name, name)


def remember_names() -> None:
    """Let Py4J keep each package and class that it has found, for as long as the JVM runs."""
    for kind in (JVMView, JavaPackage):
        if (look_up := kind.__getattr__).__name__ != "remembering":
            kind.__getattr__ = _remembering(look_up)


def _remembering(look_up: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def remembering(owner: Any, name: str) -> Any:
        found = look_up(owner, name)
        # a class that is imported later seems to be a package until then
        if isinstance(found, JavaClass) or (isinstance(found, JavaPackage) and name.islower()):
            vars(owner)[name] = found
        return found

    return remembering

"""Static methods and fields of Java classes, each looked up once for a JVM. Py4J asks the JVM at each use whether the
class has it."""

from __future__ import annotations

from functools import cache
from typing import Any

from py4j.java_gateway import JavaClass


@cache
def of_class(client: Any, class_name: str, name: str) -> Any:
    """Return a static method, or the value of a constant, of a class. `client`: the connections to the JVM, as any
    object of it has them. The class goes by its whole name: name by name, as `jvm.org.apache…`, the JVM would look for
    each package in every jar first. Raises Py4JError if there is no such class or member."""
    return getattr(JavaClass(class_name, client), name)


def static(jvm: Any, class_name: str, name: str) -> Any:
    """Return the same of the JVM of a session."""
    return of_class(jvm._gateway_client, class_name, name)

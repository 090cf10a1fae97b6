"""Look up static methods and fields of Java classes by the full name of the class."""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass


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

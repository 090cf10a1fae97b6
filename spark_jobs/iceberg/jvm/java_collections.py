"""Read the elements of Java collections.

Python's own loop over a Java collection ends with an exception in the JVM, which takes tens of milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.java_collections import JavaList

from spark_jobs.iceberg.jvm.static_members import of_class

LISTS = "org.apache.iceberg.relocated.com.google.common.collect.Lists"


def each(iterable: Any) -> Iterator[Any]:
    """Yield the elements of a Java collection or of another Java Iterable."""
    is_list = isinstance(iterable, JavaList)
    elements = iterable if is_list else of_class(iterable._gateway_client, LISTS, "newArrayList")(iterable)
    for number in range(elements.size()):
        yield elements.get(number)

"""The elements of Java collections, many by one exchange. Python's own loop over one ends by an exception in the JVM,
which costs tens of milliseconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from py4j.java_collections import JavaList

from spark_jobs.iceberg.jvm.many_calls import answers, ask
from spark_jobs.iceberg.jvm.static_members import of_class

LISTS = "org.apache.iceberg.relocated.com.google.common.collect.Lists"
PORTION = 200
"""Elements that are taken at once."""


def each(iterable: Any) -> Iterator[Any]:
    """Yields the elements of a Java collection, or of anything that Java can loop over."""
    client = iterable._gateway_client
    elements = iterable if isinstance(iterable, JavaList) else of_class(client, LISTS, "newArrayList")(iterable)
    count = elements.size()
    for first in range(0, count, PORTION):
        yield from answers((elements.get, (number,)) for number in range(first, min(first + PORTION, count)))


def elements_of(lists: Iterable[Any]) -> list[list[Any]]:
    """Returns the elements of each of many Java lists: of all together by as many exchanges as `each` takes for one."""
    java_lists = list(lists)
    sizes = ask(java_lists, "size")
    found = iter(answers((one.get, (n,)) for one, size in zip(java_lists, sizes, strict=True) for n in range(size)))
    return [[next(found) for _ in range(size)] for size in sizes]

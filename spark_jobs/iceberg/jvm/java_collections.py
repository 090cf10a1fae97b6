"""Read the elements of Java collections, many in one exchange.

Python's own loop over a Java collection ends with an exception in the JVM, which takes tens of milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from py4j.java_collections import JavaList

from spark_jobs.iceberg.jvm.many_calls import answers, ask
from spark_jobs.iceberg.jvm.static_members import of_class

LISTS = "org.apache.iceberg.relocated.com.google.common.collect.Lists"
PORTION = 200
"""Number of elements that are read in one exchange."""


def each(iterable: Any) -> Iterator[Any]:
    """Yield the elements of a Java collection or of another Java Iterable."""
    [elements] = _as_lists([iterable])
    count = elements.size()
    for first in range(0, count, PORTION):
        yield from answers((elements.get, (number,)) for number in range(first, min(first + PORTION, count)))


def elements_of(iterables: Iterable[Any]) -> list[list[Any]]:
    """Return the elements of each collection. All together need as many exchanges as `each` needs for one."""
    lists = _as_lists(list(iterables))
    sizes = ask(lists, "size")
    elements = iter(answers((one.get, (n,)) for one, size in zip(lists, sizes, strict=True) for n in range(size)))
    return [[next(elements) for _ in range(size)] for size in sizes]


def _as_lists(iterables: Sequence[Any]) -> list[Any]:
    """Return lists unchanged, and copy other iterables into new lists."""
    others = [iterable for iterable in iterables if not isinstance(iterable, JavaList)]
    made = iter(answers((of_class(one._gateway_client, LISTS, "newArrayList"), (one,)) for one in others))
    return [iterable if isinstance(iterable, JavaList) else next(made) for iterable in iterables]

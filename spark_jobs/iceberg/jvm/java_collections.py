"""The elements of Java collections, many by one exchange. Python's own loop over one ends by an exception in the JVM,
which costs tens of milliseconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from py4j.java_collections import JavaList

from spark_jobs.iceberg.jvm.many_calls import answers, ask
from spark_jobs.iceberg.jvm.static_members import of_class

LISTS = "org.apache.iceberg.relocated.com.google.common.collect.Lists"
PORTION = 200
"""Elements that are taken at once."""


def each(iterable: Any) -> Iterator[Any]:
    """Yield the elements of a Java collection, or of anything that Java can loop over."""
    [elements] = _as_lists([iterable])
    count = elements.size()
    for first in range(0, count, PORTION):
        yield from answers((elements.get, (number,)) for number in range(first, min(first + PORTION, count)))


def elements_of(iterables: Iterable[Any]) -> list[list[Any]]:
    """Return the elements of each of many: of all together by as many exchanges as `each` takes for one."""
    lists = _as_lists(list(iterables))
    sizes = ask(lists, "size")
    elements = iter(answers((one.get, (n,)) for one, size in zip(lists, sizes, strict=True) for n in range(size)))
    return [[next(elements) for _ in range(size)] for size in sizes]


def _as_lists(iterables: Sequence[Any]) -> list[Any]:
    """Return lists as they are, and new ones of what is none."""
    others = [iterable for iterable in iterables if not isinstance(iterable, JavaList)]
    made = iter(answers((of_class(one._gateway_client, LISTS, "newArrayList"), (one,)) for one in others))
    return [iterable if isinstance(iterable, JavaList) else next(made) for iterable in iterables]

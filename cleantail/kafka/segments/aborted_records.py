"""Says which batches of a part of a log are of transactions that were taken back, by the markers in the log itself.
Pure.

A producer has one transaction at a time. What it appended since its last marker is ended by its next one: by an abort
it never was. The broker's own list (`.txnindex`) says the same, and is not needed.
"""

from __future__ import annotations

from collections import deque

Span = tuple[int, int]
"""Offsets [from the first record, to the marker) of a transaction that was taken back."""


class AbortedRecords:
    """Is told of batches and markers in the order of their offsets, and asked of the batches in the same order."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._aborted: dict[int, deque[Span]] = {}

    @property
    def are_known(self) -> bool:
        """Returns whether the end of every transaction is known that was begun by what was told so far."""
        return not self._open

    def begin(self, producer_id: int, offset: int) -> None:
        """Notes a batch of a transaction; only the first one of it counts."""
        self._open.setdefault(producer_id, offset)

    def end(self, producer_id: int, offset: int, aborted: bool) -> None:
        """Notes the marker that ends the producer's transaction."""
        first = self._open.pop(producer_id, None)
        if aborted and first is not None:
            self._aborted.setdefault(producer_id, deque()).append((first, offset))

    def include(self, producer_id: int, offset: int) -> bool:
        """Returns whether the batch was taken back. Batches are asked for in the order of their offsets: spans that lie
        behind are forgotten."""
        spans = self._aborted.get(producer_id) or deque[Span]()
        while spans and spans[0][1] <= offset:
            spans.popleft()
        return bool(spans) and spans[0][0] <= offset

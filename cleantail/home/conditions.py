"""Waits for a condition of this machine: a lock that is free, a server that answers."""

from __future__ import annotations

from collections.abc import Callable


def holds_within(condition: Callable[[], bool], every_s: float, within_s: float) -> bool:
    """Asks until the condition holds, every so many seconds but once at least; returns whether it did in time."""
    from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

    return Retrying(
        retry=retry_if_result(lambda holds: not holds),
        stop=stop_after_delay(within_s),
        wait=wait_fixed(every_s),
        retry_error_callback=lambda _: False,
    )(condition)

"""Which clock a decision goes by. A clock that is given may be ahead of the real one: what cannot be undone may not."""

from __future__ import annotations

from cleantail.errors import CleantailError
from cleantail.platform_config import Platform

SKEW_MS = 60_000
"""By so much the clock of the machine that decided may be ahead of the one that works."""


def expiry_ms(platform: Platform, now_ms: int, clock_ms: int) -> int:
    """The clock by which snapshots and branches expire: the one that is given, and never ahead of the real one, which
    `clock_ms` reads. With platform.allow_clock the one that is given."""
    return now_ms if platform.allow_clock else min(now_ms, clock_ms)


def require_past(platform: Platform, now_ms: int, clock_ms: int, skew_ms: int = 0) -> None:
    """Raises CleantailError where a run is to go by a clock ahead of the real one, and the platform does not say that
    it may."""
    if now_ms > clock_ms + skew_ms and not platform.allow_clock:
        raise CleantailError(
            f"now_ms {now_ms} is {now_ms - clock_ms} ms ahead of the clock: snapshots, tombstones and segments would "
            f"go before their time; nothing was changed. Leave it empty for the clock, or write `allow_clock: true` "
            f"under `platform:` in defaults.yaml, for trials only"
        )

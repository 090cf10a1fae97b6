"""Says which clock a decision goes by: the real one, or `now_ms`, which a person may give for a run.

1. A run may not begin by a clock ahead of the real one: snapshots, tombstones and segments would go before their time.
2. It may not begin by a clock behind the real one either, but for what two machines differ by: horizons (semantics.md
   1.5) are counted from it, and would be past before readers saw their tombstones.
3. The plan of a run reaches a job through Airflow's database, with its clock. Editors of the DAG may write there.
   A job refuses a clock from before its run began: that time is Airflow's own, and no task can set it.
4. Snapshots and branches expire, which cannot be undone, by the real clock where `now_ms` is ahead of it.
5. `platform.allow_clock` lifts all of them, for trials.
"""

from __future__ import annotations

from cleantail.config.platform import Platform
from cleantail.errors import CleantailError, HeldError

SKEW_MS = 60_000
"""By so much the clock of the machine that decided may be ahead of the one that works."""
OLDEST_MS = 3_600_000
"""How old the clock of a job may be that no run of Airflow has started."""


def expiry_ms(platform: Platform, now_ms: int, clock_ms: int) -> int:
    """Returns the clock by which snapshots and branches expire: the one that is given, and never ahead of the real one,
    which `clock_ms` reads. With platform.allow_clock the one that is given."""
    return now_ms if platform.allow_clock else min(now_ms, clock_ms)


def require_present(platform: Platform, now_ms: int, clock_ms: int) -> None:
    """Raises CleantailError where a run is asked to begin by another clock than the real one, and the platform does
    not say that it may. A clock behind is no more harmless than one ahead: horizons of tombstones and the memory of
    late versions are counted from it, and branches that are kept for a while are named by it."""
    require_past(platform, now_ms, clock_ms)
    if now_ms < clock_ms - SKEW_MS and not platform.allow_clock:
        raise CleantailError(
            f"now_ms {now_ms} is {clock_ms - now_ms} ms behind the clock: tombstones, versions that are remembered and "
            f"branches of failed rounds would go before their time, later on; nothing was changed. Leave it empty for "
            f"the clock, or write `allow_clock: true` under `platform:` in defaults.yaml, for trials only"
        )


def require_past(platform: Platform, now_ms: int, clock_ms: int, skew_ms: int = 0) -> None:
    """Raises CleantailError where a run is to go by a clock ahead of the real one, and the platform does not say that
    it may."""
    if now_ms > clock_ms + skew_ms and not platform.allow_clock:
        raise CleantailError(
            f"now_ms {now_ms} is {now_ms - clock_ms} ms ahead of the clock: snapshots, tombstones and segments would "
            f"go before their time; nothing was changed. Leave it empty for the clock, or write `allow_clock: true` "
            f"under `platform:` in defaults.yaml, for trials only"
        )


def require_of_run(platform: Platform, now_ms: int, began_ms: int | None, clock_ms: int) -> None:
    """Raises CleantailError where the clock of a plan is ahead of the real one, and HeldError where it is from before
    its run began. `began_ms`: when Airflow began the run; None for a job that was started by hand."""
    require_past(platform, now_ms, clock_ms, SKEW_MS)
    earliest_ms = clock_ms - OLDEST_MS if began_ms is None else began_ms - SKEW_MS
    if now_ms < earliest_ms and not platform.allow_clock:
        raise HeldError(
            f"now_ms {now_ms} of the plan is {earliest_ms - now_ms} ms before the run began: tombstones would go "
            f"before readers saw them; nothing was changed. The run was cleared without its `evaluate`, or its XCom "
            f"was changed. Clear evaluate and what follows it, so that the run is planned again"
        )

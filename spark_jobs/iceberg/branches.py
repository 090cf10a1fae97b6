"""Names of the branches that Cleantail creates."""

from __future__ import annotations

import time

from cleantail.human import whole_number

BRANCH_PREFIXES = ("ct_", "in_", "rw_", "re_")
"""Branches of ours: a round, an ingestion, a rewrite, a restore."""
RESTORE_PREFIX, RESTORE_S = "re_", 6 * 86_400
"""A restore's branch is as old as others so many seconds later: whoever has begun one has a week to end it."""

SECONDS_CHARS = 12
"""A time of so many digits, or fewer, is in seconds: names of earlier versions end so."""


def branch_name(stem: str) -> str:
    """Returns `stem` with the time of creation (ns), by which a branch that was left behind is recognized. Two rounds
    of one table that were planned at the same clock have the same stem, and must not share a branch."""
    return f"{stem}_{time.time_ns()}"


def created_at_s(branch: str) -> float:
    """Returns from when on the age of the branch counts, as Unix seconds: its creation, of a restore's RESTORE_S later;
    infinity, so that it is never stale, where it is not ours."""
    text = branch.rpartition("_")[2]
    created = whole_number(text)
    if created is None or not branch.startswith(BRANCH_PREFIXES):
        return float("inf")
    created_s = created if len(text) <= SECONDS_CHARS else created / 1e9
    return created_s + (RESTORE_S if branch.startswith(RESTORE_PREFIX) else 0)

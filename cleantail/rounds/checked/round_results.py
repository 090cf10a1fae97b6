"""The results of rounds: of none, and of several as one."""

from __future__ import annotations

from typing import Any

NOTHING: dict[str, Any] = {
    "ok": True,
    "published": [],
    "held_back": [],
    "snapshot_id": None,
    "checkpoints": {},
    "ends": {},
    "left_behind": [],
    "verdicts": [],
    "measures": [],
    "checks_passed": 0,
    "checks_total": 0,
    "data_docs": None,
    "holds": [],
    "sample": [],
}
"""The result of a stage that had nothing to do."""


def joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """The results of two rounds, one after the other, as one."""
    before = {m["partition"]: m for m in first["measures"]}
    after = {m["partition"]: m for m in second["measures"]}
    both = {p: _added(before[p], after[p]) for p in before.keys() & after.keys()}
    verdicts = {v["partition"]: v for v in (*first["verdicts"], *second["verdicts"])}
    held_back = {*first["held_back"], *second["held_back"]}
    return {
        **second,
        "ok": first["ok"] and second["ok"],
        "published": sorted({*first["published"], *second["published"]} - held_back),
        "held_back": sorted(held_back),
        "verdicts": [verdicts[p] for p in sorted(verdicts)],
        "measures": [m for _, m in sorted((before | after | both).items())],
        "left_behind": first["left_behind"] + second["left_behind"],
        "snapshot_id": second["snapshot_id"] or first["snapshot_id"],
        "checks_passed": first["checks_passed"] + second["checks_passed"],
        "checks_total": first["checks_total"] + second["checks_total"],
    }


def _added(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Measures of a log over two rounds: what came in of the first, what came out of the second, the sum of drops."""
    reasons = first["deleted"].keys() | second["deleted"].keys()
    deleted = {r: first["deleted"].get(r, 0) + second["deleted"].get(r, 0) for r in reasons}
    return second | {name: first[name] for name in ("records_in", "tombstones_in")} | {"deleted": deleted}

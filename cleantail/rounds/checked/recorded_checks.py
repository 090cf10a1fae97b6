"""A checked round as the evidence tells it, which is all that publish goes by: what tasks hand on through Airflow's
database can be written by everybody who may edit the DAG. Pure; recorded_rounds fetches the rows.

A check writes a row for each log, in one commit. Beside the columns for people each has its part of the round as JSON:
verdict and measure of the log, and with the first log of a work unit the unit and the head of its branch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cleantail.config.topic import Topic
from cleantail.errors import HeldError
from cleantail.log.keyless import KEYLESS_RULE
from cleantail.rounds.approval import heads_of, holds_of
from cleantail.rounds.checked.sample import places_of
from cleantail.rounds.past_rounds import CHECKS, PUBLISHED, WITHDRAWN

CHECKED_ROUND = "checked_round"
"""The column of the evidence; null in rows that no check wrote, and in those of earlier versions."""
CLEAR_ALL = "clear compact and what follows it, so that the round is made and checked anew"


def parts_of(checked: Mapping[str, Any]) -> dict[int, str]:
    """Partition -> its part of a checked round, for the row that says it was checked. No key, no value of a record and
    nothing that a check has observed is in it."""
    units = {unit["partitions"][0]["partition"]: unit for unit in checked["units"]}
    verdicts = {v["partition"]: _without_values(v) for v in checked["verdicts"]}
    reasons = {hold["partition"]: hold["reason"] for hold in checked["holds"]}
    return {
        p: json.dumps(
            {"measure": measure, "verdict": verdicts[p], "hold": reasons.get(p, ""), "unit": units.get(p)},
            separators=(",", ":"),
        )
        for p, measure in ((m["partition"], m) for m in checked["measures"])
    }


def _without_values(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """What an expectation has seen is data, but where it could not be evaluated, or where there was no key to see."""
    failures = [
        failure if failure.get("error") or failure["expectation"] == KEYLESS_RULE else {**failure, "observed": ""}
        for failure in verdict["failures"]
    ]
    return {**verdict, "failures": failures, "warnings": []}


def recorded(topic: Topic, round_id: str, kind: str, rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The last check of the round among its rows of evidence, as check_quality gave it. `holds` are those of that check
    and those that the topic's YAML asks for now.

    Raises HeldError where the round was never checked, or by a version that did not write down what publish needs.
    """
    last = last_check(rows)
    if not last:
        raise HeldError(
            f"{topic.topic}: the evidence has no check of a round {round_id} ({kind}), so nothing was published. What "
            f"a task hands on is no proof that its round was checked: {CLEAR_ALL}"
        )
    if not all(row.get(CHECKED_ROUND) for row in last):
        raise HeldError(
            f"{topic.topic}: round {round_id} ({kind}) was checked by an earlier version, which did not write down "
            f"what is needed to publish it, so nothing was published: {CLEAR_ALL}"
        )
    return _joined(topic, round_id, kind, last)


def _joined(topic: Topic, round_id: str, kind: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    parts = [json.loads(row[CHECKED_ROUND]) for row in sorted(rows, key=lambda r: int(r["partition"]))]
    checks = [check["passed"] for row in rows for check in json.loads(row["checks"])]
    verdicts, measures = [part["verdict"] for part in parts], [part["measure"] for part in parts]
    asked = {
        h.partition: h.reason for h in holds_of(topic, measures, [v["partition"] for v in verdicts if v["passed"]])
    }
    then = {part["verdict"]["partition"]: part["hold"] for part in parts if part["hold"]}
    return {
        "ok": all(v["passed"] for v in verdicts),
        "topic": topic.topic,
        "round": round_id,
        "kind": kind,
        "units": sorted((part["unit"] for part in parts if part["unit"]), key=lambda unit: int(unit["unit"])),
        "measures": measures,
        "verdicts": verdicts,
        "checks_passed": sum(checks),
        "checks_total": len(checks),
        "data_docs": None,
        "holds": [{"partition": p, "reason": reason} for p, reason in sorted((then | asked).items())],
        "sample": [going.as_json() for row in rows for going in places_of(row).sample],
    }


def last_check(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows of the newest check: those of one check were written in one commit, at one time."""
    checks = [row for row in rows if row.get("outcome") in CHECKS]
    newest = max((row["checked_at_ms"] for row in checks), default=0)
    return [row for row in checks if row["checked_at_ms"] == newest]


def told_by(checked: Mapping[str, Any], round_id: str) -> dict[str, Any]:
    """What a task hands on of a round that it has checked: which one, at which heads, and which logs passed; `round_id`
    where it does not say which."""
    passed = sorted(v["partition"] for v in checked["verdicts"] if v["passed"])
    heads = heads_of(checked) if "units" in checked else []
    return {"round": checked.get("round", round_id), "heads": heads, "passed": passed}


def require_as_told(
    told: Mapping[str, Any], checked: Mapping[str, Any], kind: str, rows: Iterable[Mapping[str, Any]]
) -> None:
    """Raises HeldError where a task was handed something else than a check of this round has found: somebody has
    written into Airflow's database, and what was meant by it is not for us to guess. `rows`: the round's evidence."""
    where = f"{checked['topic']}: nothing was published of round {checked['round']} ({kind})"
    heads = {row["head_snapshot_id"] for row in rows if row.get("outcome") in CHECKS}
    if not set(told["heads"]) <= heads:
        raise HeldError(
            f"{where}: the XCom of its check names snapshots that no check of it has seen. Somebody has changed it: "
            f"{CLEAR_ALL}"
        )
    ours = told_by(checked, checked["round"])
    earlier = told["heads"] and set(told["heads"]) != set(ours["heads"])  # a try before this one has started over
    if not earlier and sorted(told["passed"]) != ours["passed"]:
        raise HeldError(
            f"{where}: the XCom of its check says that partitions {told['passed']} passed, and the evidence says "
            f"{ours['passed']}. Somebody has changed it: {CLEAR_ALL}"
        )


def require_open(checked: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> None:
    """Raises HeldError where the evidence says what became of this very check: published, though its snapshot is
    not on `main`, or dropped while it waited for an approval. `rows`: the round's evidence."""
    heads, rows = set(heads_of(checked)), list(rows)
    since_ms = max(row["checked_at_ms"] for row in last_check(rows))  # the same snapshots may have been checked before
    later = (row for row in rows if row["checked_at_ms"] >= since_ms and row["head_snapshot_id"] in heads)
    ends = {row["outcome"]: row["note"] for row in later}
    if PUBLISHED in ends:
        end = "was published before, and is on main no more: it was undone, or is long past"
    elif WITHDRAWN in ends and checked["holds"]:
        end = f"was withdrawn: {ends[WITHDRAWN]}"
    else:
        return
    raise HeldError(
        f"{checked['topic']}: nothing was published: round {checked['round']} ({checked['kind']}) {end}. The next run "
        "makes it anew"
    )

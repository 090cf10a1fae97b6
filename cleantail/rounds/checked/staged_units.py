"""What compact did with a work unit, as the snapshot says in which it staged it: check_quality goes by that. What the
task handed on through Airflow's database everybody may have changed who may edit the DAG. Pure.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from cleantail.errors import HeldError, TableError

UNIT = "cleantail.unit"
"""Summary entry of the head of a round's branch: compact's result, packed."""
CLEAR = "Clear compact and what follows it"


def packed_unit(unit: Mapping[str, Any]) -> str:
    """Compact's result as one short text: a summary stays in the table's metadata for as long as its snapshot."""
    return base64.b64encode(zlib.compress(json.dumps(unit, separators=(",", ":")).encode(), 9)).decode()


def staged_unit(text: str | None, branch: str) -> dict[str, Any]:
    """The unit that a branch's head says it is of. Raises HeldError where it says none, or one of another branch, and
    TableError for a text that is none of packed_unit."""
    if not text:
        raise HeldError(
            f"branch {branch} does not say which work unit it is of: an earlier version made it, or no round did. "
            f"Nothing was checked. {CLEAR}"
        )
    try:
        unit: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(text, validate=True)))
    except (binascii.Error, zlib.error, ValueError) as e:
        raise TableError(f"{UNIT} of branch {branch} cannot be read: {e}") from None
    if unit["branch"] != branch:
        raise HeldError(f"branch {branch} has the work unit of branch {unit['branch']}. Nothing was checked. {CLEAR}")
    return unit


def require_one_round(units: Iterable[Mapping[str, Any]], round_id: object) -> None:
    """Raises HeldError unless the units are all of this round, and no log is in two of them."""
    units = list(units)
    rounds = sorted({str(unit["round"]) for unit in units})
    if rounds != [round_id]:
        raise HeldError(
            f"the units to check are of round {', '.join(rounds) or 'none'}, and the run's is {round_id}: somebody has "
            f"changed an XCom. Nothing was checked. {CLEAR}"
        )
    logs = Counter(work["partition"] for unit in units for work in unit["partitions"])
    if twice := sorted(p for p, count in logs.items() if count > 1):
        raise HeldError(
            f"partitions {twice} are in more than one unit of round {round_id}. Nothing was checked. {CLEAR}"
        )

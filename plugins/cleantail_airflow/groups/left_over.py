"""Remembers which topics of a group runs have left over, in an Airflow Variable: they are first in the next run.

Who deletes the variable has them taken by their urgency alone.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping

from airflow.sdk import Variable

from cleantail.codec import Codec
from cleantail.errors import TableError

PREFIX = "cleantail.left_over."
_NAME_CHARS = 250
"""Airflow's longest name of a variable."""
_DESCRIPTION = "Topics that runs of the group have left over, and since when. Kept by Cleantail."
_SINCE_JSON: Codec[dict[str, int]] = Codec(dict[str, int])

logger = logging.getLogger(__name__)


def variable_name(group: str) -> str:
    """Returns the variable's name; a group's name that is too long for it is replaced by its hash."""
    name = PREFIX + group
    return name if len(name) <= _NAME_CHARS else PREFIX + hashlib.sha256(group.encode()).hexdigest()


def left_since(group: str) -> dict[str, int]:
    """Returns topic -> since when runs have left it over (Unix ms)."""
    text = Variable.get(variable_name(group), default=None)
    try:
        return _SINCE_JSON.value(text, "the variable") if text else {}
    except TableError as error:
        logger.warning("variable %s cannot be read and is written again: %s", variable_name(group), error)
        return {}


def remember(
    group: str, left_over: Iterable[str], before: Mapping[str, int], now_ms: int, only: str | None = None
) -> None:
    """Writes down what is left over now; what was so before keeps its time. `only`: the one topic that the run was for,
    so that it says nothing of others. Nothing is written where nothing changed."""
    others = {topic for topic in before if only not in (None, topic)}
    since = {topic: before.get(topic, now_ms) for topic in sorted({*left_over, *others})}
    if since != dict(before):
        Variable.set(variable_name(group), _SINCE_JSON.text(since), description=_DESCRIPTION)

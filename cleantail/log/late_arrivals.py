"""Warnings of an ingestion about records below what rounds have cleaned already. Pure.

1. Such records may be a replay or a backfill (semantics.md 3.5): the checkpoint moves back, and a round cleans them.
2. They may also be the first records of a topic that was made anew. As long as the old records' data files are there,
   ingestion compares the two and refuses (cleantail.log.contradictions). Once those files have gone, nothing is left to
   compare with, so a person is warned.
3. Below the log start that retention has set, the next round drops them (semantics.md 1.2).
"""

from __future__ import annotations

from collections.abc import Mapping

from cleantail.config.settings.kafka_configs import KafkaConfigs
from cleantail.log.log_figures import kept_log_start
from cleantail.log.partition_state import PartitionState

ANEW = "a replay or a backfill, or was the topic made anew?"


def late_warnings(
    lowest: Mapping[int, int], states: Mapping[int, PartitionState], configs: KafkaConfigs
) -> tuple[str, ...]:
    """Returns a warning for each log that gets such records. `lowest` maps a partition to the lowest offset that an
    ingestion brings."""
    arrivals = ((p, low, states[p]) for p, low in sorted(lowest.items()) if p in states)
    return tuple(text for p, low, state in arrivals if (text := _warning(p, low, state, configs)))


def _warning(partition: int, low: int, state: PartitionState, configs: KafkaConfigs) -> str:
    """Returns the warning of one log, empty where nothing arrives below what was cleaned or dropped."""
    start = kept_log_start(state, configs)
    beginning = f"partition {partition}: records from offset {low} on are below the"
    if low < start:
        return f"{beginning} log start {start}, which retention has moved there: the next round drops them ({ANEW})"
    if state.checkpoint is not None and low < state.checkpoint:
        return f"{beginning} clean point {state.checkpoint}, to where rounds have removed what was superseded ({ANEW})"
    return ""

"""What an ingestion says of records below what rounds have cleaned, where it can be told no more what was there. Pure.

They may be a replay or a backfill (semantics.md 3.5), or the first ones of a topic that was made anew: of the latter
nothing is compared once the old records' data files have gone.
"""

from __future__ import annotations

from collections.abc import Mapping

from cleantail.config.settings.kafka_configs import KafkaConfigs
from cleantail.log.log_state import kept_log_start
from cleantail.log.partition_state import PartitionState

ANEW = "a replay or a backfill, or was the topic made anew?"


def late_warnings(
    lowest: Mapping[int, int], states: Mapping[int, PartitionState], configs: KafkaConfigs
) -> tuple[str, ...]:
    """Returns one of each log with such records. `lowest`: partition -> the lowest offset that an ingestion brings."""
    arrivals = ((p, low, states[p]) for p, low in sorted(lowest.items()) if p in states)
    return tuple(text for p, low, state in arrivals if (text := _warning(p, low, state, configs)))


def _warning(partition: int, low: int, state: PartitionState, configs: KafkaConfigs) -> str:
    start = kept_log_start(state, configs)
    where = f"partition {partition}: records from offset {low} on are below the"
    if low < start:
        return f"{where} log start {start}, which retention has moved there: the next round drops them ({ANEW})"
    if state.checkpoint is not None and low < state.checkpoint:
        return f"{where} clean point {state.checkpoint}, to where rounds have removed what was superseded ({ANEW})"
    return ""

"""The states of a topic's logs at the start of a round. A person's release lifts a log's quarantine."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from cleantail.lake.catalogs import kept_catalog
from cleantail.lake.releases import current_releases, forget_releases
from cleantail.log.partition_state import PartitionState, states_of_properties
from cleantail.log.quarantine import Releases, lifted
from spark_jobs.engine.deleted_versions import forget_all
from spark_jobs.iceberg.commits import note_history
from spark_jobs.iceberg.java_calls import texts
from spark_jobs.iceberg.tables import TopicTable

logger = logging.getLogger("cleantail.rounds")


def states_and_releases(table: TopicTable, iceberg: Any) -> tuple[dict[int, PartitionState], Releases]:
    """Return the states by partition with quarantines lifted, and the current releases. `iceberg`: the loaded table."""
    releases = current_releases(kept_catalog(table.platform), table.topic)
    states = states_of_properties(texts(iceberg.properties()), table.name)
    return lifted(states, releases, str(iceberg.uuid())), releases


def note_rewritten(table: TopicTable, now_ms: int) -> None:
    """Reset the table if another program rewrote its history. Call it before any other step of a round.

    States of logs, positions and the ledger of deleted versions are void then (cleantail.rounds.rewritten_history)."""
    if note_history(table, now_ms):
        logger.warning("%s: another program rewrote the table's history; its logs start again", table.topic.topic)
        forget_all(table)


def note_before_intake(table: TopicTable, now_ms: int) -> None:
    """Call note_rewritten. If the table does not exist, forget the deleted versions of a dropped table of its name."""
    if table.exists():
        note_rewritten(table, now_ms)
    else:
        forget_all(table)


def forget_answered(table: TopicTable, releases: Releases, written: Iterable[int]) -> None:
    """Remove the releases of logs whose states were `written` again."""
    forget_releases(table.topic, [releases[p] for p in written if p in releases])

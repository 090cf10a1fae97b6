"""The states of a topic's logs as a round finds them: a log that a person has released is in no quarantine."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from cleantail.lake.catalogs import kept_catalog
from cleantail.lake.own_namespace import current_releases, forget_releases
from cleantail.log.partition_state import PartitionState, states_of_properties
from cleantail.log.quarantine import Releases, lifted
from spark_jobs.engine.deleted_versions import forget_all
from spark_jobs.iceberg.commits import note_history
from spark_jobs.iceberg.iceberg_reads import texts
from spark_jobs.iceberg.tables import TopicTable

logger = logging.getLogger("cleantail.rounds")


def states_and_releases(table: TopicTable, iceberg: Any) -> tuple[dict[int, PartitionState], Releases]:
    """Returns the states as they count, by partition, and the releases by which they do. `iceberg`: the table as it was
    loaded; the releases are read now."""
    releases = current_releases(kept_catalog(table.platform), table.topic)
    states = states_of_properties(texts(iceberg.properties()), table.name)
    return lifted(states, releases, str(iceberg.uuid())), releases


def note_rewritten(table: TopicTable, now_ms: int) -> None:
    """Takes note, before anything else is done, that others rewrote the table's history: states of logs, positions and
    the ledger of deleted versions are void then (cleantail.rounds.rewritten_history)."""
    if note_history(table, now_ms):
        logger.warning("%s: %s", table.topic.topic, "history was rewritten by another program; logs begin again")
        forget_all(table)


def note_before_intake(table: TopicTable, now_ms: int) -> None:
    """Does note_rewritten; for a table that is yet to be made it forgets the deleted versions of an earlier one of that
    name, which was dropped."""
    if table.exists():
        note_rewritten(table, now_ms)
    else:
        forget_all(table)


def forget_answered(table: TopicTable, releases: Releases, written: Iterable[int]) -> None:
    """Removes the releases of logs whose states are now written anew; see forget_releases."""
    forget_releases(table.topic, [releases[p] for p in written if p in releases])

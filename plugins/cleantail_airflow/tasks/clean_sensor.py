"""A sensor for other DAGs: waits until partitions of a topic are clean up to given offsets.

CleanUpToSensor(task_id="wait", topic="orders", config="/etc/cleantail/config", offsets={0: 1042, 1: 977})
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue

from cleantail.config.loading import find_topic
from cleantail.errors import CleantailError, OutsideError
from cleantail.human import whole_number
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail_airflow.airflow_exceptions import AirflowFailException
from cleantail_airflow.catalog_login import with_login


class CleanUpToSensor(BaseSensorOperator):
    """Waits until the first dirty offset of each partition in `offsets` has reached its offset: keys below are unique.

    The sensor reads the table's metadata, without Spark. `offsets` maps partitions to offsets, also as a JSON text, so
    that a template can take them from another task. The XCom is that of the topic's asset: {"topic", "snapshot_id",
    "checkpoints"}. If the catalog cannot be reached, the sensor continues to wait, until `timeout`.
    """

    template_fields: Sequence[str] = ("topic", "offsets")

    def __init__(
        self,
        *,
        topic: str,
        config: str | os.PathLike[str],
        offsets: Mapping[int, int] | Mapping[str, int] | str,
        poke_interval: float = 300,
        mode: str = "reschedule",
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, mode=mode, **kwargs)
        self.topic = topic
        self.config = str(config)
        self.offsets = offsets

    def poke(self, context: Context) -> PokeReturnValue:
        """Return whether all partitions are clean. Raises AirflowFailException for errors that waiting does not
        change."""
        try:
            wanted = parsed_offsets(self.offsets)
            topic = find_topic(self.topic, Path(self.config).absolute())
            with_login(topic.platform)
            table = load_table(open_catalog(topic.platform), topic)
        except OutsideError as error:
            self.log.warning("%s", error)
            return PokeReturnValue(is_done=False)
        except CleantailError as error:
            raise AirflowFailException(str(error)) from None
        from cleantail.lake.table_metadata import properties_that_count
        from cleantail.log.partition_state import states_of_properties

        states = states_of_properties(properties_that_count(table), topic.table) if table is not None else {}
        clean = {p: state.checkpoint for p, state in sorted(states.items()) if state.checkpoint is not None}
        behind = {p: offset for p, offset in sorted(wanted.items()) if clean.get(p, 0) < offset}
        for p, offset in behind.items():
            self.log.info("partition %s of %s is clean up to offset %s of %s", p, topic.topic, clean.get(p, 0), offset)
        current = table.current_snapshot() if table is not None else None
        snapshot_id = str(current.snapshot_id) if current else None
        report = {
            "topic": topic.topic,
            "snapshot_id": snapshot_id,
            "checkpoints": {str(p): c for p, c in clean.items()},
        }
        return PokeReturnValue(is_done=not behind, xcom_value=report)


def parsed_offsets(offsets: Mapping[int, int] | Mapping[str, int] | str) -> dict[int, int]:
    """Return partition -> offset. Raises CleantailError for anything else."""
    try:
        given = json.loads(offsets) if isinstance(offsets, str) else dict(offsets)
        wanted = {whole_number(str(p)): whole_number(str(offset)) for p, offset in given.items()}
    except (ValueError, TypeError, AttributeError):
        wanted = {}
    found = {p: offset for p, offset in wanted.items() if p is not None and offset is not None}
    if not found or len(found) < len(wanted):
        raise CleantailError("offsets is not a mapping of partitions to offsets, such as {0: 1042}, nor its JSON")
    return found

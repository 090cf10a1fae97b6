"""Many small topics without Spark: their YAML, and tables that PyIceberg fills in the layout of Spark's writers.

PyIceberg does not write format version 3, so the tables have version 2. Apart from that, the metadata and manifests
that the page reads are the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from benchmarks.harness.fresh_process import say
from benchmarks.harness.lake import Lake
from benchmarks.harness.shape import FIRST_TIMESTAMP_MS
from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.topic_table import table_properties
from cleantail.lake.catalogs import open_catalog
from cleantail.log.partition_state import PROPERTY_PARTITION, PartitionState

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

PARTITIONS, RECORDS, APPENDS, GROUPS = 6, 100, 2, 4
"""Number of records of a partition in one append."""
SAID_EVERY = 100
CLEAN_EVERY = 3
"""Every third topic has a published round and is clean. The others are dirty."""


def group_of(number: int) -> str:
    """Return the group of a topic: all topics are in groups of the same size."""
    return f"group_{number % GROUPS}"


def make_small_tables(lake: Lake, names: list[str]) -> None:
    """Make topics in groups, each with a table. Existing tables stay."""
    platform = lake.platform
    groups = lake.config / "groups"
    groups.mkdir(parents=True, exist_ok=True)
    for group in sorted({group_of(number) for number in range(len(names))}):
        (groups / f"{group}.yaml").write_text(json.dumps({"group": group}))
    catalog = open_catalog(platform)
    catalog.create_namespace_if_not_exists(platform.catalog.namespace)
    configs = KafkaConfigs()
    for number, name in enumerate(names):
        lake.write_topic(name, {"segment.ms": 1}, group=group_of(number))
        identifier = f"{platform.catalog.namespace}.{name}"
        if catalog.table_exists(identifier):
            continue
        if number % SAID_EVERY == 0:
            say(f"making topic {number + 1} of {len(names)}")
        properties = table_properties(name, configs) | {"format-version": "2"}
        _fill(catalog, identifier, properties, clean=number % CLEAN_EVERY == 0)


def _fill(catalog: Catalog, identifier: str, properties: dict[str, str], *, clean: bool) -> None:
    import pyarrow as pa
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import IdentityTransform

    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "partition"))
    table = catalog.create_table(identifier, _schema(), partition_spec=spec, properties=properties)
    arrow = table.schema().as_arrow()
    for append in range(APPENDS):
        table.append(pa.Table.from_pylist(list(_rows(append)), schema=arrow))
    if clean:
        state = PartitionState(
            checkpoint=APPENDS * RECORDS, known_sequence_number=APPENDS, last_round_ms=FIRST_TIMESTAMP_MS
        )
        with table.transaction() as transaction:
            states = {f"{PROPERTY_PARTITION}{p}": state.as_json() for p in range(PARTITIONS)}
            transaction.set_properties(states)


def _schema() -> Any:
    from pyiceberg.schema import Schema
    from pyiceberg.types import (
        BinaryType,
        BooleanType,
        IntegerType,
        ListType,
        LongType,
        NestedField,
        StringType,
        StructType,
        TimestamptzType,
    )

    header = StructType(NestedField(10, "key", StringType()), NestedField(11, "value", BinaryType()))
    return Schema(
        NestedField(1, "partition", IntegerType()),
        NestedField(2, "offset", LongType()),
        NestedField(3, "timestamp", TimestamptzType()),
        NestedField(4, "timestamp_type", IntegerType()),
        NestedField(5, "key", BinaryType()),
        NestedField(6, "value", BinaryType()),
        NestedField(7, "headers", ListType(9, header, element_required=False)),
        NestedField(8, "tombstone", BooleanType()),
    )


def _rows(append: int) -> Iterator[dict[str, Any]]:
    for partition in range(PARTITIONS):
        for offset in range(append * RECORDS, (append + 1) * RECORDS):
            yield {
                "partition": partition,
                "offset": offset,
                "timestamp": (FIRST_TIMESTAMP_MS + offset) * 1000,
                "timestamp_type": 0,
                "key": b"key-%d" % (offset % (RECORDS // 2)),
                "value": b"v" * 64,
                "headers": None,
                "tombstone": False,
            }

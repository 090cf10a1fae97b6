"""The topic table of `orders` in a real catalog, written by PyIceberg, so that adapters are tested without Spark."""

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from cleantail.config.loading import find_topic, load_platform
from cleantail.lake.catalogs import open_catalog

HEADER = StructType(NestedField(9, "key", StringType()), NestedField(10, "value", BinaryType()))
SCHEMA = Schema(
    NestedField(1, "partition", IntegerType()),
    NestedField(2, "offset", LongType()),
    NestedField(3, "timestamp", TimestamptzType()),
    NestedField(4, "timestamp_type", IntegerType()),
    NestedField(5, "key", BinaryType()),
    NestedField(6, "value", BinaryType()),
    NestedField(7, "headers", ListType(8, HEADER, element_required=False)),
)
SPEC = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "partition"))
PROPERTIES = {"cleantail.topic": "orders", "write.metadata.metrics.default": "full"}


class OrdersTable:
    """`append` makes one snapshot; a record is (partition, offset, timestamp ms or None, key, value)."""

    def __init__(self, project, properties=PROPERTIES):
        env = {"CLEANTAIL_HOME": str(project / "home")}
        self.platform = load_platform(project / "config", env)
        self.topic = find_topic("orders", project / "config", env)
        self.catalog = open_catalog(self.platform)
        self.catalog.create_namespace("cleantail")
        self.table = self.catalog.create_table("cleantail.orders", SCHEMA, partition_spec=SPEC, properties=properties)

    def append(self, *records, headers=None, summary=None):
        rows = [
            {
                "partition": partition,
                "offset": offset,
                "timestamp": None if ms is None else ms * 1000,
                "timestamp_type": 0,
                "key": key,
                "value": value,
                "headers": headers,
            }
            for partition, offset, ms, key, value in records
        ]
        self.table.append(pa.Table.from_pylist(rows, schema=self.table.schema().as_arrow()), summary or {})
        return self

    def set_properties(self, **properties):
        with self.table.transaction() as transaction:
            transaction.set_properties(properties)
        return self

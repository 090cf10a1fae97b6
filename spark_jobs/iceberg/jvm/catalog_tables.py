"""Tables that are made by Iceberg's own catalog, which is the one that the session's catalog of Spark has.

A table is made in one commit, with its partitions, its order and its properties. By Spark's statements it takes two,
and a process that is killed between them leaves a table without an order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from spark_jobs.iceberg.jvm.many_calls import answers
from spark_jobs.iceberg.jvm.static_members import static

ICEBERG = "org.apache.iceberg"
SPARK_UTIL = f"{ICEBERG}.spark.Spark3Util"


@dataclass(frozen=True, slots=True)
class NewTable:
    """Describes a table that is to be made. `columns`: as Spark's statements have them; it is partitioned by the values
    of one of them, and the records of a file are in the order of another."""

    columns: str
    partitioned_by: str
    ordered_by: str
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """Names a table of a session's catalog, as its parts."""

    spark: SparkSession
    catalog: str
    path: tuple[str, ...]

    def exists(self) -> bool:
        return bool(self._catalog().tableExists(self._identifier()))

    def namespace_exists(self) -> bool:
        """Return whether the catalog has the table's namespace. A catalog has to be asked: some make a table in a
        namespace that is not there, and those that refuse it (Glue, servers of REST catalogs) each raise another
        error."""
        return bool(self._catalog().namespaceExists(self._identifier().namespace()))

    def create(self, new: NewTable) -> bool:
        """Make the table, and return whether it did: False if somebody else has just made one of that name. Its
        namespace must be there. Raises Py4JJavaError if the catalog refuses it."""
        jvm = self.spark._jvm
        struct = static(jvm, "org.apache.spark.sql.types.StructType", "fromDDL")(new.columns)
        schema = static(jvm, f"{ICEBERG}.spark.SparkSchemaUtil", "convert")(struct)
        spec = static(jvm, f"{ICEBERG}.PartitionSpec", "builderFor")(schema).identity(new.partitioned_by).build()
        order = static(jvm, f"{ICEBERG}.SortOrder", "builderFor")(schema).asc(new.ordered_by).build()
        builder = self._catalog().buildTable(self._identifier(), schema)
        answers((builder.withProperty, (name, value)) for name, value in new.properties.items())
        try:
            builder.withPartitionSpec(spec).withSortOrder(order).create()
        except Py4JJavaError as e:
            if e.java_exception.getClass().getSimpleName() != "AlreadyExistsException":
                raise
            return False
        return True

    def _catalog(self) -> Any:
        return static(self.spark._jvm, SPARK_UTIL, "loadIcebergCatalog")(self.spark._jsparkSession, self.catalog)

    def _identifier(self) -> Any:
        return static(self.spark._jvm, f"{ICEBERG}.catalog.TableIdentifier", "parse")(".".join(self.path))

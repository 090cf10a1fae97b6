"""Create tables with Iceberg's own catalog, which the session's catalog of Spark uses.

One commit creates a table with its partitions, its order and its properties. Spark's statements need two commits, and a
process that is killed between them leaves a table without an order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from spark_jobs.iceberg.jvm.static_members import static

ICEBERG = "org.apache.iceberg"
SPARK_UTIL = f"{ICEBERG}.spark.Spark3Util"


@dataclass(frozen=True, slots=True)
class NewTable:
    """Describes a table to create. `columns`: as in Spark's statements. The values of one column partition the table.
    The records of a file are in the order of another column."""

    columns: str
    partitioned_by: str
    ordered_by: str
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """The name of a table in a session's catalog, in parts."""

    spark: SparkSession
    catalog: str
    path: tuple[str, ...]

    def exists(self) -> bool:
        return bool(self._catalog().tableExists(self._identifier()))

    def namespace_exists(self) -> bool:
        """Return whether the catalog has the table's namespace.

        Call this before `create`: some catalogs create a table in a missing namespace. Others (Glue, servers of REST
        catalogs) refuse it with different errors.
        """
        return bool(self._catalog().namespaceExists(self._identifier().namespace()))

    def create(self, new: NewTable) -> bool:
        """Create the table. Return False if another process has just created a table of that name.

        The namespace must exist. Raises Py4JJavaError if the catalog refuses the table.
        """
        jvm = self.spark._jvm
        struct = static(jvm, "org.apache.spark.sql.types.StructType", "fromDDL")(new.columns)
        schema = static(jvm, f"{ICEBERG}.spark.SparkSchemaUtil", "convert")(struct)
        spec = static(jvm, f"{ICEBERG}.PartitionSpec", "builderFor")(schema).identity(new.partitioned_by).build()
        order = static(jvm, f"{ICEBERG}.SortOrder", "builderFor")(schema).asc(new.ordered_by).build()
        builder = self._catalog().buildTable(self._identifier(), schema)
        for name, value in new.properties.items():
            builder.withProperty(name, value)
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

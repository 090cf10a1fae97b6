"""The mapped columns of a source table as a snapshot has them, found by Iceberg's field ids, by their names of now.

1. A column, or a field of a struct, may have had another name at the snapshot, or may not have been there: then it is
   null. A struct that is mapped as a whole is put together from its fields likewise, so that its JSON has the names and
   the order of now, and a mapped field of it is found in it.
2. Every name in the metadata is whatever the source's writer chose. It becomes a name in Spark's plan, in which a dot
   and a backtick are letters as any, and never text that Spark reads as SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from spark_jobs.iceberg.jvm.java_collections import each

Tree = Mapping[str, Any]
"""Name of now -> the tree of what is mapped in it, empty where it is mapped itself."""


def columns_at(then: Any, now: Any, types: StructType, paths: Iterable[str]) -> list[Column]:
    """Returns the columns of these paths, each with its name of now. `then` and `now`: Iceberg's schemas of the
    snapshot and of the table; `types`: Spark's of the table."""
    tree = _tree(paths)
    return [_column(then, now.findField(name), types[name].dataType, inner, None) for name, inner in tree.items()]


def column_of(path: str) -> Column:
    """Returns a mapped column of what `columns_at` selects."""
    top, *fields = path.split(".")
    column = F.col(escaped(top))
    for field in fields:
        column = column.getField(field)
    return column


def escaped(name: str) -> str:
    """Returns what Spark reads as this one name, whatever it holds."""
    return f"`{name.replace('`', '``')}`"


def _tree(paths: Iterable[str]) -> Tree:
    """Returns the paths as a tree. What lies in a column that is mapped itself comes with it."""
    mapped, tree = set(paths), dict[str, Any]()
    for path in mapped:
        parts = path.split(".")
        if any(".".join(parts[:n]) in mapped for n in range(1, len(parts))):
            continue
        node = tree
        for part in parts:
            node = node.setdefault(part, {})
    return tree


def _column(then: Any, field: Any, kind: DataType, tree: Tree, outer: Column | None) -> Column:
    name, then_field = str(field.name()), then.findField(int(field.fieldId()))
    if then_field is None:
        return F.lit(None).cast(kind).alias(name)
    column = F.col(escaped(str(then_field.name()))) if outer is None else outer.getField(str(then_field.name()))
    if not isinstance(kind, StructType):
        return column.alias(name)
    fields = {str(inner.name()): inner for inner in each(field.type().asStructType().fields())}
    struct = F.struct(*(_column(then, fields[n], kind[n].dataType, tree.get(n, {}), column) for n in tree or fields))
    # of a struct that is only the way to its fields Spark sees through this, so that it reads and filters no others
    return (struct if tree else F.when(column.isNotNull(), struct)).alias(name)

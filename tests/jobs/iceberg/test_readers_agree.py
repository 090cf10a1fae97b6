"""What a task reads of a file is what Spark's own Iceberg reader reads of it: random tables of format version 2 and 3,
whose schema and partition spec change between files of several writers, with field ids and without."""

from __future__ import annotations

import random
import uuid
from contextlib import contextmanager
from datetime import UTC, date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyiceberg.io import load_file_io

from cleantail.config.topic_table import Columns, Deleted
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.data_files import parts_of
from cleantail.lake.records.log_records import adopted_records
from cleantail.lake.records.projection import FIELD_ID
from cleantail.log.adopted_table import expressions, problem_of
from spark_jobs.iceberg.log_files import column_batches
from spark_jobs.iceberg.snapshot_files import SnapshotFiles
from tests.jobs.iceberg.test_format_2 import full
from tests.jobs.round.intake.test_adopt import NOW

KINDS = {
    "string": (pa.string(), ["eu", "us", "é", ""]),
    "int": (pa.int32(), [0, 7, -3]),
    "bigint": (pa.int64(), [0, 1 << 40, -3]),
    "float": (pa.float32(), [0.5, -0.0, 3.25]),
    "double": (pa.float64(), [0.1, 2.0]),
    "decimal(9,2)": (pa.decimal128(9, 2), [Decimal("1.20"), Decimal("-7.00")]),
    "date": (pa.date32(), [date(2024, 2, 29), date(1969, 12, 31)]),
    "boolean": (pa.bool_(), [True, False]),
    "binary": (pa.binary(), [b"\x00\xff", b"a"]),
    "timestamp": (pa.timestamp("us", "UTC"), [NOW * 1000 + 1, 0]),
    "timestamp_ntz": (pa.timestamp("us"), [NOW * 1000 + 999, 5]),
}
DEFAULTS = {"string": ("string", "eu"), "int": ("int", 7), "bigint": ("long", 1 << 40), "double": ("double", 0.5),
            "boolean": ("boolean", True)}  # fmt: skip
WIDER = {"int": "bigint", "float": "double", "decimal(9,2)": "decimal(18,2)"}
IN_PATH = ("string", "int", "bigint", "date", "boolean", "decimal(9,2)")
"""Types of partitions that files are registered in by name."""


class RandomTable:
    """A table that changes at random: its columns, its spec, the writers of its files."""

    def __init__(self, spark, name, seed):
        self.spark, self.name, self.draw, self.next = spark, full(f"sinks.{name}"), random.Random(seed), 0
        self.version = self.draw.choice((2, 3))
        self.kinds = {
            "p": self.draw.choice(("int", "bigint")),
            "o": self.draw.choice(("int", "bigint")),
            "ts": self.draw.choice(("timestamp", "timestamp_ntz", "bigint")),
            **{f"k{n}": self.draw.choice(list(KINDS)) for n in range(3)},
            "v": self.draw.choice(("string", "binary")),
            "op": "string",
        }
        self.inner = {"a": self.draw.choice(list(KINDS)), "b": "string"}
        self.has_mapping, self.identity = False, []
        columns = ", ".join(f"`{c}` {k}" for c, k in self.kinds.items())
        struct = ", ".join(f"`{c}`: {k}" for c, k in self.inner.items())
        by = [c for c in ("k0", "k1", "op") if self.draw.random() < 0.3 and self.kinds[c] in IN_PATH]
        buckets = ["bucket(4, o)"] if self.draw.random() < 0.3 else []
        self.identity, self.other = list(by), bool(buckets)
        spec = f"PARTITIONED BY ({', '.join([*by, *buckets])})" if by or buckets else ""
        vector = str(self.draw.random() < 0.5).lower()
        self.sql(
            f"CREATE TABLE {{}} ({columns}, s struct<{struct}>, h array<struct<key: string, value: binary>>) "
            f"USING iceberg {spec} TBLPROPERTIES ('format-version'='{self.version}', "
            f"'read.parquet.vectorization.enabled'='{vector}', 'write.spark.fanout.enabled'='true')"
        )

    def sql(self, text):
        return self.spark.sql(text.format(self.name))

    @property
    def java(self):
        return self.spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
            self.spark._jsparkSession, self.name
        )

    @property
    def iceberg(self):
        return self.spark._jvm.org.apache.iceberg

    # what may happen

    def insert(self):
        """Spark writes, or PyIceberg's kind of writer: pyarrow with field ids."""
        self.arrow_rows(self.draw.randint(1, 4)).writeTo(self.name).append()

    def add_column(self):
        name, kind = f"k{len(self.kinds)}", self.draw.choice(list(DEFAULTS))
        self.add(name, kind, None)
        self.kinds[name] = kind

    def add_inner(self):
        name, kind = f"x{len(self.inner)}", self.draw.choice(list(DEFAULTS))
        self.add(name, kind, "s")
        self.inner[name] = kind

    def add(self, name, kind, parent):
        of_kind = self.iceberg.types.Types.fromPrimitiveString(DEFAULTS[kind][0])
        update = self.java.updateSchema()
        names = (name,) if parent is None else (parent, name)
        if self.version == 3 and self.draw.random() < 0.7:
            literal = self.iceberg.expressions.Expressions.lit(DEFAULTS[kind][1])
            update.addColumn(*names, of_kind, None, literal).commit()
        else:
            update.addColumn(*names, of_kind).commit()
        self.sql("REFRESH TABLE {}")

    def rename(self):
        name = self.draw.choice([c for c in self.kinds if c.startswith("k")])
        new = f"k{len(self.kinds)}{name}"
        self.sql(f"ALTER TABLE {{}} RENAME COLUMN {name} TO {new}")
        self.kinds = {new if c == name else c: k for c, k in self.kinds.items()}
        self.identity = [new if c == name else c for c in self.identity]

    def drop_and_add(self):
        free = [c for c in self.kinds if c.startswith("k") and c not in self.identity]
        if self.other or self.identity or len(free) < 2:
            return  # a partition field of a dropped column is refused
        name = self.draw.choice(free)
        self.sql(f"ALTER TABLE {{}} DROP COLUMN {name}")
        self.kinds[name] = self.draw.choice(list(KINDS))
        self.sql(f"ALTER TABLE {{}} ADD COLUMN {name} {self.kinds[name]}")

    def promote(self):
        wider = [c for c, k in self.kinds.items() if k in WIDER]
        if wider:
            name = self.draw.choice(wider)
            self.kinds[name] = WIDER[self.kinds[name]]
            self.sql(f"ALTER TABLE {{}} ALTER COLUMN {name} TYPE {self.kinds[name]}")

    def change_spec(self):
        if self.identity and self.draw.random() < 0.5:
            name = self.identity.pop()
            self.sql(f"ALTER TABLE {{}} DROP PARTITION FIELD {name}")
        else:
            free = [c for c, k in self.kinds.items() if k in IN_PATH and c[0] in "kvp" and c not in self.identity]
            if not free:
                return
            name = self.draw.choice(free)
            self.identity.append(name)
            self.sql(f"ALTER TABLE {{}} ADD PARTITION FIELD {name}")

    def register(self):
        """Puts a Parquet file of another writer into the table, as add_files does."""
        if self.other:
            return
        with_ids = self.draw.random() < 0.5
        if not with_ids and not self.has_mapping:
            mapping = self.iceberg.mapping.MappingUtil.create(self.java.schema())
            text = self.iceberg.mapping.NameMappingParser.toJson(mapping)
            self.java.updateProperties().set("schema.name-mapping.default", text).commit()
            self.has_mapping = True
        table, count = self.java, self.draw.randint(1, 4)
        rows = self.rows(count)
        partition = {c: self.draw.choice(KINDS[self.kinds[c]][1]) for c in self.identity if self.kinds[c] in KINDS}
        if len(partition) < len(self.identity):
            return
        partition |= {c: 0 for c in partition if c == "p"}
        rows = {c: [partition[c]] * count if c in partition else column for c, column in rows.items()}
        left_out = {c for c in rows if c[0] in "kvsh" and self.draw.random() < 0.3}
        left_out |= {c for c in partition if self.draw.random() < 0.8}
        target = Path(str(table.location()).removeprefix("file:")) / "other" / f"{uuid.uuid4()}.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        inner = {c for c in self.inner if self.draw.random() < 0.7} or set(self.inner)
        arrow = self.arrow(rows, {c for c in rows if c not in left_out}, inner)
        pq.write_table(arrow if not with_ids else self.with_ids(arrow, table.schema()), target)
        builder = self.iceberg.DataFiles.builder(table.spec()).withPath(f"file:{target}").withFormat("parquet")
        builder = builder.withFileSizeInBytes(target.stat().st_size).withRecordCount(count)
        if partition:
            texts = {c: str(v).lower() if isinstance(v, bool) else str(v) for c, v in partition.items()}
            fields = [str(f.name()) for f in table.spec().fields() if not f.transform().isVoid()]
            by_field = {str(f.name()): str(table.schema().findColumnName(f.sourceId())) for f in table.spec().fields()}
            builder = builder.withPartitionValues(self.java_list([texts[by_field[f]] for f in fields]))
        if self.draw.random() < 0.5:
            input_file = table.io().newInputFile(f"file:{target}")
            config = self.iceberg.MetricsConfig.forTable(table)
            parser, text = self.iceberg.mapping.NameMappingParser, table.properties().get("schema.name-mapping.default")
            metrics = self.iceberg.parquet.ParquetUtil.fileMetrics(
                input_file, config, None if text is None else parser.fromJson(text)
            )
            builder = builder.withMetrics(metrics)
        table.newAppend().appendFile(builder.build()).commit()
        self.sql("REFRESH TABLE {}")

    def append(self):
        """PyIceberg writes."""
        if self.version == 3 or self.other:
            return
        rows = self.rows(self.draw.randint(1, 3))
        stored = self.catalog.load_table(self.name.replace("`", "").removeprefix("cleantail."))
        stored.append(self.arrow(rows, set(rows)).select([f.name for f in stored.schema().fields]))
        self.sql("REFRESH TABLE {}")

    def java_list(self, texts):
        made = self.spark._jvm.java.util.ArrayList()
        for text in texts:
            made.add(text)
        return made

    # rows

    def rows(self, count):
        first, self.next = self.next, self.next + count
        rows = {}
        for name, kind in self.kinds.items():
            if name in ("p", "o", "ts"):
                rows[name] = {
                    "p": [0] * count,
                    "o": list(range(first, first + count)),
                    "ts": [NOW + n if kind == "bigint" else NOW * 1000 + n for n in range(count)],
                }[name]
            elif name == "op":
                rows[name] = [self.draw.choice(("c", "d", None)) for _ in range(count)]
            else:
                rows[name] = [self.value(kind) for _ in range(count)]
        rows["s"] = [
            None if self.draw.random() < 0.3 else {c: self.value(k) for c, k in self.inner.items()}
            for _ in range(count)
        ]
        rows["h"] = [self.draw.choice((None, [], [{"key": "a", "value": b"\x01"}])) for _ in range(count)]
        return rows

    def value(self, kind):
        values = KINDS[kind][1] if kind in KINDS else [Decimal("12345678901.20"), None]
        return None if self.draw.random() < 0.2 else self.draw.choice(values)

    def type_of(self, kind):
        return KINDS[kind][0] if kind in KINDS else pa.decimal128(18, 2)

    def arrow(self, rows, names, inner=None):
        header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        types = {c: self.type_of(k) for c, k in self.kinds.items()}
        in_struct = [(c, self.type_of(k)) for c, k in self.inner.items() if inner is None or c in inner]
        types |= {"s": pa.struct(in_struct), "h": header}
        return pa.table({c: pa.array(rows[c], types[c]) for c in rows if c in names})

    def arrow_rows(self, count):
        rows = self.rows(count)
        return self.spark.createDataFrame(self.arrow(rows, set(rows)))

    def with_ids(self, arrow, schema):
        def field(each, path):
            kind = each.type
            if pa.types.is_struct(kind):
                kind = pa.struct([field(kind.field(n), f"{path}.{kind.field(n).name}") for n in range(kind.num_fields)])
            elif pa.types.is_list(kind):
                kind = pa.list_(field(kind.value_field, f"{path}.element"))
            number = str(schema.findField(path).fieldId()).encode()
            return pa.field(each.name, kind, metadata={FIELD_ID: number})

        return arrow.cast(pa.schema([field(each, each.name) for each in arrow.schema]))

    def columns(self):
        """A mapping of the columns that there are now."""
        paths = [c for c, k in self.kinds.items() if c.startswith("k")] + [f"s.{c}" for c in self.inner]
        kind_of = self.kinds | {f"s.{c}": k for c, k in self.inner.items()}
        fitting = [c for c in paths if problem_of("key", kind_of[c]) is None]
        key = tuple(self.draw.sample(fitting, min(len(fitting), self.draw.randint(1, 4))))
        deleted = Deleted(column="op", values=("d",)) if self.draw.random() < 0.5 else None
        return Columns(partition="p", offset="o", timestamp="ts", key=key if len(key) > 1 else key[0], value="v",
                       headers="h", deleted=deleted)  # fmt: skip


ACTS = ("insert", "append", "register", "register", "register", "add_column", "add_inner", "rename", "drop_and_add",
        "promote", "change_spec")  # fmt: skip


@contextmanager
def whole_structs(spark):
    """Of a struct with nothing but defaults in the columns that are read, Spark does not see where it is null."""
    name = "spark.sql.optimizer.nestedSchemaPruning.enabled"
    spark.conf.set(name, "false")
    yield
    spark.conf.unset(name)


def by_readers(table, columns, catalog):
    """What status and latest read, without Spark: records by offset, and what the files have by their metadata."""
    stored = catalog.load_table(table.name.replace("`", "").removeprefix("cleantail."))
    records = adopted_records(stored, columns, None, 0).to_pylist()
    parts = [part for task in stored.scan().plan_files() for part in parts_of(stored, task.file, columns)]
    assert all(part.partition == 0 for part in parts)
    sums = [sum(numbers) for numbers in zip(*((p.records, p.nulls or 0, p.null_keys or 0) for p in parts), strict=True)]
    stamps = [s for p in parts for s in (p.min_timestamp_ms, p.max_timestamp_ms) if s >= 0]
    ends = min(p.lower_offset for p in parts), max(p.upper_offset for p in parts), min(stamps), max(stamps)
    return {
        r["offset"]: (r["partition"], r["key"], r["timestamp"], r["value"],
                      None if r["headers"] is None else [(h["key"], h["value"]) for h in r["headers"]])
        for r in records
    }, sums, ends  # fmt: skip


def summed(rows):
    """The same by Spark's rows."""
    stamps = [r.micros // 1000 for r in rows if r.micros is not None]
    ends = min(r.offset for r in rows), max(r.offset for r in rows), min(stamps), max(stamps)
    return {
        r.offset: (r.partition, r.key and bytes(r.key), r.stamp and r.stamp.replace(tzinfo=UTC),
                   r.value if r.value is None else bytes(r.value),
                   None if r.headers is None else [(h.key, bytes(h.value)) for h in r.headers])
        for r in rows
    }, [len(rows), sum(r.value is None for r in rows), sum(r.key is None for r in rows)], ends  # fmt: skip


def rows_of(table, columns):
    stored = table.spark.table(table.name)
    paths = dict.fromkeys(columns.paths.values())
    kinds = {p: stored.select(p).schema[0].dataType.simpleString() for p in paths}
    select = [f"{sql} AS `{name}`" for name, sql in expressions(columns, kinds).items()]
    more = ("unix_micros(timestamp) AS micros", "to_timestamp_ntz(timestamp) AS stamp")
    return stored.selectExpr(*select, "_file", "_pos").selectExpr("*", *more).collect()


def by_spark(rows):
    return {
        (r["_file"], r["_pos"]): (
            r.partition, r.offset, None if r.key is None else bytes(r.key), r.micros, r.value is None,
            None if r.headers is None else [(h.key, bytes(h.value)) for h in r.headers],
        )
        for r in rows
    }  # fmt: skip


def by_task(table, columns):
    iceberg = table.java
    files = SnapshotFiles(table.spark._jvm, iceberg, int(iceberg.currentSnapshot().snapshotId()), columns)
    mark = "tombstone" if columns.deleted else "value"
    names, found = ["partition", "offset", "key", "timestamp", mark, "headers"], {}
    for file in files.log_files([0]):
        assert file.log in (0, None)
        for at, arrays in column_batches(load_file_io({}, file.path), file, files.layout, names):
            stamps = arrays["timestamp"].cast(pa.int64()).to_pylist()
            gone = [v is None if mark == "value" else v for v in arrays[mark].to_pylist()]
            headers = [
                None if h is None else [(each["key"], each["value"]) for each in h]
                for h in arrays["headers"].to_pylist()
            ]
            rows = zip(
                arrays["partition"].to_pylist(), arrays["offset"].to_pylist(), arrays["key"].to_pylist(), stamps, gone,
                headers, strict=True,
            )  # fmt: skip
            found |= {(file.path, at + n): row for n, row in enumerate(rows)}
            keyless = sum(row[2] is None for row in found.values())
            assert file.null_keys is None or len(files.log_files([0])) > 1 or file.null_keys == keyless
    return found


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[] if seed < 2 else pytest.mark.deep) for seed in range(60)])
def test_a_task_reads_what_sparks_iceberg_reads(workshop, spark, seed):
    workshop.platform()
    spark.sql("CREATE NAMESPACE IF NOT EXISTS cleantail.sinks")
    table = RandomTable(spark, f"agree-{seed}", seed)
    table.catalog = catalog = open_catalog(workshop.platform())
    table.insert()
    done = []
    for _ in range(10):
        act = table.draw.choice(ACTS)
        done.append(act)
        getattr(table, act)()
        if table.draw.random() < 0.3:
            table.insert()
    for _ in range(2):
        columns = table.columns()
        try:
            with whole_structs(spark):
                rows = rows_of(table, columns)
        except Py4JJavaError as e:
            assert "ClassCastException" in str(e)  # Spark's own reader mistakes a field of a struct for another
            return
        assert by_task(table, columns) == by_spark(rows), (table.version, done, columns)
        assert by_readers(table, columns, catalog) == summed(rows), (table.version, done, columns)

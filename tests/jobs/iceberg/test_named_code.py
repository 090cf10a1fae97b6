"""A table's properties name no code and no store for the JVM: what Iceberg would load of one is refused."""

from __future__ import annotations

import re

import pytest

from cleantail.errors import TableError
from cleantail.lake.metadata_guards import NAMES_CODE
from spark_jobs.iceberg.iceberg_reads import iceberg_table

pytestmark = pytest.mark.integration

OF_TABLES = """
comment commit.manifest-merge.enabled commit.manifest.min-count-to-merge commit.manifest.target-size-bytes
commit.retry.max-wait-ms commit.retry.min-wait-ms commit.retry.num-retries commit.retry.total-timeout-ms
commit.status-check.max-wait-ms commit.status-check.min-wait-ms commit.status-check.num-retries
commit.status-check.total-timeout-ms compatibility.snapshot-id-inheritance.enabled current-schema current-snapshot-id
current-snapshot-summary current-snapshot-timestamp-ms default-partition-spec default-sort-order
encryption.data-key-length encryption.key-id engine.hive.enabled engine.hive.lock-enabled format-version gc.enabled
history.expire.max-ref-age-ms history.expire.max-snapshot-age-ms history.expire.min-snapshots-to-keep
identifier-fields.rely read.data-planning-mode read.delete-planning-mode read.orc.vectorization.batch-size
read.orc.vectorization.enabled read.parquet.vectorization.batch-size read.parquet.vectorization.enabled
read.split.adaptive-size.enabled read.split.metadata-target-size read.split.open-file-cost
read.split.planning-lookback read.split.target-size schema.name-mapping.default snapshot-count uuid
write.avro.compression-codec write.avro.compression-level write.data.path write.delete.avro.compression-codec
write.delete.avro.compression-level write.delete.distribution-mode write.delete.format.default
write.delete.granularity write.delete.isolation-level write.delete.mode write.delete.orc.block-size-bytes
write.delete.orc.compression-codec write.delete.orc.compression-strategy write.delete.orc.stripe-size-bytes
write.delete.orc.vectorized.batch-size write.delete.parquet.compression-codec write.delete.parquet.compression-level
write.delete.parquet.dict-size-bytes write.delete.parquet.page-row-limit write.delete.parquet.page-size-bytes
write.delete.parquet.page-version write.delete.parquet.row-group-check-max-record-count
write.delete.parquet.row-group-check-min-record-count write.delete.parquet.row-group-size-bytes
write.delete.target-file-size-bytes write.distribution-mode write.folder-storage.path write.format.default
write.manifest-lists.enabled write.manifest.compression-codec write.manifest.compression-level
write.merge.distribution-mode write.merge.isolation-level write.merge.mode write.metadata.compression-codec
write.metadata.delete-after-commit.enabled write.metadata.metrics.column. write.metadata.metrics.default
write.metadata.metrics.max-inferred-column-defaults write.metadata.path write.metadata.previous-versions-max
write.object-storage.enabled write.object-storage.partitioned-paths write.object-storage.path
write.orc.block-size-bytes write.orc.bloom.filter.columns write.orc.bloom.filter.fpp write.orc.compression-codec
write.orc.compression-strategy write.orc.stripe-size-bytes write.orc.vectorized.batch-size
write.parquet.bloom-filter-enabled.column. write.parquet.bloom-filter-fpp.column. write.parquet.bloom-filter-max-bytes
write.parquet.bloom-filter-ndv.column. write.parquet.compression-codec write.parquet.compression-level
write.parquet.dict-size-bytes write.parquet.page-row-limit write.parquet.page-size-bytes write.parquet.page-version
write.parquet.row-group-check-max-record-count write.parquet.row-group-check-min-record-count
write.parquet.row-group-size-bytes write.parquet.shred-variants write.parquet.stats-enabled.column.
write.parquet.variant-inference-buffer-size write.spark.accept-any-schema write.spark.advisory-partition-size-bytes
write.spark.auto-schema-evolution.enabled write.spark.fanout.enabled write.summary.partition-limit
write.target-file-size-bytes write.update.distribution-mode write.update.isolation-level write.update.mode
write.upsert.enabled write.wap.enabled
""".split()  # noqa: SIM905
"""What Iceberg reads of a table's properties and is data: numbers, modes, folders (which neighbours.py looks at), the
name of a key that the catalog's own key server has."""


def names_of(spark, kind):
    """The names of properties that a class of Iceberg has as constants; its defaults are none."""
    fields = spark._jvm.java.lang.Class.forName(f"org.apache.iceberg.{kind}").getFields()
    texts = [
        f.get(None) for f in fields if f.getType().getSimpleName() == "String" and "DEFAULT" not in f.getName()[-9:]
    ]
    return {text for text in texts if text and re.search(r"[.-]|comment|uuid", text)}


def test_each_property_that_iceberg_has_for_a_table_is_known_to_be_data_or_refused(spark):
    names = names_of(spark, "TableProperties") - {"truncate(16)"}
    assert {name for name in names if NAMES_CODE.fullmatch(name)} == {"write.location-provider.impl"}
    unread = names - set(OF_TABLES) - {"write.location-provider.impl"}
    assert unread == set(), "new in this Iceberg: look whether it makes code, a store or a login of them"


def test_each_property_by_which_a_catalog_of_iceberg_loads_a_class_is_refused_in_a_table(spark):
    loading = {name for name in names_of(spark, "CatalogProperties") if re.search(r"impl|class|factory", name)}
    assert {"io-impl", "metrics-reporter-impl", "encryption.kms-impl"} <= loading
    assert [name for name in sorted(loading) if not NAMES_CODE.fullmatch(name)] == []


NAMED = {
    "write.location-provider.impl": "java.util.Random",
    "fs.file.impl": "java.util.Random",
    "fs.s3a.endpoint": "http://evil.example",
}
RECORDS = [(0, 0, 1000, "a", "x"), (0, 1, 1000, "a", "y"), (0, 2, 10**9, "b", "z")]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "fs.s3a.endpoint" else pytest.mark.deep) for name in NAMED]
)
def test_adopt_and_each_command_that_writes_refuse_a_table_that_names_code(workshop, redpanda, adopted, spark, name):
    value, topic = NAMED[name], f"named-{name.replace('.', '-')}"
    fresh = redpanda(f"{topic}-new", RECORDS)
    spark.sql(f"ALTER TABLE cleantail.sinks.`{topic}-new` SET TBLPROPERTIES ('{name}'='{value}')")
    code, _, err = workshop.run("adopt", fresh)
    assert code == 2 and f"has the property {name}" in err and "Traceback" not in err
    _, table = adopted(topic, RECORDS)
    full = f"cleantail.sinks.`{topic}`"
    spark.sql(f"ALTER TABLE {full} SET TBLPROPERTIES ('{name}'='{value}')")
    before = spark.sql(f"SELECT count(*) AS n FROM {full}.snapshots").collect()[0].n
    for command in (["compact", topic, "--force"], ["check", topic]):
        code, _, err = workshop.run(*command)
        assert code != 0 and f"has the property {name}" in err and "Traceback" not in err, (command, err)
    workshop.ok("status", topic)
    assert spark.sql(f"SELECT count(*) AS n FROM {full}.snapshots").collect()[0].n == before
    with pytest.raises(TableError, match=f"has the property {re.escape(name)}"):
        iceberg_table(spark, full)


def test_a_table_that_a_topic_reads_may_not_name_code(sink, workshop, reading):
    lake = sink("names-code")
    lake.append((0, 0, 5, "a", "x"))
    topic = reading("table-names-code", lake)
    lake.sql("ALTER TABLE {} SET TBLPROPERTIES ('write.location-provider.impl'='java.util.Random')")
    code, _, err = workshop.run("ingest", topic)
    assert code != 0 and "has the property write.location-provider.impl" in err and "Traceback" not in err

"""A scan finds erased keys wherever a table can have them, by readers that rounds do not use."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import BinaryType, LongType, NestedField, StringType, StructType
from pyroaring import BitMap64

from cleantail.erasure import proof
from cleantail.erasure.erased_keys import ErasedKeys, ErasureSecret
from cleantail.erasure.proof import scan_table
from cleantail.errors import ConflictError, TableError
from spark_jobs.iceberg.log_files import puffin_file

KEYS = ErasedKeys.of("t", ErasureSecret(bytes(range(32))), pa.array([b"gone", b"gone too"]))
SCHEMA = Schema(NestedField(1, "offset", LongType()), NestedField(2, "key", BinaryType()))


@pytest.fixture
def catalog(tmp_path):
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("n")
    return catalog


@pytest.fixture
def table(catalog):
    return catalog.create_table("n.t", SCHEMA)


def rows(*keys, first=0):
    return pa.table(
        {"offset": pa.array(range(first, first + len(keys)), pa.int64()), "key": pa.array(keys, pa.binary())}
    )


def folder(table) -> Path:
    return Path(table.location().removeprefix("file://"))


def test_files_and_manifests_with_an_erased_key_are_found_and_others_are_not(table):
    table.append(rows(b"gone", b"stays"))
    table.append(rows(b"stays", None, first=2))
    scan = scan_table(table, KEYS, ("key",))
    [(name, holding)] = scan.holding.items()
    assert (holding.records, holding.erased, scan.read) == (2, 1, (2, 4))
    manifests = {m for s in scan.lists for m in scan.manifests_of(s) for e in scan.entries[m] if e.name == name}
    assert scan.tainted == {name, *manifests}
    assert len(scan.tainted_snapshots) == 2
    assert len(scan.problems()) == 1 and "erased key" in scan.problems()[0]


def test_a_table_without_the_keys_has_no_problem(table):
    table.append(rows(b"stays"))
    assert scan_table(table, KEYS, ("key",)).problems() == []


def test_records_that_are_deleted_from_main_are_found_in_their_old_file_and_in_the_manifest_that_removed_it(table):
    table.append(rows(b"gone", b"stays"))
    table.delete(EqualTo("key", b"gone"))  # copy on write: the old file is of the first snapshot only
    scan = scan_table(table, KEYS, ("key",))
    assert len(scan.holding) == 1
    assert scan.snapshot_id in scan.tainted_snapshots  # its manifest names the removed file, with bounds
    # without that file nobody knows of which keys the bounds are
    [name] = scan.holding
    (folder(table) / name).unlink()
    again = scan_table(table, KEYS, ("key",))
    assert not again.holding and again.tainted and again.missing == [name]


def test_a_file_that_the_metadata_do_not_name_is_read_too(table):
    table.append(rows(b"stays"))
    pq.write_table(rows(b"gone"), folder(table) / "data" / "left.parquet")
    scan = scan_table(table, KEYS, ("key",))
    assert scan.left() == ["data/left.parquet"] and not scan.tainted_snapshots


def test_a_file_without_a_column_for_the_key_or_of_another_kind_is_unread_and_prevents_a_proof(table):
    table.append(rows(b"stays"))
    pq.write_table(pa.table({"other": ["gone"]}), folder(table) / "data" / "strange.parquet")
    (folder(table) / "data" / "strange.orc").write_bytes(b"ORC")
    scan = scan_table(table, KEYS, ("key",))
    assert scan.unread == ("data/strange.orc", "data/strange.parquet")
    assert "cannot be read" in scan.problems()[0]


def test_a_delete_file_by_position_has_no_keys_and_is_passed(table):
    table.append(rows(b"stays"))
    positions = pa.table({"file_path": ["f"], "pos": pa.array([1], pa.int64())})
    pq.write_table(positions, folder(table) / "data" / "deletes.parquet")
    assert scan_table(table, KEYS, ("key",)).problems() == []


def test_a_file_that_was_written_before_the_column_was_renamed_is_read_by_its_old_name(table):
    table.append(rows(b"gone"))
    with table.update_schema() as update:
        update.rename_column("key", "id")
    assert len(scan_table(table, KEYS, ("id",)).holding) == 1


@pytest.mark.parametrize("place", ["near", "far"])
def test_a_column_that_took_the_name_of_another_is_found_in_old_files_by_its_id(catalog, place, request):
    schema = Schema(NestedField(1, "b", BinaryType()), NestedField(2, "a", LongType()))
    table = catalog.create_table("n.r", schema)
    table.append(pa.table({"b": pa.array([b"gone", b"stays"]), "a": pa.array([1, 2], pa.int64())}))
    with table.update_schema() as update:
        update.delete_column("a")
    with table.update_schema() as update:
        update.rename_column("b", "a")
    if place == "far":
        request.getfixturevalue("far")
    scan = scan_table(table, KEYS, ("a",))
    [holding] = scan.holding.values()
    assert (holding.erased, scan.unread) == (1, ())


def test_a_key_in_a_struct_and_one_of_several_parts_are_read_as_rounds_read_them(catalog):
    inner = StructType(NestedField(3, "id", StringType()), NestedField(4, "n", LongType()))
    table = catalog.create_table("n.s", Schema(NestedField(1, "offset", LongType()), NestedField(2, "k", inner)))
    struct = pa.struct([("id", pa.string()), ("n", pa.int64())])
    table.append(pa.table({"offset": pa.array([0], pa.int64()), "k": pa.array([{"id": "gone", "n": 7}], struct)}))
    assert len(scan_table(table, KEYS, ("k.id",)).holding) == 1
    both = ErasedKeys.of("t", ErasureSecret(bytes(range(32))), pa.array([b"4:gone1:7"]))
    assert len(scan_table(table, both, ("k.id", "k.n")).holding) == 1
    assert scan_table(table, KEYS, ("k.id", "k.n")).holding == {}


def test_a_partition_by_the_key_shows_it_in_names_and_is_refused_unless_it_is_a_bucket(catalog):
    by_key = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "key"))
    with pytest.raises(TableError, match="partitioned by its key"):
        scan_table(catalog.create_table("n.p", SCHEMA, partition_spec=by_key), KEYS, ("key",))
    by_bucket = PartitionSpec(PartitionField(2, 1000, BucketTransform(4), "key_bucket"))
    assert scan_table(catalog.create_table("n.b", SCHEMA, partition_spec=by_bucket), KEYS, ("key",)).problems() == []


def test_what_only_an_excluded_tag_reaches_is_no_problem(table):
    table.append(rows(b"gone"))
    table.manage_snapshots().create_tag(table.metadata.current_snapshot_id, "audit").commit()
    table.delete(EqualTo("key", b"gone"))
    table.append(rows(b"stays"))
    scan = scan_table(table.catalog.load_table("n.t"), KEYS, ("key",))
    assert set(scan.holding) <= set(scan.left())
    assert not set(scan.holding) & set(scan.left({"audit"}))
    assert [(kept.records, kept.erased) for kept in scan.kept_by("audit")] == [(1, 1)]
    assert scan.kept_by("main") == scan.kept_by("of another table") == []


def test_what_main_reaches_as_well_as_an_excluded_tag_is_a_problem(table):
    table.append(rows(b"gone"))
    table.manage_snapshots().create_tag(table.metadata.current_snapshot_id, "audit").commit()
    assert scan_table(table, KEYS, ("key",)).left({"audit"})
    table.append(rows(b"stays"))
    assert scan_table(table, KEYS, ("key",)).left({"audit"})


def test_a_scan_of_the_metadata_alone_reads_no_records(table):
    table.append(rows(b"gone"))
    scan = scan_table(table, None, ("key",))
    assert (scan.holding, scan.read, len(scan.reached())) == ({}, (0, 0), 4)


@pytest.mark.parametrize(
    "name",
    [
        "data/backup.stats",
        "data/x.puffin",
        "metadata/dump.metadata.json",
        "data/00001.metadata.json",
        "data/version-hint.text",
        "metadata/version-hint.text",
        "data/gone.crc",
        "data/.absent.crc",
    ],
)
def test_an_object_is_not_passed_by_the_end_of_its_name(table, name):
    table.append(rows(b"stays"))
    assert scan_table(table, KEYS, ("key",)).problems() == []
    file = folder(table) / name
    file.write_bytes(b'{"a": "gone"}')
    [problem] = scan_table(table, KEYS, ("key",)).problems()
    assert problem == f"n.t: {name} cannot be read by a scan"


def test_a_deletion_vector_of_no_snapshot_is_passed_if_the_file_has_nothing_else(table, monkeypatch):
    """A round that was given up may leave one, and reclaim removes it days later."""
    table.append(rows(b"stays"))
    parts, _ = puffin_file([("data/a.parquet", BitMap64([1, 5])), ("data/b.parquet", BitMap64([2]))])
    content, file = b"".join(parts), folder(table) / "data" / "x.puffin"
    file.write_bytes(content)
    assert scan_table(table, KEYS, ("key",)).problems() == []
    magic, blobs, footer = content[:4], content[4 : content.rindex(b"PFA1{")], content[content.rindex(b"PFA1{") :]
    others = (
        magic + blobs + b"gone" + footer,
        magic + blobs[:-1] + footer,
        content.replace(b"deletion-vector-v1", b"deletion-vector-v0"),
        content.replace(b'"cardinality"', b'"gonality"   '),
        content[:-1],
        magic + blobs[:20] + bytes([blobs[20] ^ 1]) + blobs[21:] + footer,  # its checksum is wrong
    )
    for other in others:
        assert other != content
        file.write_bytes(other)
        assert scan_table(table, KEYS, ("key",)).problems() == ["n.t: data/x.puffin cannot be read by a scan"]
    file.write_bytes(content)
    with monkeypatch.context() as patch:
        patch.setattr(proof, "PORTION_BYTES", len(content) - 1)  # no large file of an unknown owner is read whole
        assert scan_table(table, KEYS, ("key",)).unread == ("data/x.puffin",)


def test_checksums_and_the_hint_of_hadoop_are_passed(table):
    table.append(rows(b"stays"))
    [file] = (folder(table) / "data").rglob("*.parquet")
    chunks = -(-file.stat().st_size // 512)
    (file.parent / f".{file.name}.crc").write_bytes(b"crc\0" + bytes(4 + 4 * chunks))
    (folder(table) / "metadata" / "version-hint.text").write_text("3\n")
    assert scan_table(table, KEYS, ("key",)).problems() == []


@pytest.mark.parametrize("content", [b"", b"PAR1half"], ids=["empty", "half"])
def test_a_damaged_file_of_no_snapshot_prevents_a_proof_by_its_name(table, content):
    table.append(rows(b"gone"))
    (folder(table) / "data" / "part.parquet").write_bytes(content)
    (folder(table) / "metadata" / "half.avro").write_bytes(content)
    scan = scan_table(table, KEYS, ("key",))
    assert scan.unread == ("data/part.parquet", "metadata/half.avro") and len(scan.holding) == 1


def test_each_damaged_file_is_named_because_a_person_moves_it_away(table):
    table.append(rows(b"stays"))
    names = [f"metadata/0000{n}-x.gz.metadata.json" for n in range(9)]
    for name in names:
        (folder(table) / name).write_bytes(b"half")
    [problem] = scan_table(table, KEYS, ("key",)).problems()
    assert problem == f"n.t: {', '.join(names)} cannot be read by a scan"


def test_a_damaged_manifest_of_a_snapshot_is_an_error_because_its_files_are_unknown(table):
    table.append(rows(b"gone"))
    manifest = table.current_snapshot().manifests(table.io)[0].manifest_path.removeprefix("file://")
    Path(manifest).write_bytes(b"half")
    with pytest.raises(TableError, match="is missing or damaged"):
        scan_table(table, KEYS, ("key",))


@pytest.mark.parametrize("kind", ["manifest list", "data file"])
def test_a_missing_file_is_a_conflict_if_its_snapshot_has_expired_since_the_table_was_loaded(table, kind):
    table.append(rows(b"gone"))
    table.overwrite(rows(b"stays"))
    first, *_ = table.snapshots()
    [data] = [
        entry.data_file for manifest in first.manifests(table.io) for entry in manifest.fetch_manifest_entry(table.io)
    ]
    missing = {"manifest list": first.manifest_list, "data file": data.file_path}[kind]
    Path(missing.removeprefix("file://")).unlink()
    if kind == "manifest list":
        with pytest.raises(TableError, match="is missing or damaged"):
            scan_table(table, KEYS, ("key",))
    else:
        assert scan_table(table, KEYS, ("key",)).missing
    table.catalog.load_table("n.t").maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    with pytest.raises(
        ConflictError, match="n.t was changed while it was read, and snapshots expired: run the command"
    ):
        scan_table(table, KEYS, ("key",))


class Counted:
    """An object of a store. The sizes of all reads are kept."""

    closed = False
    read_bytes: list[int] = []

    def __init__(self, stream):
        self._stream, self.seek, self.tell = stream, stream.seek, stream.tell

    def read(self, *size):
        content = self._stream.read(*size)
        self.read_bytes.append(len(content))
        return content

    def close(self):
        self._stream.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@pytest.fixture
def far(monkeypatch):
    """Parquet files are as far as in a bucket. Returns the sizes of reads."""
    opened = PyArrowFile.open
    monkeypatch.setattr(proof, "_is_local", lambda path: False)
    monkeypatch.setattr(
        PyArrowFile, "open", lambda f, *a: Counted(opened(f, *a)) if f.location.endswith(".parquet") else opened(f, *a)
    )
    monkeypatch.setattr(Counted, "read_bytes", sizes := [])
    return sizes


def test_of_an_object_in_a_bucket_only_the_key_column_is_downloaded_in_portions(table, far, monkeypatch):
    monkeypatch.setattr(proof, "PORTION_BYTES", 1_000)
    with table.update_schema() as update:
        update.add_column("value", BinaryType())
    values = pa.array([os.urandom(1_000) for _ in range(3_000)], pa.binary())
    table.append(rows(*(b"stays", None, b"gone") * 1_000).append_column("value", values))
    [size] = [file.stat().st_size for file in folder(table).rglob("*.parquet")]
    [holding] = scan_table(table, KEYS, ("key",)).holding.values()
    assert (holding.records, holding.erased) == (3_000, 1_000)
    assert size > 3_000_000 and 0 < sum(far) < 150_000 and max(far) <= 65_536


def test_a_damaged_object_in_a_bucket_prevents_a_proof_by_its_name(table, far):
    table.append(rows(b"gone"))
    data = folder(table) / "data"
    [file] = data.rglob("*.parquet")
    content = file.read_bytes()
    (data / "cut.parquet").write_bytes(content[: len(content) // 2])
    (data / "empty.parquet").write_bytes(b"")
    (data / "whole.parquet").write_bytes(content)
    (data / "whole#1.parquet").write_bytes(content)  # PyIceberg reads "#1.parquet" as no part of the object's name
    scan = scan_table(table, KEYS, ("key",))
    assert scan.unread == ("data/cut.parquet", "data/empty.parquet", "data/whole#1.parquet")
    assert len(scan.holding) == 2

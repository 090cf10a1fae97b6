"""Read the data files of logs and their deletes, and write delete files.

A delete file has all deleted positions of one data file. Tasks read with PyIceberg's IO, the driver with the table's
own IO. Format version 3 uses deletion vectors: one Puffin file for each log and round. Version 2, for sinks that do not
support version 3, uses position deletes in Parquet: one small file for each data file.

The bytes of deletion vectors (Iceberg's Puffin specification):

1. A blob `deletion-vector-v1` is a length, a magic number, a 64-bit Roaring bitmap in the portable format, and a CRC.
2. A Puffin file is its magic, the blobs, and a footer with their places: magic, a JSON text, its length, four bytes of
   flags (all 0: the text is not compressed), magic.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash
from pyiceberg.io import FileIO
from pyiceberg.table.puffin import MAGIC_BYTES, Footer, PuffinBlobMetadata
from pyroaring import BitMap64

from cleantail.adopt.adoption import VECTORS_VERSION
from cleantail.config.topic_table import KEY, OFFSET, TOMBSTONE, VALUE
from cleantail.errors import TableError
from cleantail.lake.manifest_entries import open_parquet
from cleantail.lake.metadata_guards import most_delete_bytes
from cleantail.lake.position_deletes import (
    PATH_ID,
    VECTOR_MAGIC,
    miscounted,
    positions_of_file,
    read_vector,
    require_bytes,
    vector_name,
    vector_positions,
)
from cleantail.log.adopted_table import LAST_UPDATED, LINEAGE_IDS, ROW_ID, Lineage, record_offsets
from spark_jobs.iceberg.file_columns import (
    FIELD_ID,
    Constants,
    Layout,
    Projection,
    has_offsets,
    note_kind,
    parts_in,
    topic_arrays,
)
from spark_jobs.iceberg.file_facts import DeletedPositions, FileFacts
from spark_jobs.iceberg.java_calls import DescribedFiles, static

BATCH_RECORDS = 1 << 17
CERTAIN_BYTES = 1 << 20
"""Maximum size of values that are always read. For larger values the column `tombstone` may be read instead."""

Deletes = tuple[DeletedPositions, ...]
"""The delete files of one registration of a data file."""
FileName = tuple[int, int]
"""Key of a file, or of a piece of it: the hash of the file's name, and the number of the piece."""


@dataclass(frozen=True, slots=True)
class FileDeletes:
    """The deletes of a data file: `before` and `again` as in LogFile."""

    before: Deletes
    again: tuple[Deletes, ...]


@dataclass(frozen=True, slots=True)
class LogFile:
    """A Parquet file with records of one log, or of several (`log` is None), and its facts in Iceberg's metadata.

    Bounds of offsets are inclusive. Bounds of keys are cut short: the lower one is at most the lowest key, the upper
    one at least the highest. A bound is None if the metadata lack it.

    `arrived`: its data sequence number. `first_row_id`: the row id of its first record, or None.
    `updated`: its file sequence number if offsets are made of row lineage, else 0.
    `before` and `after`: its delete files in base and branch. `lost`: the branch no longer has the file.
    `marked`: the column `tombstone` has a value in every record.
    `again`: the delete files of each further registration, if the table names the file more than once. Then `before`
    are those of the last registration, since they apply to all, and `arrived` is that of the first.
    `key_bytes`: compressed size of its keys.
    `constants`: values of the file's partition for columns that the file may lack.
    `piece` of `pieces`: the share of its row groups that this object stands for.
    """

    hash: int
    path: str
    records: int
    log: int | None
    lower_offset: int | None
    upper_offset: int | None
    low_key: bytes | None
    high_key: bytes | None
    null_keys: int | None
    null_values: int | None
    marked: bool
    before: Deletes
    after: Deletes = ()
    lost: bool = False
    arrived: int = 0
    first_row_id: int | None = None
    updated: int = 0
    again: tuple[Deletes, ...] = ()
    key_bytes: int = 0
    row_groups: int = 1
    constants: Constants = ()
    piece: int = 0
    pieces: int = 1
    spec_id: int = 0

    @classmethod
    def without_log(cls, path: str, records: int, **facts: Any) -> Self:
        """Return a file whose records are read regardless of their log: it has no bounds and no hash."""
        nothing = dict.fromkeys(
            ("log", "lower_offset", "upper_offset", "low_key", "high_key", "null_keys", "null_values")
        )
        return cls(hash=0, path=path, records=records, marked=False, **{**nothing, "before": (), **facts})

    @property
    def name(self) -> FileName:
        return self.hash, self.piece

    def split(self, records: int) -> list[LogFile]:
        """Return pieces of about this number of records, which different tasks can read."""
        pieces = min(self.row_groups, -(-self.records // records))
        return [replace(self, piece=piece, pieces=pieces) for piece in range(pieces)] if pieces > 1 else [self]

    def may_hold(self, low: int, end: int) -> bool:
        inside = self.lower_offset is None or self.lower_offset < end
        return low < end and inside and (self.upper_offset is None or self.upper_offset >= low)

    def may_hold_all(self, offsets: pa.Array) -> bool:
        """Return whether these offsets are all within the file's bounds."""
        if not len(offsets):
            return True
        ends = pc.min_max(offsets)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        below = self.lower_offset is None or self.lower_offset <= low
        return below and (self.upper_offset is None or high <= self.upper_offset)

    def lies_in(self, low: int, end: int) -> bool:
        """Return whether the file's offsets are all in [low, end), by its bounds. False if it has none."""
        return (
            self.lower_offset is not None
            and self.upper_offset is not None
            and low <= self.lower_offset
            and self.upper_offset < end
        )

    def may_hold_keys(self, low: bytes | None, high: bytes | None) -> bool:
        """Return whether the file can have a key in [low, high]. Both are None if the range is empty."""
        if low is None or high is None:
            return False
        return (self.low_key is None or self.low_key <= high) and (self.high_key is None or self.high_key >= low)


def with_branch(base: Iterable[LogFile], branch: Mapping[str, FileDeletes]) -> list[LogFile]:
    """Return the files of the base, each with its deletes on the branch. `branch`: path -> deletes."""
    return [
        replace(file, after=branch[file.path].before) if file.path in branch else replace(file, lost=True)
        for file in base
    ]


def read_deletes_in_task(io: FileIO, deletes: Sequence[DeletedPositions], file: LogFile) -> BitMap64:
    """Return the deleted positions of a file. Raises TableError if they contradict the metadata."""
    positions = BitMap64()
    for each in deletes:
        found = _positions(io, each, file)
        # position deletes may name a record twice
        is_wrong = len(found) > each.count if each.start is None else len(found) != each.count
        if is_wrong or (found and found.max() >= file.records):
            is_vector = each.start is not None
            where = vector_name(each.path, each.start or 0) if is_vector else f"position delete file {each.path}"
            raise TableError(miscounted(where, len(found), each.count, file.records))
        positions |= found
    return positions


def _positions(io: FileIO, deletes: DeletedPositions, file: LogFile) -> BitMap64:
    if deletes.start is not None:
        return read_vector(io, deletes.path, deletes.start, deletes.length)
    with io.new_input(deletes.path).open() as stream:
        return positions_of_file(stream, file.path, deletes.path, most_delete_bytes(io), file.records)


def all_of(records: int) -> BitMap64:
    return BitMap64(range(records))


def alive(records: int, deleted: BitMap64) -> npt.NDArray[np.bool_]:
    mask = np.ones(records, dtype=np.bool_)
    mask[np.asarray(deleted.to_array(), dtype=np.int64)] = False
    return mask


def live_before(io: FileIO, file: LogFile) -> npt.NDArray[np.bool_]:
    """Return, for each record of the file, whether the base has it."""
    return alive(file.records, read_deletes_in_task(io, file.before, file))


def live_after(io: FileIO, file: LogFile) -> npt.NDArray[np.bool_]:
    """Return, for each record of the file, whether the branch has it."""
    return alive(file.records, all_of(file.records) if file.lost else read_deletes_in_task(io, file.after, file))


def column_batches(
    io: FileIO, file: LogFile, layout: Layout, columns: Sequence[str]
) -> Iterator[tuple[int, dict[str, pa.Array]]]:
    """Yield batches of the file's piece: (position of the first record, column -> array in a topic table's type).

    Includes deleted records, and columns that the file lacks (cleantail.lake.records.projection).
    Row lineage gives offsets that no column holds. Raises TableError as open_parquet does.
    """
    with io.new_input(file.path).open() as stream:
        parquet = open_parquet(stream, file.path, file.records)
        note_kind(parquet, file, layout)
        at, groups = _row_groups(parquet.metadata, file)
        by_value = TOMBSTONE in columns and not _marks_hold(parquet, layout, groups)
        if by_value:
            columns = [VALUE, *(c for c in columns if c not in (TOMBSTONE, VALUE))]
        parts = parts_in(layout, KEY) if KEY in columns else []
        makes_offsets = OFFSET in columns and not has_offsets(layout)
        lineage = LINEAGE_IDS if makes_offsets else ()
        projection = Projection(parquet.schema_arrow, layout, [*columns, *parts, *lineage], file.constants, file.path)
        for batch in parquet.iter_batches(BATCH_RECORDS, row_groups=groups, columns=projection.read, use_threads=False):
            arrays = topic_arrays(projection.arrays(batch), layout, file.path)
            if by_value:
                arrays[TOMBSTONE] = pc.is_null(arrays[VALUE])
            if makes_offsets:
                arrays = _with_offsets(arrays, file, at, batch.num_rows)
            yield at, arrays
            at += batch.num_rows


def _marks_hold(parquet: pq.ParquetFile, layout: Layout, groups: list[int]) -> bool:
    """Return whether the column `tombstone` can replace the values of these row groups, which then are not read.

    In an adopted table the column decides. In a topic's own table the value decides, because another engine may update
    the value alone. So the column is used only for large values, and only if it marks as many records as have no value.
    """
    if TOMBSTONE not in layout or layout[TOMBSTONE].marks is not None:
        return True
    footer, nulls, size = parquet.metadata, 0, 0
    names = [footer.schema.column(at).path for at in range(footer.num_columns)]
    if VALUE not in names or TOMBSTONE not in names:
        return False
    for number in groups:
        values = footer.row_group(number).column(names.index(VALUE))
        if not (values.is_stats_set and values.statistics.has_null_count):
            return False
        nulls += values.statistics.null_count
        size += values.total_compressed_size
    if size <= CERTAIN_BYTES:
        return False
    marks = (parquet.read_row_group(n, [TOMBSTONE], use_threads=False).column(TOMBSTONE) for n in groups)
    return sum(pc.sum(some).as_py() or 0 for some in marks) == nulls


def _with_offsets(arrays: dict[str, pa.Array], file: LogFile, at: int, records: int) -> dict[str, pa.Array]:
    """Return the columns of a batch, with offsets of row lineage."""
    own = [arrays.pop(name, None) for name in (ROW_ID, LAST_UPDATED)]
    lineage = Lineage(file.first_row_id, file.updated)
    offsets = record_offsets(range(at, at + records), lineage, file.path, *own)
    if not file.may_hold_all(offsets):
        raise TableError(f"{file.path} has other row ids than its metadata")
    return arrays | {OFFSET: offsets}


def _row_groups(footer: pq.FileMetaData, file: LogFile) -> tuple[int, list[int]]:
    """Return the position of the first record of the file's piece, and the row groups that begin in the piece."""
    first, at, groups = 0, 0, list[int]()
    for number in range(footer.num_row_groups):
        if at * file.pieces // max(file.records, 1) == file.piece:
            first = first if groups else at
            groups.append(number)
        at += footer.row_group(number).num_rows
    return first, groups


PART_BYTES = 8 << 20
ROW_POSITION_ID = 2_147_483_645
"""The field id that Iceberg's specification reserves for a row's position."""
NOT_COMMITTED: dict[str, object] = {"snapshot-id": -1, "sequence-number": -1}
"""A blob's snapshot before its commit."""
SPARK_SEED = 42


def vector_blob(positions: BitMap64) -> bytes:
    body = VECTOR_MAGIC + positions.serialize()
    return len(body).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


def puffin_file(vectors: Sequence[tuple[str, BitMap64]]) -> tuple[list[bytes], list[tuple[int, int]]]:
    """Return a Puffin file in parts, and each vector's (start, length). `vectors`: data file's name -> positions."""
    parts, places, described, at = [MAGIC_BYTES], list[tuple[int, int]](), [], len(MAGIC_BYTES)
    for data_file, positions in vectors:
        blob = vector_blob(positions)
        facts = NOT_COMMITTED | {
            "type": "deletion-vector-v1",
            "fields": [ROW_POSITION_ID],
            "offset": at,
            "length": len(blob),
            "properties": {"referenced-data-file": data_file, "cardinality": str(len(positions))},
        }
        described.append(PuffinBlobMetadata.model_validate(facts))
        parts.append(blob)
        places.append((at, len(blob)))
        at += len(blob)
    footer = Footer(blobs=described, properties={"created-by": "Cleantail"})
    text = footer.model_dump_json(by_alias=True, exclude_none=True).encode()
    parts += [MAGIC_BYTES, text, len(text).to_bytes(4, "little"), bytes(4), MAGIC_BYTES]
    return _in_large_parts(parts), places


def _in_large_parts(parts: Sequence[bytes]) -> list[bytes]:
    """Return the same bytes in parts of some MiB. Each part is written to the store in one call."""
    large, waiting, size = list[bytes](), list[bytes](), 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= PART_BYTES:
            large.append(b"".join(waiting))
            waiting, size = [], 0
    return [*large, b"".join(waiting)]


def file_hash(path: str) -> int:
    """Return Spark's xxhash64 of a file's name, a signed 64-bit number."""
    return int.from_bytes(xxhash.xxh64_digest(path.encode(), seed=SPARK_SEED), "big", signed=True)


POS_ID = 2_147_483_545
"""With PATH_ID, the field ids that Iceberg's specification reserves for the columns of a position delete file."""
WRITERS = 8
"""Maximum number of small files that are written at the same time."""

Lost = tuple[FileFacts, BitMap64]
"""A data file and all of its deleted positions. Only the file's name, spec and partition are used."""


def write_deletes(jvm: Any, table: Any, lost: Sequence[Lost]) -> list[Any]:
    """Write one Iceberg `DeleteFile` for each data file, and return them. Nothing is committed."""
    vectors = format_version(table) >= VECTORS_VERSION
    file_format = static(jvm, "org.apache.iceberg.FileFormat", "PUFFIN" if vectors else "PARQUET")
    builder = static(jvm, "org.apache.iceberg.io.OutputFileFactory", "builderFor")(table, 1, 1).format(file_format)
    output_files = (builder if vectors else builder.suffix("deletes")).build()
    if vectors:
        return delete_files_of(jvm, table, _write_vectors(output_files, lost))
    with ThreadPoolExecutor(WRITERS) as threads:
        written = list(threads.map(lambda one: _write_positions(output_files, one), lost))
    return delete_files_of(jvm, table, written)


def delete_files_of(jvm: Any, table: Any, described: Iterable[FileFacts]) -> list[Any]:
    by_spec: dict[int, list[FileFacts]] = {}
    for file in described:
        by_spec.setdefault(file.spec_id, []).append(file)
    return [
        made for spec_id, files in by_spec.items() for made in DescribedFiles(jvm, table, spec_id).delete_files(files)
    ]


def read_deletes_in_driver(table: Any, where: DeletedPositions, data_file: str) -> BitMap64:
    """Return the data file's positions in a delete file, by the table's own IO. Raises TableError."""
    require_bytes(where.length, limit := most_delete_bytes(), where.path)
    content = _content(table, where.path, where.start or 0, max(where.length, 0))
    if where.start is not None:
        return vector_positions(content, where.path)
    return positions_of_file(io.BytesIO(content), data_file, where.path, limit)


def format_version(table: Any) -> int:
    return int(table.operations().current().formatVersion())


def position_file(data_file: str, positions: BitMap64) -> bytes:
    """Return the content of a position delete file: (file_path, pos), ascending, as the specification requires."""
    pos = np.array(positions.to_array(), np.int64)
    path = pa.DictionaryArray.from_arrays(np.zeros(len(pos), dtype=np.int32), [data_file])
    schema = pa.schema([_field("file_path", pa.string(), PATH_ID), _field("pos", pa.int64(), POS_ID)])
    written = io.BytesIO()
    rows = pa.Table.from_arrays([path.cast(pa.string()), pa.array(pos)], schema=schema)
    pq.write_table(
        rows, written, compression="zstd", use_dictionary=["file_path"], column_encoding={"pos": "DELTA_BINARY_PACKED"}
    )
    return written.getvalue()


def _field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, nullable=False, metadata={FIELD_ID: str(number).encode()})


def _content(table: Any, path: str, start: int, length: int) -> bytes:
    stream = table.io().newInputFile(path).newStream()
    try:
        stream.seek(start)
        return bytes(stream.readNBytes(length))
    finally:
        stream.close()


def _write_positions(output_files: Any, lost: Lost) -> FileFacts:
    """Write a file with bounds, by which older readers recognize that it covers one data file."""
    data_file, positions = lost
    content = position_file(data_file.path, positions)
    location = _write(output_files, [content])
    low, high = (  # in Iceberg's single-value serialization
        {PATH_ID: data_file.path.encode().hex(), POS_ID: struct.pack("<q", pos).hex()}
        for pos in (positions.min(), positions.max())
    )
    return replace(_described(lost, "parquet", location, len(content)), lower_hex=low, upper_hex=high)


def _write_vectors(output_files: Any, lost: Sequence[Lost]) -> list[FileFacts]:
    """Write one Puffin file for each partition, and so for each log.

    A reader may apply all vectors of a Puffin file that it opens, also those of other data files. PyIceberg 0.12 does.
    With a common file such a reader would apply the deletes of a blocked partition, which are not published.
    """
    by_partition: dict[tuple[int, str], list[Lost]] = {}
    for file, positions in lost:
        by_partition.setdefault(file.partition_key, []).append((file, positions))
    with ThreadPoolExecutor(WRITERS) as threads:
        written = threads.map(lambda some: _write_puffin(output_files, some), by_partition.values())
        return [file for files in written for file in files]


def _write_puffin(output_files: Any, lost: Sequence[Lost]) -> list[FileFacts]:
    content, places = puffin_file([(file.path, positions) for file, positions in lost])
    location, size = _write(output_files, content), sum(map(len, content))
    return [
        replace(_described(one, "puffin", location, size), content_offset=start, content_bytes=length)
        for one, (start, length) in zip(lost, places, strict=True)
    ]


def _write(output_files: Any, content: Iterable[bytes]) -> str:
    output = output_files.newOutputFile().encryptingOutputFile()
    stream = output.create()
    try:
        for part in content:
            stream.write(part)
    finally:
        stream.close()
    return str(output.location())


def _described(lost: Lost, file_format: str, location: str, size: int) -> FileFacts:
    data_file, positions = lost
    return FileFacts(
        content="position-deletes",
        path=location,
        file_format=file_format,
        spec_id=data_file.spec_id,
        partition=data_file.partition,
        size_bytes=size,
        records=len(positions),
        column_sizes={},
        null_value_counts={},
        lower_hex={},
        upper_hex={},
        referenced_data_file=data_file.path,
    )

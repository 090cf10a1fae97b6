"""Read and write delete files through the table's own IO. Each file has all deleted positions of one data file.

Format version 3 uses deletion vectors: one Puffin file for each log and round. Version 2, for sinks that do not
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
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from pyiceberg.table.puffin import MAGIC_BYTES, Footer, PuffinBlobMetadata
from pyroaring import BitMap64

from cleantail.adopt.adoption import VECTORS_VERSION
from cleantail.lake.metadata_guards import most_delete_bytes
from cleantail.lake.position_deletes import PATH_ID, VECTOR_MAGIC, positions_of_file, require_bytes, vector_positions
from spark_jobs.iceberg.file_columns import FIELD_ID
from spark_jobs.iceberg.jvm.file_facts import DeletedPositions, FileFacts
from spark_jobs.iceberg.jvm.java_json import DescribedFiles
from spark_jobs.iceberg.jvm.static_members import static

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
    """Return the content of a Puffin file in parts, and the (start, length) of each vector. `vectors`: a data file's
    name, and its deleted positions."""
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
    """Return the data file's positions in a delete file, by the table's own IO.

    Tasks use log_files.read_deletes_in_task instead. Raises TableError if the delete file cannot be read.
    """
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
    low, high = (_bounds(data_file.path, pos) for pos in (positions.min(), positions.max()))
    return replace(_described(lost, "parquet", location, len(content)), lower_hex=low, upper_hex=high)


def _bounds(data_file: str, pos: int) -> dict[int, str]:
    """Return the bounds of both columns in Iceberg's single-value serialization."""
    return {PATH_ID: data_file.encode().hex(), POS_ID: struct.pack("<q", pos).hex()}


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

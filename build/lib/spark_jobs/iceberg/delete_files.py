"""Delete files of one data file each, read and written through the table's own IO: all positions that it has lost.

Of format version 3 they are deletion vectors, those of a round in one Puffin file. Of version 2, where a sink knows no
other, they are position deletes in Parquet, one small file for a data file.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from cleantail.adopt.adoption import VECTORS_VERSION
from cleantail.lake.position_deletes import PATH_ID, positions_of_file
from spark_jobs.iceberg.deletion_vectors import positions_of, vector_blob
from spark_jobs.iceberg.file_columns import FIELD_ID
from spark_jobs.iceberg.log_files import DeletedPositions

POS_ID = 2_147_483_545
"""With PATH_ID the field ids that Iceberg's specification reserves for the columns of a position delete file."""
WRITERS = 8
"""Small files of version 2 that are written at a time."""

Lost = tuple[Any, BitMap64]
"""A data file, and everything that it has lost."""


def write_deletes(jvm: Any, table: Any, lost: Sequence[Lost]) -> list[Any]:
    """Writes one Iceberg `DeleteFile` for each, and returns them in the same order. Nothing is committed."""
    if format_version(table) >= VECTORS_VERSION:
        return _write_vectors(jvm, table, lost)
    files = jvm.org.apache.iceberg.FileFormat.PARQUET
    output_files = (
        jvm.org.apache.iceberg.io.OutputFileFactory.builderFor(table, 1, 1).format(files).suffix("deletes").build()
    )
    with ThreadPoolExecutor(WRITERS) as threads:
        return list(threads.map(lambda one: _write_positions(jvm, table, output_files, *one), lost))


def read_deletes(table: Any, delete_file: Any, data_file: Any) -> BitMap64:
    """Returns the positions of the data file that the delete file names. Raises TableError where it cannot be read."""
    if delete_file.contentOffset() is None:
        location = str(delete_file.location())
        content = _content(table, location, 0, int(delete_file.fileSizeInBytes()))
        return positions_in(content, str(data_file.location()), location)
    location, start = str(delete_file.location()), int(delete_file.contentOffset())
    return positions_of(_content(table, location, start, int(delete_file.contentSizeInBytes())), location)


def deleted_positions_of(delete_file: Mapping[str, Any]) -> DeletedPositions:
    """Returns where the deleted positions are written. `delete_file`: as Iceberg writes it in JSON."""
    path, count = str(delete_file["file-path"]), int(delete_file["record-count"])
    if delete_file.get("content-offset") is None:
        return DeletedPositions(path, None, int(delete_file["file-size-in-bytes"]), count)
    return DeletedPositions(path, int(delete_file["content-offset"]), int(delete_file["content-size-in-bytes"]), count)


def format_version(table: Any) -> int:
    return int(table.operations().current().formatVersion())


def position_file(data_file: str, positions: BitMap64) -> bytes:
    """Returns the content of a position delete file: (file_path, pos), ascending, as the specification asks."""
    pos = np.fromiter(positions, dtype=np.int64, count=len(positions))
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


def positions_in(content: bytes, data_file: str, where: str) -> BitMap64:
    """Returns the positions of a data file in a position delete file. Raises TableError, naming `where`, when it is
    damaged."""
    return BitMap64(positions_of_file(io.BytesIO(content), data_file, where).astype(np.uint64))


def _content(table: Any, path: str, start: int, length: int) -> bytes:
    stream = table.io().newInputFile(path).newStream()
    try:
        stream.seek(start)
        return bytes(stream.readNBytes(length))
    finally:
        stream.close()


def _write_positions(jvm: Any, table: Any, output_files: Any, file: Any, positions: BitMap64) -> Any:
    """Writes a small file of its own, with bounds by which readers of every age recognize that it is of one data
    file."""
    data_file = str(file.location())
    content = position_file(data_file, positions)
    output = output_files.newOutputFile().encryptingOutputFile()
    stream = output.create()
    try:
        stream.write(content)
    finally:
        stream.close()
    low, high = (_bounds(jvm, data_file, pos) for pos in (positions.min(), positions.max()))
    metrics = jvm.org.apache.iceberg.Metrics(len(positions), None, None, None, None, low, high)
    builder = _builder(jvm, table, file).withFormat(jvm.org.apache.iceberg.FileFormat.PARQUET)
    builder = builder.withPath(output.location()).withFileSizeInBytes(len(content))
    return builder.withMetrics(metrics).build()


def _bounds(jvm: Any, data_file: str, pos: int) -> Any:
    """Returns field id -> value, serialized as Iceberg's specification says."""
    bounds, wrap = jvm.java.util.HashMap(), jvm.java.nio.ByteBuffer.wrap
    bounds.put(PATH_ID, wrap(data_file.encode()))
    bounds.put(POS_ID, wrap(struct.pack("<q", pos)))
    return bounds


def _write_vectors(jvm: Any, table: Any, lost: Sequence[Lost]) -> list[Any]:
    iceberg = jvm.org.apache.iceberg
    factory = iceberg.io.OutputFileFactory.builderFor(table, 1, 1).format(iceberg.FileFormat.PUFFIN).build()
    output = factory.newOutputFile().encryptingOutputFile()
    writer = iceberg.puffin.Puffin.write(output).createdBy("Cleantail").build()
    blobs = [writer.write(_blob(jvm, file, positions)) for file, positions in lost]
    writer.close()
    size, path = writer.fileSize(), output.location()
    added = []
    for (file, positions), blob in zip(lost, blobs, strict=True):
        builder = _builder(jvm, table, file).withFormat(iceberg.FileFormat.PUFFIN).withPath(path)
        builder = builder.withFileSizeInBytes(size).withRecordCount(len(positions))
        added.append(builder.withContentOffset(blob.offset()).withContentSizeInBytes(blob.length()).build())
    return added


def _builder(jvm: Any, table: Any, file: Any) -> Any:
    """Returns Iceberg's builder for a delete file of this data file."""
    spec = table.specs().get(file.specId())
    builder = jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(spec).ofPositionDeletes()
    return builder.withPartition(file.partition()).withReferencedDataFile(file.location())


def _blob(jvm: Any, file: Any, positions: BitMap64) -> Any:
    java = jvm.java
    fields, properties = java.util.ArrayList(), java.util.HashMap()
    fields.add(jvm.org.apache.iceberg.MetadataColumns.ROW_POSITION.fieldId())
    properties.put("referenced-data-file", str(file.location()))
    properties.put("cardinality", str(len(positions)))
    data = java.nio.ByteBuffer.wrap(vector_blob(positions))
    kind = jvm.org.apache.iceberg.puffin.StandardBlobTypes.DV_V1
    return jvm.org.apache.iceberg.puffin.Blob(kind, fields, -1, -1, data, None, properties)

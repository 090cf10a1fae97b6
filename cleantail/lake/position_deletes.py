"""Delete files of one data file: deletion vectors, and the position deletes of format version 2.

The module finds the data file of each delete file, and the deleted positions. The owner of a table writes these files,
and 1 MB of them can name billions of positions. Therefore:

1. A delete file is refused before it is read if its footer or its pages declare more than `deletes.max.bytes`.
2. A delete file is read in batches. Of each batch only the positions of the requested data file are kept, as a
   compressed set.
3. A position at or behind the data file's end is an error. So is a vector whose number of positions differs from its
   metadata.
4. PyIceberg also reads delete files through these functions (`bound_deletes`).

pyarrow allocates the size in a page's header, up to 2 GiB, regardless of the column's size in the footer. A page of
zeros is a few kilobytes in the file. So this module reads the headers themselves, a few bytes of each page. It refuses
two encodings of texts that store the length of each value, because they unpack in memory to any size.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from cleantail.config.input_limits import DELETES_BYTES, limit_text
from cleantail.errors import TableError
from cleantail.human import counted
from cleantail.lake.metadata_guards import most_delete_bytes, up_to

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from pyiceberg.io import FileIO
    from pyroaring import BitMap64


HEADER_BYTES = 1 << 16
"""Maximum length of a page header in bytes, because writers truncate the statistics in it."""
_DICTIONARY, _DATA = 7, {5: 2, 8: 4}
"""Fields of a page's header: the dictionary, and both versions of data with the field of their encoding."""
_BY_LENGTH = {6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY"}
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12


def unpacked_bytes(source: Any, footer: Any, columns: Sequence[int], limit: int) -> int:
    """Return the unpacked size of the pages of these columns in bytes, from their headers.

    Beyond the limit, returns some number above the limit. Raises ValueError if a header cannot be read, or if a column
    is not inside the file.
    """
    size = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for column in columns:
            chunk = group.column(column)
            at = chunk.data_page_offset
            if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
                at = min(at, chunk.dictionary_page_offset)
            end = at + chunk.total_compressed_size
            while at < end and size <= limit:
                source.seek(at)
                unpacked, packed, length = _page_header(source.read(min(HEADER_BYTES, end - at)))
                at, size = at + length + packed, size + unpacked + length
    return size


def _page_header(text: bytes) -> tuple[int, int, int]:
    """Return the unpacked bytes of a page, its bytes in the file, and the length of its header."""
    header = _Thrift(text)
    fields = header.struct()
    unpacked, packed = fields.get(2), fields.get(3)
    if not isinstance(unpacked, int) or not isinstance(packed, int) or unpacked < 0 or packed < 0:
        raise ValueError("a page without its size")
    for number, encoding in _DATA.items():
        if isinstance(page := fields.get(number), dict) and (name := _BY_LENGTH.get(page.get(encoding, 0))):
            raise ValueError(f"a page in the encoding {name}, which Cleantail does not read")
    if isinstance(page := fields.get(_DICTIONARY), dict) and page.get(1, 0) * 4 > unpacked:
        raise ValueError("a dictionary of more values than it has bytes for")
    return unpacked, packed, header.at


class _Thrift:
    """Reads a struct of Thrift's compact protocol: only its whole numbers and nested structs."""

    def __init__(self, text: bytes) -> None:
        self._text, self.at = text, 0

    def struct(self, depth: int = 8) -> dict[int, Any]:
        """Return field -> number or struct."""
        if depth == 0:
            raise ValueError("a header that is nested too deep")
        values, field = dict[int, Any](), 0
        while kind := (head := self._byte()) & 0x0F:
            field = field + (head >> 4) if head >> 4 else _signed(self._varint())
            values[field] = self._value(kind, depth)
        return values

    def _value(self, kind: int, depth: int) -> Any:
        if _BYTE < kind < _DOUBLE:
            return _signed(self._varint())
        if kind == _STRUCT:
            return self.struct(depth - 1)
        if kind in (_BYTE, _DOUBLE, _BINARY):
            self._skip(1 if kind == _BYTE else 8 if kind == _DOUBLE else self._varint())
        elif kind not in (_TRUE, _FALSE):  # no page header has lists
            raise ValueError("a header that no page has")
        return None

    def _byte(self) -> int:
        self._skip(1)
        return self._text[self.at - 1]

    def _varint(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise ValueError("a number without an end")

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self._text):
            raise ValueError("a header of a page without an end")


def _signed(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


PATH_ID = 2_147_483_546
"""Field id that Iceberg's specification reserves for the name of the data file."""
VECTORS, POSITIONS = "PUFFIN", "PARQUET"
"""Formats of the delete files that can be read: deletion vectors and position deletes."""
PARQUET_MAGIC, VECTOR_MAGIC = b"PAR1", bytes.fromhex("d1d33964")
BATCH_POSITIONS = 1 << 16
POSITION_BYTES, NAME_BYTES = 8, 512
"""Minimum bytes counted for a position, and for the name of a data file with its positions."""
SMALL_BYTES = 8 << 20
"""A delete file up to this size (bytes) is fetched in one piece."""
PARQUET_FOOTER_BYTES, PUFFIN_FOOTER_BYTES = 1 << 20, 16 << 20
"""Maximum size of a delete file's footer in bytes, because as objects it takes many times the memory."""


MEND = (
    "Engines that follow Iceberg's specification, such as Spark, cannot read this table. `cleantail mend TABLE` "
    "replaces the vectors of the data file by one with all their deletes"
)


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A delete file of one data file.

    `records`: number of positions. `sequence_number`: the delete file does not apply to a data file with a higher
    number. `start` and `length`: the bytes of a deletion vector in its Puffin file.
    """

    data_file: str
    path: str
    format: str
    records: int
    sequence_number: int = 0
    start: int = 0
    length: int = 0


def only_data_file(lower: Mapping[int, bytes] | None, upper: Mapping[int, bytes] | None) -> str | None:
    """Return the data file of position deletes, if both bounds name the same file."""
    low, high = ((bounds or {}).get(PATH_ID) for bounds in (lower, upper))
    return low.decode() if low is not None and low == high else None


def lost_records(io: FileIO, deletes: Sequence[DeleteFile], records: int, sequence_number: int = 0) -> int:
    """Return how many records of one data file its delete files hide. `records`: number of all its records.

    A deletion vector has all deleted positions. Several files of position deletes may share positions, if two engines
    wrote at the same time.

    `sequence_number`: of the data file, because older deletes belong to an earlier registration. Raises TableError for
    deletion vectors that make the table unreadable, or that have more positions than the data file.
    """
    if vectors := [d for d in deletes if d.format == VECTORS]:
        require_readable(vectors, sequence_number)
        vector = vectors[0]
        if not 0 <= vector.records <= records:
            name = vector_name(vector.path, vector.start)
            raise TableError(miscounted(name, vector.records, vector.records, records))
        return vector.records
    deletes = [d for d in deletes if d.sequence_number >= sequence_number]
    if len(deletes) < 2 and all(0 <= d.records <= records for d in deletes):
        return sum(d.records for d in deletes)
    return len(lost_positions(io, deletes, records))


def lost_positions(io: FileIO, deletes: Sequence[DeleteFile], records: int, sequence_number: int = 0) -> BitMap64:
    """Return the positions that lost_records counts. All are below `records`."""
    import numpy as np

    if vectors := [d for d in deletes if d.format == VECTORS]:
        require_readable(vectors, sequence_number)
        found = read_vector(io, vectors[0].path, vectors[0].start, vectors[0].length)
        if len(found) != vectors[0].records or (found and found.max() >= records):
            name = vector_name(vectors[0].path, vectors[0].start)
            raise TableError(miscounted(name, len(found), vectors[0].records, records))
    else:
        found = bitmap_of(np.empty(0, np.int64))
        for delete in (d for d in deletes if d.sequence_number >= sequence_number):
            with io.new_input(delete.path).open() as file:
                found |= positions_of_file(file, delete.data_file, delete.path, most_delete_bytes(io), records)
    return found


def read_vector(io: FileIO, path: str, start: int, length: int) -> BitMap64:
    """Return the positions of a deletion vector. Raises TableError, naming it, if it is damaged or too long."""
    name = vector_name(path, start)
    require_bytes(length, most_delete_bytes(io), f"the {name}")
    if start < 0 or length < 0:
        raise TableError(f"the {name} has {length} bytes by its metadata, which are damaged")
    with io.new_input(path).open() as file:
        file.seek(start)
        return vector_positions(file.read(length), path)


def require_bytes(size: int, limit: int, name: str) -> None:
    """Raise TableError if a delete file, or a deletion vector, takes more bytes than the limit."""
    if size > limit:
        raise TableError(f"{name} has, or unpacks to, more than {limit} bytes; {limit_text(DELETES_BYTES)}")


def vector_name(path: str, start: int) -> str:
    """Return the name of a deletion vector for errors."""
    return f"deletion vector in {path} at {start}"


def miscounted(name: str, positions: int, count: int, records: int) -> str:
    """Return the error text for a delete file with `count` in its metadata, for a data file of this many records."""
    return (
        f"the {name} has {counted(positions, 'position')}, but {count} by its metadata, for a data file with "
        f"{counted(records, 'record')}"
    )


def vector_positions(blob: bytes, where: str) -> BitMap64:
    """Return the positions in a deletion vector's blob. Raises TableError, naming `where`, if it is damaged."""
    from pyroaring import BitMap64

    body, crc = blob[4:-4], int.from_bytes(blob[-4:], "big")
    if int.from_bytes(blob[:4], "big") != len(body) or body[:4] != VECTOR_MAGIC or zlib.crc32(body) != crc:
        raise TableError(f"{where} is not a deletion vector, or a damaged one")
    try:
        return BitMap64.deserialize(body[4:])
    except ValueError:
        raise TableError(f"{where} is not a deletion vector, or a damaged one") from None


def bitmap_of(numbers: npt.NDArray[np.integer]) -> BitMap64:
    """Return non-negative numbers as a bitmap.

    BitMap64 takes an array of the standard library at once, but a numpy array element by element.
    """
    import numpy as np
    from pyroaring import BitMap64

    whole = array("Q")
    whole.frombytes(np.ascontiguousarray(numbers, np.uint64).view(np.uint8).data)
    return BitMap64(whole)


def vectors_by_file(deletes: Iterable[DeleteFile]) -> dict[str, list[DeleteFile]]:
    by_file: dict[str, list[DeleteFile]] = {}
    for delete in deletes:
        if delete.format == VECTORS:
            by_file.setdefault(delete.data_file, []).append(delete)
    return by_file


def require_readable(vectors: Sequence[DeleteFile], sequence_number: int) -> None:
    """Raise TableError if a data file has two deletion vectors, or a vector that is older than the file.

    Engines that follow Iceberg's specification cannot read such a table.
    """
    file = vectors[0].data_file
    if len(vectors) > 1:
        names = " and ".join(sorted(v.path for v in vectors))
        raise TableError(
            f"{file} has {len(vectors)} deletion vectors, in {names}: a data file may have only one. {MEND}"
        )
    if vectors[0].sequence_number < sequence_number:
        raise TableError(
            f"{file} was registered (sequence number {sequence_number}) after its deletion vector in "
            f"{vectors[0].path} (sequence number {vectors[0].sequence_number}), for example because a sink committed "
            f"the file again. {MEND}"
        )


def puffin_problem(io: FileIO, path: str) -> str | None:
    """Return why PyIceberg cannot read a file of deletion vectors, or None.

    Raises TableError if the file is larger than the limit.
    """
    try:
        _puffin_file(io, path)
    except ValueError:
        return (
            f"{path} has a deletion vector but is not a Puffin file, which Iceberg's specification requires; some "
            "engines cannot read it. `cleantail mend TABLE` writes the same deletion vector into a Puffin file"
        )
    return None


def _puffin_file(io: FileIO, path: str) -> Any:
    """Return PyIceberg's object. Raises ValueError if it is not a Puffin file."""
    from pyiceberg.table.puffin import PuffinFile

    with io.new_input(path).open() as file:
        content = up_to(file.read, most_delete_bytes(io), DELETES_BYTES, path)
    if content.startswith(content[-4:]):  # otherwise it is not a Puffin file, and has no footer
        _require_footer(int.from_bytes(content[-12:-8], "little"), PUFFIN_FOOTER_BYTES, path)
    return PuffinFile(content)


def _require_footer(size: int, most: int, where: str) -> None:
    if size > most:
        raise TableError(f"{where} has a footer of {size} bytes; a delete file's footer may have at most {most}")


def positions_of_file(source: Any, data_file: str, where: str, limit: int, records: int | None = None) -> BitMap64:
    """Return the positions of a data file in position deletes.

    `limit`: maximum bytes of the delete file; `records`: of the data file, None if unknown. Raises TableError, naming
    `where`, if the deletes are damaged or beyond either.
    """
    import numpy as np
    import pyarrow.compute as pc

    found = bitmap_of(np.empty(0, np.int64))
    for paths, positions in _batches(source, where, limit):
        named = pc.equal(paths.dictionary, data_file)
        of_file = positions if pc.all(named).as_py() else positions.filter(named.take(paths.indices))
        some = bitmap_of(of_file.to_numpy(zero_copy_only=False))
        if some and records is not None and some.max() >= records:
            raise TableError(
                f"{where} has position {some.max()} of {data_file}, which has {counted(records, 'record')}: a "
                "position delete file may only name existing records"
            )
        found |= some
    return found


def shared_positions(source: Any, where: str, limit: int) -> dict[str, BitMap64]:
    """Return data file -> its positions in a file of position deletes. Raises TableError as positions_of_file does."""
    import numpy as np

    found: dict[str, BitMap64] = {}
    for paths, positions in _batches(source, where, limit):
        codes, of_rows = paths.indices.to_numpy(zero_copy_only=False), positions.to_numpy(zero_copy_only=False)
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
        names = paths.dictionary.take(paths.indices.take(order[starts])).to_pylist()
        for name, rows in zip(names, np.split(order, starts)[1:], strict=True):
            some = bitmap_of(of_rows[rows])
            found[name] = found[name] | some if name in found else some
        require_bytes(len(found) * NAME_BYTES, limit, where)
    return found


def _batches(source: Any, where: str, limit: int) -> Iterator[tuple[Any, Any]]:
    """Yield (file_path, pos) of position deletes in batches.

    The names are dictionary-encoded, because every position has a name, and usually all names are equal.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        source.seek(0, 2)
        require_bytes(size := source.tell(), limit, where)
        source.seek(0)
        if size <= SMALL_BYTES:
            source = BytesIO(source.read())
        source.seek(max(size - 8, 0))
        if (end := source.read(8))[4:] == PARQUET_MAGIC:
            _require_footer(int.from_bytes(end[:4], "little"), PARQUET_FOOTER_BYTES, where)
        source.seek(0)
        file = pq.ParquetFile(source, read_dictionary=["file_path"])
        paths = [file.schema.column(number).path for number in range(len(file.schema))]
        numbers = [paths.index("file_path"), paths.index("pos")]
        kinds = [file.schema_arrow.field(name).type for name in ("file_path", "pos")]
        if not pa.types.is_dictionary(kinds[0]) or kinds[1] != pa.int64():
            raise ValueError(f"columns of {kinds[0]} and {kinds[1]}")
        groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        unpacked = unpacked_bytes(source, file.metadata, numbers, limit)
        require_bytes(sum(groups) * POSITION_BYTES + unpacked, limit, where)
        for batch in file.iter_batches(BATCH_POSITIONS, columns=["file_path", "pos"], use_threads=False):
            names, positions = batch.column("file_path"), batch.column("pos")
            if names.null_count or positions.null_count or pc.any(pc.less(positions, 0)).as_py():
                raise ValueError("rows without a file or a position")
            yield names, positions
    except (pa.ArrowException, OSError, ValueError, KeyError) as e:
        raise TableError(f"{where} is not a position delete file, or is damaged: {e}") from None


def bound_deletes() -> None:
    """Make PyIceberg read delete files through the functions above, from now on and in the whole process."""
    import pyiceberg.io.pyarrow

    pyiceberg.io.pyarrow._read_deletes = _read_deletes


def _read_deletes(io: FileIO, data_file: Any) -> dict[str, Any]:
    """Replace PyIceberg's function. Returns data file -> its deleted positions.

    The limit applies to all vectors of a Puffin file together.
    """
    import numpy as np
    import pyarrow as pa

    limit, path, kind = most_delete_bytes(io), str(data_file.file_path), data_file.file_format.value.upper()
    if kind == VECTORS:
        found = _vectors_in(_puffin_file(io, path), path, limit)
    elif kind == POSITIONS:
        with io.new_input(path).open() as source:
            found = shared_positions(source, path, limit)
    else:
        raise TableError(f"{path} has position deletes as {kind}, and only Parquet can be read")
    return {
        name: pa.chunked_array([pa.array(np.array(of_file.to_array(), np.int64))]) for name, of_file in found.items()
    }


def _vectors_in(puffin: Any, path: str, limit: int) -> dict[str, BitMap64]:
    found, size = dict[str, "BitMap64"](), 0
    for blob in puffin.footer.blobs:
        name = blob.properties.get("referenced-data-file")
        if name is None or blob.compression_codec is not None or blob.offset < 0 or blob.length < 0:
            raise TableError(f"{path} has a blob that is not a deletion vector, or is compressed")
        found[name] = vector_positions(puffin.get_blob_payload(blob), path)
        size += blob.length + len(found[name]) * POSITION_BYTES
        require_bytes(size, limit, path)
    return found

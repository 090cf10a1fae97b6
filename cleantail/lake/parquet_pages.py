"""What the pages of a Parquet file say that they unpack to.

pyarrow allocates what the header of a page says, up to 2 GiB, whatever the footer says of the column: a page of zeros
is a few kilobytes in the file. So the headers themselves are read, which costs a few bytes of each page. Two encodings
of texts, by the length of each, unpack in memory to any size: they are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

HEADER_BYTES = 1 << 16
"""A header has no statistics longer than that: writers cut them."""
_DICTIONARY, _DATA = 7, {5: 2, 8: 4}
"""Fields of a page's header: of a dictionary, and of data of both versions with the field that has their encoding."""
_BY_LENGTH = {6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY"}
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12


def unpacked_bytes(source: Any, footer: Any, columns: Sequence[int], limit: int) -> int:
    """Returns what the pages of these columns unpack to, by their headers; of that which is beyond the limit, a number
    beyond it. Raises ValueError where a header cannot be read, or a column does not lie in the file."""
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
    """Returns what a page unpacks to, its bytes in the file, and the length of its header."""
    header = _Thrift(text)
    fields = header.struct()
    unpacked, packed = fields.get(2), fields.get(3)
    if not isinstance(unpacked, int) or not isinstance(packed, int) or unpacked < 0 or packed < 0:
        raise ValueError("a page without its size")
    for number, encoding in _DATA.items():
        if isinstance(page := fields.get(number), dict) and (name := _BY_LENGTH.get(page.get(encoding, 0))):
            raise ValueError(f"a page in the encoding {name}, which is not read here")
    if isinstance(page := fields.get(_DICTIONARY), dict) and page.get(1, 0) * 4 > unpacked:
        raise ValueError("a dictionary of more values than it has bytes for")
    return unpacked, packed, header.at


class _Thrift:
    """Reads a struct of Thrift's compact protocol: its whole numbers, and its structs of them."""

    def __init__(self, text: bytes) -> None:
        self._text, self.at = text, 0

    def struct(self, depth: int = 8) -> dict[int, Any]:
        """Returns field -> number, or struct."""
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
        elif kind not in (_TRUE, _FALSE):  # no header of a page has lists
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

"""JSON that Cleantail writes and reads again: table properties, snapshot summaries, evidence, XComs, results.

1. A value is written as compact JSON with sorted keys, so that equal values are equal texts.
2. It is parsed once, where it comes in, by the dataclass that describes it. Only keys of mappings are converted.
3. A missing field takes the dataclass's default. An unknown field is ignored.
4. Any other text raises a TableError that names where the text was, without quoting it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import zlib
from collections.abc import Iterable
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from cleantail.errors import TableError

T = TypeVar("T")
_DIGEST_CHARS = 32
_SURROGATES = re.compile(r"\\\\|(?i:\\ud[89ab]..\\ud[c-f]..)|(?P<lone>(?i:\\ud[89a-f]..))")
"""A backslash, a pair of surrogates, or a lone one. Python writes a lone one for a byte of a file name that is not
UTF-8."""


class Codec(Generic[T]):
    """Writes and parses values of one type: a frozen dataclass, or a container of them."""

    most_unpacked_bytes: ClassVar[int] = 64 << 20
    """Size limit of an unpacked text. The process sets it to the platform's metadata.max.bytes."""

    def __init__(self, value_type: Any) -> None:
        self._value_type = value_type

    @cached_property
    def _adapter(self) -> TypeAdapter[T]:
        """Built at the first use, because most processes need few of our types."""
        return TypeAdapter(self._value_type)

    def text(self, value: T) -> str:
        return json.dumps(self.plain(value), sort_keys=True, separators=(",", ":"))

    def plain(self, value: T) -> Any:
        """Return the value as JSON's own types, for callers that serialize it themselves: an XCom, the console."""
        return self._adapter.dump_python(value, mode="json", warnings="error")

    def value(self, text: str, where: str) -> T:
        """Parse what `text` wrote. Raises TableError that names `where` for any other text."""
        try:
            # pydantic refuses a whole text for one lone surrogate
            readable = _SURROGATES.sub(lambda match: r"\ufffd" if match["lone"] else match[0], text)
            return self._adapter.validate_json(readable, strict=True)
        except ValidationError as e:
            raise TableError(f"{where} cannot be read: {_problems(e)}") from None

    def value_or_none(self, text: str | None) -> T | None:
        """Parse what `text` wrote. None for no text, and for any other: of a cache, or of what a metric shows."""
        try:
            return None if text is None else self.value(text, "a text")
        except TableError:
            return None

    def of_plain(self, plain: Any, where: str) -> T:
        """Parse what `plain` returned, also after a way through JSON. Raises TableError that names `where` for any
        other value."""
        try:
            text = json.dumps(plain)
        except (TypeError, ValueError) as e:  # an XCom may hold a value that JSON has no type for, such as a time
            raise TableError(f"{where} cannot be read: {type(e).__name__}") from None
        return self.value(text, where)

    def packed(self, value: T) -> str:
        """Return the value as one compressed text: a summary stays in the table's metadata as long as its snapshot."""
        return base64.b64encode(zlib.compress(self.text(value).encode(), 9)).decode()

    def unpacked(self, text: str, where: str) -> T:
        """Parse what `packed` wrote. Raises TableError that names `where` for any other text, and if the text
        unpacks to more than `most_unpacked_bytes`."""
        try:
            stream, most = zlib.decompressobj(), self.most_unpacked_bytes
            unpacked = stream.decompress(base64.b64decode(text, validate=True), most + 1)
            if len(unpacked) > most:
                raise TableError(
                    f"{where} unpacks to more than {most} bytes; the limit is metadata.max.bytes under "
                    f"`platform: limits:` in defaults.yaml"
                )
            if not stream.eof or stream.unused_data:
                raise zlib.error("cut off, or followed by something else")
            plain = unpacked.decode()
        except (binascii.Error, zlib.error, ValueError) as e:
            raise TableError(f"{where} cannot be read: {type(e).__name__}") from None
        return self.value(plain, where)


def _problems(error: ValidationError) -> str:
    """Return what is wrong and where in the value, without the value."""
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, e['loc'])) or 'it'}: {e['msg']}" for e in errors[:3])


def digest_of(values: Iterable[object]) -> str:
    """Return a digest of texts, numbers and Nones in their order, in hexadecimal digits. 1 and "1" have different
    digests, and so do ("a", "b") and ("ab",).

    It names files, folders and properties, which later versions look for. So its computation never changes.
    """
    return hashlib.sha256(json.dumps(list(values)).encode()).hexdigest()[:_DIGEST_CHARS]

"""The one codec of what Cleantail writes as JSON: table properties, snapshot summaries, evidence, XComs, results.

1. A value is written as compact JSON with sorted keys, so that equal values are equal texts.
2. It is parsed once, where it comes in, by the dataclass that says what it is. Numbers are numbers and texts are texts:
   nothing is converted, but the keys of a mapping, which JSON only has as texts.
3. What an earlier version did not write takes the dataclass's default; what a later version adds is left out.
4. A text that is no such value is a TableError that names where it stood, and repeats nothing of it.
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
"""A backslash, a pair of surrogates, or one alone: so Python writes a byte of a file's name that is no UTF-8."""


class Codec(Generic[T]):
    """Writes and parses the values of one type: a frozen dataclass, or a container of them."""

    most_unpacked_bytes: ClassVar[int] = 64 << 20
    """How much a packed text may hold; the process sets it to the platform's metadata.max.bytes."""

    def __init__(self, value_type: Any) -> None:
        self._value_type = value_type

    @cached_property
    def _adapter(self) -> TypeAdapter[T]:
        """Returns pydantic's adapter, built at the first use: most processes need few of our types."""
        return TypeAdapter(self._value_type)

    def text(self, value: T) -> str:
        """Returns the value as one line of JSON."""
        return json.dumps(self.plain(value), sort_keys=True, separators=(",", ":"))

    def plain(self, value: T) -> Any:
        """Returns the value as JSON's own types, for what makes text of it by itself: an XCom, the console."""
        return self._adapter.dump_python(value, mode="json", warnings="error")

    def value(self, text: str, where: str) -> T:
        """Parses what `text` wrote. Raises TableError, naming `where`, for any other text."""
        try:
            return self._adapter.validate_json(_SURROGATES.sub(_as_unicode, text), strict=True)
        except ValidationError as e:
            raise TableError(f"{where} cannot be read: {_problems(e)}") from None

    def of_plain(self, plain: Any, where: str) -> T:
        """Parses what `plain` gave, as it comes from JSON. Raises TableError, naming `where`, for another value."""
        try:
            text = json.dumps(plain)
        except (TypeError, ValueError) as e:  # an XCom may hold what is no JSON, such as a time
            raise TableError(f"{where} cannot be read: {type(e).__name__}") from None
        return self.value(text, where)

    def packed(self, value: T) -> str:
        """Returns the value as one short text: a summary stays in the table's metadata for as long as its snapshot."""
        return base64.b64encode(zlib.compress(self.text(value).encode(), 9)).decode()

    def unpacked(self, text: str, where: str) -> T:
        """Parses what `packed` wrote. Raises TableError, naming `where`, for any other text, and for one that unpacks
        to more than `most_unpacked_bytes`."""
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


def _as_unicode(match: re.Match[str]) -> str:
    """Returns what stands for a character that is none, where there is one: pydantic would refuse the whole text."""
    return r"\ufffd" if match["lone"] else match[0]


def _problems(error: ValidationError) -> str:
    """Returns what is wrong and where in the value, without the value."""
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, e['loc'])) or 'it'}: {e['msg']}" for e in errors[:3])


def digest_of(values: Iterable[object]) -> str:
    """Returns a digest of the values in their order, in hexadecimal digits. They are texts, numbers or None; 1 and "1"
    give different digests, and so do ("a", "b") and ("ab",).

    It names a file, a folder or a property. Later versions look for such names, so how it is made never changes.
    """
    return hashlib.sha256(json.dumps(list(values)).encode()).hexdigest()[:_DIGEST_CHARS]

"""JSON that Cleantail writes and reads again, such as properties, evidence and XComs, and the number of its format.

1. A value is written as compact JSON with sorted keys, so that equal values are equal texts.
2. A text is parsed once, at the border, by the dataclass that describes it. Only keys of mappings are converted.
3. A missing field takes the dataclass's default. An unknown field is ignored.
4. Any other text raises a TableError, which names the place of the text and does not quote it.
5. Tables, states of logs, certificates, `defaults.yaml`, packs and documents of the exchange have the number of their
   format. Any other number is refused with the same words everywhere, before anything is changed.
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
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import BeforeValidator, TypeAdapter, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

from cleantail.errors import TableError, shown
from cleantail.human import one_line

FORMAT = 1
"""The format that this version reads and writes. Where the number is optional, data without it have format 1."""
ALLOWED = (
    f"this version of Cleantail reads format {FORMAT}; nothing was changed. Install the version that wrote it, or a "
    "later one"
)


def require_format(where: str, key: str, value: object, known: int | str = FORMAT) -> None:
    """Raise TableError unless the value is `known`: the number of the format, or its text. True and 1.0 are refused.

    `where`: the file or table, for the message."""
    if type(value) is not type(known) or value != known:
        text = one_line(value) if isinstance(value, str) else shown(value)
        raise TableError(f"{where} has {key}={text}: {ALLOWED}")


def _known(value: object) -> object:
    if type(value) is not int or value != FORMAT:
        context = {"value": shown(value), "allowed": ALLOWED}
        raise PydanticCustomError("format", "{value} is not allowed: {allowed}", context)
    return value


FormatNumber = Annotated[
    int,
    BeforeValidator(_known),
    WithJsonSchema({"const": FORMAT, "x-allowed": f"the number {FORMAT}: {ALLOWED}"}),
]
"""A field with the number. Its error names the value, the allowed number, and the remedy."""


T = TypeVar("T")
_DIGEST_CHARS = 32
_SURROGATES = re.compile(r"\\\\|(?i:\\ud[89ab]..\\ud[c-f]..)|(?P<lone>(?i:\\ud[89a-f]..))")
"""Matches a backslash, a pair of surrogates, or a lone surrogate. Python writes a lone surrogate for a byte of a file
name that is not UTF-8."""


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
        """Return the value as JSON's own types, for callers that serialize it themselves, such as an XCom."""
        return self._adapter.dump_python(value, mode="json", warnings="error", by_alias=True)

    def value(self, text: str, where: str) -> T:
        """Parse a text of the method `text`. For any other text, raises TableError, which names `where`."""
        try:
            # pydantic refuses a whole text for one lone surrogate
            readable = _SURROGATES.sub(lambda match: r"\ufffd" if match["lone"] else match[0], text)
            return self._adapter.validate_json(readable, strict=True)
        except ValidationError as e:
            raise TableError(f"{where} cannot be read: {_problems(e)}") from None

    def value_or_none(self, text: str | None) -> T | None:
        """Parse a text of the method `text`. Returns None for no text or any other text: for caches and metrics."""
        try:
            return None if text is None else self.value(text, "a text")
        except TableError:
            return None

    def of_plain(self, plain: Any, where: str) -> T:
        """Parse a value of the method `plain`, even after a round trip through JSON. For any other value, raises
        TableError, which names `where`."""
        try:
            text = json.dumps(plain)
        except (TypeError, ValueError) as e:  # an XCom may have a value without a JSON type, such as a time
            raise TableError(f"{where} cannot be read: {type(e).__name__}") from None
        return self.value(text, where)

    def packed(self, value: T) -> str:
        """Return the value as one compressed text, for summaries: they stay in the metadata as long as their
        snapshot."""
        return base64.b64encode(zlib.compress(self.text(value).encode(), 9)).decode()

    def unpacked(self, text: str, where: str) -> T:
        """Parse a text of the method `packed`. Raises TableError, which names `where`, for any other text, or if the
        text unpacks to more than `most_unpacked_bytes`."""
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
    """Return the first errors with their places, without the value. An unknown number of the format comes first: it may
    be the cause of the others."""
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    errors.sort(key=lambda e: e["type"] != "format")
    return "; ".join(f"{'.'.join(map(str, e['loc'])) or 'it'}: {e['msg']}" for e in errors[:3])


def digest_of(values: Iterable[object]) -> str:
    """Return a digest of texts, numbers and Nones in their order, in hexadecimal digits.

    1 and "1" have different digests, and so do ("a", "b") and ("ab",). The computation never changes, because later
    versions find files, folders and properties by these digests.
    """
    return hashlib.sha256(json.dumps(list(values)).encode()).hexdigest()[:_DIGEST_CHARS]

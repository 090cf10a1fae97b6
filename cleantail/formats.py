"""The number of the format of Cleantail's stored data, and its only check.

Tables, states of logs, certificates, `defaults.yaml`, packs and documents of the exchange carry this number. Any other
number is refused with the same words everywhere, before anything is changed.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema
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

"""The one place that opens PyIceberg's catalogs. Its guards treat a table's metadata only as data.

PyIceberg opens the files of a table with the properties of the catalog, and properties of the table override them. The
property `py-io-impl` names a callable, which gets the login of the catalog and of the store. The property `s3.endpoint`
names the server that gets signed requests. So a writer of a table could run code or get the keys. Therefore:

1. A FileIO is built from the properties of the catalog alone. With a REST catalog, it also uses the configuration and
   the credentials of the store that the server sends with the table.
2. The server cannot name code: such properties are dropped, and the platform's own settings stay.
3. Cleantail does not commit to a table with properties that name code for its writers (`require_data_alone`).

This module also limits the bytes that PyIceberg reads of a table's metadata, because a table's writer also writes these
files.

1. PyIceberg reads and unpacks a metadata file as a whole, so that 10 MB of a `.gz` file become 10 GB of memory. Here a
   file is unpacked piece by piece, and reading ends at the limit. The same applies to the answer of a REST catalog.
2. The blocks of a manifest, or of a manifest list, are unpacked up to the limit of the file.
3. The limits are the platform's (`platform.limits`). They apply to the whole process, which has one platform.

Beyond a limit, a TableError of the table at fault names the limit.
"""

from __future__ import annotations

import bz2
import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from functools import cache, lru_cache
from io import BytesIO
from threading import Lock
from typing import TYPE_CHECKING, Any

from cleantail.codec import Codec
from cleantail.config.input_limits import DELETES_BYTES, MANIFEST_BYTES, METADATA_BYTES, limit_text
from cleantail.config.platform_configs import LimitConfigs
from cleantail.errors import TableError
from cleantail.human import one_line
from cleantail.lake.client_properties import SILENCE

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


PIECE_BYTES = 1 << 20
LARGE_BYTES = 4 << 20
"""Metadata files above this size (bytes) are parsed one at a time, because as objects they take many times the
memory."""
DELETES_PROPERTY = f"cleantail.{DELETES_BYTES}"
"""Property of a FileIO that passes the limit of delete files to tasks."""
_parsing = Lock()
_limits = LimitConfigs()


def bound_reads(limits: LimitConfigs) -> None:
    """Limit PyIceberg's reads of metadata, from now on and in the whole process."""
    global _limits
    _limits, Codec.most_unpacked_bytes = limits, limits.metadata_max_bytes
    import pyiceberg.manifest
    from pyiceberg.serializers import FromInputFile

    FromInputFile.table_metadata = staticmethod(_table_metadata)  # type: ignore[method-assign]
    pyiceberg.manifest.AvroFile = avro_file()  # type: ignore[attr-defined]


def most_delete_bytes(io: Any = None) -> int:
    """Return the limit of delete files. A task finds it among the properties of its FileIO."""
    own = io.properties.get(DELETES_PROPERTY) if io is not None else None
    return int(own) if own else _limits.deletes_max_bytes


def metadata_text(input_file: Any) -> bytes:
    """Return the unpacked content of a metadata file. Raises TableError if that is more than metadata.max.bytes."""
    with input_file.open() as stream:
        # the packed size has the same limit, or a file of empty pieces would be read forever
        packed = up_to(stream.read, _limits.metadata_max_bytes, METADATA_BYTES, input_file.location)
    if not input_file.location.endswith(".gz.metadata.json"):
        return packed
    unpacked = gzip.GzipFile(fileobj=BytesIO(packed))
    return up_to(unpacked.read, _limits.metadata_max_bytes, METADATA_BYTES, input_file.location)


def parsing(text: bytes) -> Any:
    """Return a context for parsing a metadata file: a lock for a large file."""
    return _parsing if len(text) > LARGE_BYTES else nullcontext()


def up_to(read: Callable[[int], bytes], limit: int, setting: str, where: str) -> bytes:
    """Read to the end. Raises TableError, naming the file and the setting, if there is more than the limit."""
    pieces, size = [], 0
    while piece := read(PIECE_BYTES):
        pieces.append(bytes(piece))
        size += len(piece)
        if size > limit:
            raise TableError(f"{where} has, or unpacks to, more than {limit} bytes; {limit_text(setting)}")
    return b"".join(pieces)


def bounded_response(response: Any, *_: object, **__: object) -> Any:
    """Read the answer of a REST catalog up to the limit. A hook of `requests`, called before the body is read."""
    if not response._content_consumed:
        pieces = response.iter_content(PIECE_BYTES)
        body = up_to(
            lambda _: next(pieces, b""), _limits.metadata_max_bytes, METADATA_BYTES, "an answer of the catalog"
        )
        response._content = body
    return response


def _table_metadata(input_file: Any, encoding: str = "utf-8") -> Any:
    """Replace PyIceberg's function of this name."""
    from pyiceberg.table.metadata import TableMetadataUtil

    text = metadata_text(input_file)
    with parsing(text):
        return TableMetadataUtil.parse_raw(text.decode(encoding))


@cache
def avro_file() -> Any:
    """Return PyIceberg's class that reads manifests and manifest lists, with the limit added."""
    from pyiceberg.avro.decoder import new_decoder
    from pyiceberg.avro.file import SYNC_SIZE, AvroFile, Block, D

    class BoundedAvroFile(AvroFile[D]):
        unpacked_bytes = 0

        def __enter__(self) -> Any:
            self.input_file = _Whole(self.input_file)  # type: ignore[assignment]
            return super().__enter__()

        def _read_block(self) -> int:
            """Read as PyIceberg does, but enforce the limit."""
            if self.block and (sync := self.decoder.read(SYNC_SIZE)) != self.header.sync:
                raise ValueError(f"Expected sync bytes {self.header.sync!r}, but got {sync!r}")
            records, packed = self.decoder.read_int(), self.decoder.read_bytes()
            codec = self.header.compression_codec()  # raises if the codec is unknown
            unpacked = _unpacked(codec, packed, _limits.manifest_max_bytes - self.unpacked_bytes)
            if unpacked is None:
                where, limit = self.input_file.location, _limits.manifest_max_bytes
                raise TableError(f"{where} unpacks to more than {limit} bytes; {limit_text(MANIFEST_BYTES)}")
            self.unpacked_bytes += len(unpacked)
            self.block = Block(reader=self.reader, block_records=records, block_decoder=new_decoder(unpacked))
            return records

    return BoundedAvroFile


class _Whole:
    """An input file that is read only up to the limit."""

    def __init__(self, file: Any) -> None:
        self._file, self.location = file, file.location

    def open(self, seekable: bool = True) -> BytesIO:
        with self._file.open() as stream:
            return BytesIO(up_to(stream.read, _limits.manifest_max_bytes, MANIFEST_BYTES, self.location))


def _unpacked(codec: Any, packed: bytes, limit: int) -> bytes | None:
    """Return the unpacked block. None if it is larger than the limit. `codec`: PyIceberg's; None if not compressed."""
    name = codec.__name__ if codec else ""
    if name == "DeflateCodec":
        unpacked = zlib.decompressobj(-15).decompress(packed, limit + 1)
    elif name == "BZip2Codec":
        unpacked = bz2.BZ2Decompressor().decompress(packed, limit + 1)
    elif name == "ZStandardCodec":
        unpacked = _unpacked_zstd(packed, limit)
    elif name == "SnappyCodec" and _snappy_bytes(packed) > limit:
        return None
    else:
        unpacked = codec.decompress(packed) if codec else packed
    return None if len(unpacked) > limit else unpacked


def _unpacked_zstd(packed: bytes, limit: int) -> bytes:
    import pyarrow as pa

    pieces, size = [], 0
    with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
        while size <= limit and (piece := stream.read(PIECE_BYTES)):
            pieces.append(piece)
            size += len(piece)
    return b"".join(pieces)


def _snappy_bytes(packed: bytes) -> int:
    """Return the unpacked size of a Snappy block. The block begins with it, seven bits at a time."""
    size = 0
    for at, byte in enumerate(packed[:5]):
        size |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:
            break
    return size


NAMES_CODE = re.compile(
    r"(.*[-_.])?impl"
    r"|(write|read|parquet|orc|mapred|mapreduce)\.(.*[-.])?(class|factory|codecs)"
    r"|(fs|dfs|hadoop|io\.compression|io\.serializations?|parquet\.(crypto|encryption))(\..*)?",
    re.IGNORECASE | re.ASCII | re.DOTALL,
)
"""Names of properties by which a writer loads a class, or finds files and logins: of PyIceberg, Iceberg and Hadoop.

Iceberg's writers of Parquet and ORC copy a table's properties into Hadoop's configuration.
"""
_OF_PLATFORM = re.compile(r"py-.*|(auth|ssl)(\..*)?|botocore_session|" + NAMES_CODE.pattern, NAMES_CODE.flags)
"""Names for which a REST catalog's server may not set a value. For example, its `auth` would name a class."""


def opened(name: str, properties: Mapping[str, Any], limits: LimitConfigs) -> Catalog:
    """Open a catalog through PyIceberg with limited reads of table metadata. Raises the errors of its driver."""
    bound_reads(limits)
    from pyiceberg.catalog import _ENV_CONFIG, load_catalog

    if properties.get("type") == "rest":  # opening a REST catalog already sends requests to its server
        from pyiceberg.catalog.rest import RestCatalog
        from pyiceberg.utils.config import merge_config

        configured: Any = merge_config(_ENV_CONFIG.get_catalog_config(name) or {}, dict(properties))
        return _trusted(RestCatalog)(name, **configured)
    catalog = load_catalog(name, **properties)
    catalog.__class__ = _trusted(type(catalog))
    return catalog


def require_data_alone(table: str, names: Iterable[str]) -> None:
    """Raise TableError if one of the table's properties names code, or a store, for the table's writers."""
    if named := sorted(name for name in names if NAMES_CODE.fullmatch(name)):
        raise TableError(
            f"table {table} has the property {one_line(named[0])}, which names code or a store for its writers: "
            "Cleantail accepts neither from a table; nothing was changed. Remove it: ALTER TABLE … UNSET "
            "TBLPROPERTIES"
        )


READS = ("GET", "HEAD")
UNSURE = (429, 500, 502, 503, 504)
"""HTTP statuses after which a later request may succeed."""


@lru_cache
def _trusted(kind: type[Catalog]) -> type[Catalog]:
    """Return a subclass of the catalog that passes no property of a table to a FileIO."""

    class Trusted(kind):  # type: ignore[misc, valid-type]
        properties: dict[str, Any]

        def _load_file_io(self, properties: object = None, location: str | None = None) -> Any:
            return super()._load_file_io({}, location)

        def _fetch_config(self) -> None:
            own = dict(self.properties)
            super()._fetch_config()
            theirs = {k: v for k, v in self.properties.items() if not _OF_PLATFORM.fullmatch(k)}
            self.properties = theirs | {k: v for k, v in own.items() if _OF_PLATFORM.fullmatch(k)}

        def _create_session(self) -> Any:
            from requests.adapters import HTTPAdapter
            from requests.exceptions import ChunkedEncodingError
            from urllib3.util import Retry

            session = super()._create_session()
            session.hooks["response"].insert(0, bounded_response)
            # a read that fails is sent again, as Java's client does; a change is sent once
            again = Retry(3, connect=0, backoff_factor=0.2, status_forcelist=UNSURE, allowed_methods=READS)
            again.raise_on_status = again.respect_retry_after_header = False
            for scheme in ("http://", "https://"):
                session.mount(scheme, HTTPAdapter(max_retries=again))
            send, within_s = session.send, float(self.properties[SILENCE]) / 1000

            def send_within(request: Any, **options: Any) -> Any:
                """Send a request, which is answered in time or fails. Send a read again if its answer was cut."""
                options["timeout"] = within_s
                try:
                    return send(request, **options)
                except ChunkedEncodingError:
                    if request.method not in READS:
                        raise
                return send(request, **options)

            session.send = send_within
            return session

        def _response_to_table(self, identifier: Any, response: Any) -> Any:
            table = super()._response_to_table(identifier, response)
            table.io = self._vended(response)
            return table

        def _response_to_staged_table(self, identifier: Any, response: Any) -> Any:
            table = super()._response_to_staged_table(identifier, response)
            table.io = self._vended(response)
            return table

        def _vended(self, response: Any) -> Any:
            """Return a FileIO with the settings that a REST catalog sends with a table. Credentials of a folder
            override those of the whole table."""
            location = response.metadata_location
            credentials = self._resolve_storage_credentials(response.storage_credentials, location)
            sent = {k: v for k, v in {**response.config, **credentials}.items() if not _OF_PLATFORM.fullmatch(k)}
            return super()._load_file_io(sent, location)

        def _update_and_stage_table(self, current_table: Any, *arguments: Any, **named: Any) -> Any:
            if current_table is not None:
                require_data_alone(".".join(current_table.name()), current_table.metadata.properties)
            return super()._update_and_stage_table(current_table, *arguments, **named)

    Trusted.__name__, Trusted.__qualname__, Trusted.__module__ = kind.__name__, kind.__qualname__, kind.__module__
    return Trusted

"""What a table's owner writes as metadata costs that table at most, and no more memory than `platform.limits` says."""

import base64
import bz2
import gzip
import json
import tracemalloc
import zlib
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.io import load_file_io

from cleantail.codec import Codec
from cleantail.config.loading import find_topic, load_platform
from cleantail.config.platform_configs import LimitConfigs
from cleantail.errors import TableError
from cleantail.lake.catalogs import load_table, open_catalog, store_properties
from cleantail.lake.manifest_entries import _manifests_of
from cleantail.lake.metadata_guards import bound_reads, most_delete_bytes
from cleantail.lake.neighbours import require_separate_folder
from cleantail.lake.table_metadata import table_facts
from cleantail_cli import main
from tests.cleantail.orders_table import PROPERTIES, SCHEMA, SPEC
from tests.cleantail.rest_catalog import JsonHandler, served

MIB = 1 << 20


def limited(project, **limits):
    """The platform with these limits, which are in megabytes."""
    text = {"platform": {"limits": {f"{k}.max.bytes": v for k, v in limits.items()}}}
    (project / "config" / "defaults.yaml").write_text(json.dumps(text))
    return load_platform(project / "config")


def local(location):
    return Path(location.removeprefix("file:"))


def point_to(catalog, name, file):
    """Has the catalog's database name that file, without reading it."""
    from sqlalchemy import text

    with catalog.engine.begin() as connection:
        connection.execute(
            text("UPDATE iceberg_tables SET metadata_location = :file WHERE table_name = :name"),
            {"file": str(file), "name": name},
        )


def bomb(catalog, table, pad, packed=True):
    file = local(table.metadata_location)
    document = file.read_bytes().rstrip()[:-1] + b" " * pad + b"}"
    new = file.with_name(f"00009-bomb.{'gz.' if packed else ''}metadata.json")
    new.write_bytes(gzip.compress(document) if packed else document)
    point_to(catalog, table.name()[-1], new)


@pytest.fixture
def peak():
    """peak(): the most memory of Python's that was taken since the test began, in MiB."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1] / MIB
    tracemalloc.stop()


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "as-it-is"])
def test_metadata_of_a_table_beyond_the_limit_are_its_error_and_take_no_more_memory(
    project, orders_table, peak, packed
):
    platform = limited(project, metadata=2 * MIB)
    bomb(orders_table.catalog, orders_table.table, 40 * MIB, packed)
    tracemalloc.reset_peak()
    with pytest.raises(TableError, match=r"00009-bomb.* more than 2097152 bytes; the limit is metadata\.max\.bytes"):
        load_table(open_catalog(platform), orders_table.topic.on(platform))
    assert peak() < 16


def test_a_compression_bomb_in_another_table_takes_no_memory(project, orders_table, peak):
    platform = limited(project, metadata=2 * MIB)
    catalog = open_catalog(platform)
    catalog.create_namespace("sinks")
    other = catalog.create_table("sinks.other", SCHEMA, partition_spec=SPEC, properties=PROPERTIES)
    bomb(catalog, other, 40 * MIB)
    tracemalloc.reset_peak()
    assert require_separate_folder(catalog, platform, orders_table.table) == ""
    assert peak() < 24


def test_status_shows_the_other_topics_where_one_has_a_bomb(project, orders_table, capsys):
    limited(project, metadata=2 * MIB)
    (project / "config" / "topics" / "calm.yaml").write_text("topic: calm\n")
    bomb(orders_table.catalog, orders_table.table, 20 * MIB)
    code = main(["--config", str(project / "config"), "status"])
    out, err = capsys.readouterr()
    assert code != 0 and "metadata.max.bytes" in out + err and "calm" in out + err and "Traceback" not in err


CODECS = {
    "deflate": lambda data: zlib.compress(data, 9)[2:-4],
    "bzip2": bz2.compress,
    "zstandard": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
}


def avro_bomb(file, codec, unpacked_bytes):
    """Swaps the blocks of a manifest, or of a list of them, for one that unpacks to so much."""
    data = file.read_bytes()
    sync = data[-16:]
    at = data.index(sync)
    head = data[:at].replace(b"\x14avro.codec\x0edeflate", b"\x14avro.codec" + bytes([2 * len(codec)]) + codec.encode())
    block = CODECS[codec](b"\x00" * unpacked_bytes)
    file.write_bytes(head + sync + varint(5) + varint(len(block)) + block + sync)


def varint(number):
    number, out = number << 1, b""
    while number > 0x7F:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


@pytest.mark.parametrize(
    ("codec", "which"),
    [*((codec, "manifest") for codec in CODECS), ("deflate", "list")]
    + [pytest.param(codec, "list", marks=pytest.mark.deep) for codec in CODECS if codec != "deflate"],
)
def test_a_block_of_a_manifest_beyond_the_limit_is_the_tables_error(project, orders_table, peak, codec, which):
    orders_table.append((0, 0, 1000, b"k", b"v"))
    platform = limited(project, manifest=MIB)
    snapshot = orders_table.table.current_snapshot()
    path = snapshot.manifest_list if which == "list" else snapshot.manifests(orders_table.table.io)[0].manifest_path
    avro_bomb(local(path), codec, 32 * MIB)
    from pyiceberg.manifest import _manifests

    getattr(_manifests, "cache_clear", lambda: None)()
    table = open_catalog(platform).load_table("cleantail.orders")
    tracemalloc.reset_peak()
    with pytest.raises(
        TableError, match=r"\.avro unpacks to more than 1048576 bytes; the limit is manifest\.max\.bytes"
    ):
        table_facts(table)
    if which == "list":
        with pytest.raises(TableError, match="manifest.max.bytes"):
            list(_manifests_of(table, table.current_snapshot()))
    assert peak() < 16


def test_a_manifest_that_is_long_as_it_is_ends_at_the_limit_too(project, orders_table):
    orders_table.append((0, 0, 1000, b"k", b"v"))
    platform = limited(project, manifest=1000)
    from pyiceberg.manifest import _manifests

    getattr(_manifests, "cache_clear", lambda: None)()
    with pytest.raises(TableError, match=r"more than 1000 bytes; the limit is manifest\.max\.bytes"):
        table_facts(open_catalog(platform).load_table("cleantail.orders"))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        pytest.param(zlib.compress(b"[" + b" " * 20 * MIB + b"]"), "unpacks to more than 1048576 bytes.*metadata.max.bytes", id="bomb"),
        pytest.param(zlib.compress(b"[1]")[:-5], "cannot be read: error", id="cut-off"),
        pytest.param(zlib.compress(b"[1]") + b"more", "cannot be read: error", id="followed"),
    ],
)  # fmt: skip
def test_a_packed_summary_beyond_the_limit_is_refused(monkeypatch, text, match):
    monkeypatch.setattr(Codec, "most_unpacked_bytes", MIB)
    codec = Codec(list[int])
    with pytest.raises(TableError, match=match):
        codec.unpacked(base64.b64encode(text).decode(), "entry")
    assert codec.unpacked(codec.packed([1, 2]), "entry") == [1, 2]


def test_limits_of_the_platform_are_those_of_packed_summaries(project):
    open_catalog(limited(project, metadata=12345))
    assert Codec.most_unpacked_bytes == 12345
    open_catalog(limited(project))
    assert Codec.most_unpacked_bytes == 64 * MIB


@pytest.mark.parametrize("packed", [True, False], ids=["packed-on-the-way", "as-it-is"])
def test_the_answer_of_a_rest_catalog_beyond_the_limit_is_the_tables_error(project, peak, packed):
    class Server(JsonHandler):
        def do_GET(self):
            if self.path.startswith("/v1/config"):
                self.answer(200, {"defaults": {}, "overrides": {}})
                return
            body = b"{" + b" " * 30 * MIB + b"}"
            body = gzip.compress(body, 1) if packed else body
            self.send_response(200)
            if packed:
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(OSError):  # nobody reads on
                self.wfile.write(body)

    with served(Server) as (_, address):
        catalog = {"type": "rest", "uri": address}
        text = {"platform": {"limits": {"metadata.max.bytes": 2 * MIB}, "catalog": catalog}}
        (project / "config" / "defaults.yaml").write_text(json.dumps(text))
        platform = load_platform(project / "config")
        opened = open_catalog(platform)
        topic = find_topic("orders", project / "config")
        with pytest.raises(TableError, match=r"an answer of the catalog .*metadata\.max\.bytes"):
            load_table(opened, topic)


def test_tasks_read_delete_files_by_the_limit_of_the_platform(project, orders_table):
    platform = limited(project, deletes=7 * MIB)
    store = store_properties(load_table(open_catalog(platform), orders_table.topic.on(platform)))
    bound_reads(LimitConfigs())  # as in a task, whose process opens no catalog
    assert most_delete_bytes(load_file_io(store, str(project))) == 7 * MIB

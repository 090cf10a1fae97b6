"""A table that no catalog lists shows by its metadata files: against real tables, of catalogs that do not share one."""

import contextlib
import gzip
import json
import os
import zlib
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from cleantail.config.loading import load_platform
from cleantail.errors import TableError
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.neighbours import require_separate_folder
from cleantail.lake.storage_locations import (
    OwnFolders,
    keep_first_metadata,
    oldest_own_file_ms,
    only_own_files,
    require_own_files,
    require_safe_commits,
)
from tests.unprivileged import as_nobody, open_folder

SCHEMA = Schema(NestedField(1, "offset", LongType()))
REFUSED = r"is metadata of another table \(.*nothing was changed\. Give each table a separate folder"


@pytest.fixture
def platform(project):
    return load_platform(project / "config")


@pytest.fixture
def ours(platform):
    """ours(location, name): a new table of the platform's catalog."""
    catalog = open_catalog(platform)
    catalog.create_namespace_if_not_exists("sinks")
    return lambda location=None, name="mine": catalog.create_table(f"sinks.{name}", SCHEMA, location=location)


@pytest.fixture
def lake(tmp_path):
    """A catalog of another team that the platform does not know."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/lake.db", warehouse=f"file:{tmp_path}/lake")
    catalog.create_namespace("sinks")
    return catalog


@pytest.fixture
def victim(lake):
    table = lake.create_table("sinks.victim", SCHEMA)
    table.append(pa.table({"offset": [1]}))
    return table


def local(uri):
    return Path(uri.removeprefix("file://").removeprefix("file:"))


@pytest.mark.parametrize("where", ["", "/", "/..", "/data", "/data/offset=1", "/metadata"])
def test_a_table_at_around_or_in_a_table_of_no_known_catalog_is_refused(ours, victim, where):
    with pytest.raises(TableError, match=REFUSED):
        oldest_own_file_ms(ours(f"{victim.location()}{where}"))


@pytest.mark.parametrize("name", ["v1.metadata.json", "00001-x.gz.metadata.json", "v7.metadata.json.gz"])
def test_metadata_counts_however_its_writer_calls_and_packs_it(ours, tmp_path, name):
    text = json.dumps({"format-version": 2, "table-uuid": "9C12D441-03fe-4693-9a96-a0705ddf69c1"}).encode()
    file = tmp_path / "far" / "deep" / "er" / name
    file.parent.mkdir(parents=True)
    file.write_bytes(gzip.compress(text) if "gz" in name else text)
    with pytest.raises(TableError, match=rf"{name} is metadata of another table \(9c12d441"):
        oldest_own_file_ms(ours(f"file:{tmp_path}/far"))


MADE = {"cleantail.topic": "orders", "cleantail.format": "1"}


def rewritten(table, **changes):
    file = local(table.metadata_location)
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize(
    ("own", "made", "changes", "passes"),
    [
        pytest.param(MADE, MADE, {}, True, id="a refused creation of this topic's table"),
        pytest.param(
            {"cleantail.side-of": "orders"}, {"cleantail.side-of": "orders"}, {}, True, id="of its side table"
        ),
        pytest.param({"cleantail.format": "1"}, {"cleantail.format": "1"}, {}, True, id="of the evidence"),
        pytest.param(MADE, MADE, {"location": "file:/elsewhere"}, False, id="of another location"),
        pytest.param(MADE, MADE | {"cleantail.topic": "others"}, {}, False, id="of another topic"),
        pytest.param({}, {}, {}, False, id="not ours"),
        pytest.param(MADE, MADE, {"last-sequence-number": 1}, False, id="it had a snapshot"),
        pytest.param(MADE, MADE, {"metadata-log": [{"timestamp-ms": 1, "metadata-file": "f"}]}, False, id="not first"),
        pytest.param(MADE, MADE | {"x": "x" * 70_000}, {}, False, id="too long"),
    ],
)
def test_only_the_file_of_a_refused_creation_of_the_same_table_blocks_nothing(ours, lake, own, made, changes, passes):
    table = ours()
    with table.transaction() as change:
        change.set_properties(own)
    twin = lake.create_table("sinks.twin", SCHEMA, location=table.location(), properties=made)
    rewritten(twin, **changes)
    if passes:
        assert oldest_own_file_ms(table)
        twin = lake.load_table("sinks.twin")
        twin.append(pa.table({"offset": [1]}))
    with pytest.raises(TableError, match=REFUSED):
        oldest_own_file_ms(table)


def test_a_truncated_metadata_file_and_tables_in_sibling_folders_are_allowed(ours, victim):
    table = ours(f"{local(victim.location()).parent}/mine")
    table.append(pa.table({"offset": [1]}))
    (local(table.location()) / "metadata" / "00009-x.metadata.json").write_text('{"format-ver')
    assert oldest_own_file_ms(table) > 0


def test_the_oldest_own_file_counts_by_the_time_of_the_store_whatever_the_metadata_says(ours):
    table = ours()
    table.append(pa.table({"offset": [1]}))
    [first, *_] = sorted(local(table.location()).rglob("*.metadata.json"))
    os.utime(first, (7, 7))
    stranger = local(table.location()) / "data" / "stranger.parquet"
    stranger.parent.mkdir(exist_ok=True)
    stranger.write_text("x")
    os.utime(stranger, (1, 1))
    assert oldest_own_file_ms(table) == 7000


def test_tables_of_the_catalogs_that_topics_read_are_neighbours(platform, ours, lake, victim, tmp_path):
    data = {"type": "sqlite", "uri": f"sqlite:///{tmp_path}/lake.db", "warehouse": f"file:{tmp_path}/lake"}
    knows = type(platform).model_validate(platform.model_dump() | {"source_catalogs": {"lake": data}})
    table = ours(f"file:{tmp_path}/lake/sinks/victim/data")
    with pytest.raises(TableError, match=r"sinks\.mine lies at .* table lake\.sinks\.victim at .*nothing was changed"):
        require_separate_folder(open_catalog(knows), knows, table)
    apart = ours(name="apart")
    assert require_separate_folder(open_catalog(platform), platform, ours(name="other")) == ""
    # the platform's own catalog by another login: a table is not its own neighbour
    again = {"type": "sqlite", "uri": platform.catalog_uri, "warehouse": platform.warehouse}
    twice = type(platform).model_validate(platform.model_dump() | {"source_catalogs": {"again": again}})
    table.catalog.drop_table("sinks.mine")
    assert require_separate_folder(open_catalog(twice), twice, apart) == ""


def test_an_unreachable_source_catalog_is_named_because_its_tables_are_unknown(platform, ours):
    data = {"type": "sqlite", "uri": "sqlite:////no/such/folder/x.db", "warehouse": "file:/x"}
    gone = type(platform).model_validate(platform.model_dump() | {"source_catalogs": {"gone": data}})
    assert "catalog gone cannot be reached" in require_separate_folder(open_catalog(gone), gone, ours())


def test_a_log_of_metadata_that_names_another_tables_file_in_the_own_folder_is_refused(ours, victim):
    """A table may have been set to the folder of another, and its log may name what that one has there."""
    table = ours(victim.location())
    table.append(pa.table({"offset": [1]}))
    with table.transaction() as change:
        change.set_properties({"write.metadata.delete-after-commit.enabled": "true"})
    require_safe_commits(table)
    file = local(table.metadata_location)
    document = json.loads(file.read_text())
    document["metadata-log"].append({"timestamp-ms": 1, "metadata-file": victim.metadata_location})
    file.write_text(json.dumps(document))
    with pytest.raises(TableError, match=REFUSED):
        require_safe_commits(table.refresh())


def test_damaged_packed_metadata_below_the_location_is_refused(ours, victim):
    table = ours(f"{local(victim.location()).parent}/mine")
    (local(table.location()) / "metadata" / "v9.gz.metadata.json").write_bytes(b"\x1f\x8b\x00j")
    with pytest.raises(TableError, match=r"v9\.gz\.metadata\.json is compressed and damaged"):
        oldest_own_file_ms(table)


def test_packed_metadata_that_a_full_disk_has_damaged_behind_its_uuid_is_that_tables(ours, victim):
    table = ours(f"{local(victim.location()).parent}/mine")
    damaged = local(table.location()) / "metadata" / "v9.gz.metadata.json"
    for document, refused in ((local(table.metadata_location), False), (local(victim.metadata_location), True)):
        packing = zlib.compressobj(wbits=31)
        packed = packing.compress(document.read_bytes()) + packing.flush(zlib.Z_FULL_FLUSH)
        damaged.write_bytes(packed + b"\x07" * 400)
        with pytest.raises(zlib.error):
            zlib.decompressobj(31).decompress(damaged.read_bytes())
        with pytest.raises(TableError, match="metadata of another table") if refused else contextlib.nullcontext():
            oldest_own_file_ms(table)


@pytest.mark.parametrize("file", ["s3://b/other/data/f", "s3://b/t/../other/f", "s3a://c/t/f", "s3://b/t2/f"])
def test_a_file_of_an_adopted_table_lies_in_its_folder_or_where_the_platform_says(file):
    with pytest.raises(TableError, match=r"has a file outside its location s3://b/t: .*nothing was read or changed"):
        OwnFolders("sinks.t", "s3://b/t", ()).require(["s3a://b/t/data/f", file])
    OwnFolders("sinks.t", "s3://b/t", (file.rpartition("/")[0],)).require(["s3a://b/t/data/f", file])


@pytest.mark.parametrize(
    "name", ["f.parquet", "deletes.parquet", "vector.puffin", "f", "m.avro", "f.parquet#.avro", "f?.avro"]
)
def test_the_files_of_an_adopted_table_are_opened_in_its_own_folders_only(name):
    io, table = PyArrowFileIO(), SimpleNamespace()
    table.io, table.name, table.location = io, lambda: ("c", "sinks", "t"), lambda: "s3://b/t"
    only_own_files(table, ("s3://raw/in",))
    assert (type(io).__qualname__, isinstance(io, PyArrowFileIO)) == ("PyArrowFileIO", True)
    with pytest.raises(TableError, match=r"table sinks\.t has a file outside its location s3://b/t: file:/victim"):
        io.new_input(f"file:/victim/{name}")
    with pytest.raises(TableError, match="list its folder in platform.imported_folders"):
        require_own_files(table, [f"s3://b/t/{name}", f"s3://b/x/{name}"])
    io.new_input("file:/elsewhere/metadata/v1.metadata.json")  # the catalog names it


@pytest.fixture
def readable(ours):
    """A table in a folder that every user may list, and a metadata file there that only its owner may read."""
    with open_folder() as folder:
        table = ours(f"file:{folder}/mine")
        hidden = folder / "mine" / "metadata" / "v9.metadata.json"
        hidden.write_text('{"table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1"}')
        hidden.chmod(0o600)
        yield table, hidden


def test_a_metadata_file_that_cannot_be_read_refuses_with_a_sentence(readable):
    table, hidden = readable
    message = r"v9\.metadata\.json cannot be read: PermissionError.*nothing was changed\. Allow the login"
    with as_nobody(), pytest.raises(TableError, match=message):
        oldest_own_file_ms(table)
    with table.transaction() as change:
        change.set_properties({"write.metadata.delete-after-commit.enabled": "true"})
    file = local(table.metadata_location)
    document = json.loads(file.read_text())
    document["metadata-log"] = [{"timestamp-ms": 1, "metadata-file": f"file:{hidden}"}]
    file.write_text(json.dumps(document))
    table.refresh()
    with as_nobody(), pytest.raises(TableError, match=message):
        require_safe_commits(table)
    hidden.unlink()
    require_safe_commits(table)  # deleted before, as by a commit


def test_a_kept_first_metadata_file_shows_since_when_the_folder_is_the_tables_and_blocks_no_later_table(ours, lake):
    table = ours()
    with table.transaction() as change:
        change.set_properties(MADE)
    keep_first_metadata(table)
    [first] = local(table.location()).rglob("00000-first-*")
    os.utime(first, (7, 7))
    table.append(pa.table({"offset": [1]}))
    for older in set(local(table.location()).rglob("*.metadata.json")) - {first, local(table.metadata_location)}:
        older.unlink()  # as commits do
    keep_first_metadata(table)
    assert oldest_own_file_ms(table) == 7000
    for name in lake.list_tables("sinks"):
        if lake.load_table(name).location() == table.location():
            lake.drop_table(name)
    again = lake.create_table("sinks.again", SCHEMA, location=table.location(), properties=MADE)
    local(table.metadata_location).unlink()
    again.append(pa.table({"offset": [1]}))
    assert oldest_own_file_ms(again) > 7000

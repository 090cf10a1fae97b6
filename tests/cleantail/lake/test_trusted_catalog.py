"""No metadata of a table reaches a FileIO, a location provider or a login: every name that PyIceberg has is tried, by
introspection, in tables of every type of catalog."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock

import pytest
from pyiceberg import catalog as of_catalogs
from pyiceberg import io as of_files
from pyiceberg.catalog import rest as of_rest
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

from cleantail.config.loading import load_platform
from cleantail.errors import TableError
from cleantail.lake.catalogs import load_named, open_catalog, store_properties
from cleantail_cli import main
from tests.cleantail.rest_catalog import JsonHandler, served

SCHEMA = Schema(NestedField(1, "offset", LongType()))
CALLED = []
EVIL = "http://evil.example"
SECRET = "the-store-s-secret"


def provider(*arguments):
    CALLED.append(arguments)
    raise AssertionError("code that a table names was called")


def constants(*places):
    """Returns the texts of all constants of these modules and classes, but for those that are values."""
    found = {v for p in places for k, v in vars(p).items() if k.isupper() and isinstance(v, str)}
    return {v for v in found if re.fullmatch(r"[a-z][\w.-]*[a-z]", v)} - {"format-version"}


NAMES = constants(of_files, of_catalogs, of_rest, TableProperties) | {
    "gcs.anything.new",
    "hf.endpoint",
    "DEFAULT_REGION",
}
CODE = {name: f"{__name__}.provider" for name in NAMES if name.endswith(("impl", "signer"))}
PROPERTIES = {**dict.fromkeys(NAMES, EVIL), **CODE}


@pytest.fixture
def metadata(tmp_path):
    """metadata(**properties): the location of a new table's metadata file, written as its owner may write it."""
    CALLED.clear()

    def write(**properties):
        location = f"{tmp_path}/lake/table{len(list(tmp_path.glob('lake/*')))}"
        written = new_table_metadata(
            schema=SCHEMA, partition_spec=UNPARTITIONED_PARTITION_SPEC, sort_order=UNSORTED_SORT_ORDER,
            location=location, properties={**properties},
        )  # fmt: skip
        file = f"{location}/metadata/00000-a.metadata.json"
        ToOutputFile.table_metadata(written, load_file_io({}, file).new_output(file))
        return file

    return write


def platform(project, **catalog):
    (project / "config" / "defaults.yaml").write_text(json.dumps({"platform": {"catalog": catalog}} if catalog else {}))
    return load_platform(project / "config")


def sql(project, metadata_file, monkeypatch):
    monkeypatch.setenv("CLEANTAIL_S3_SECRET_ACCESS_KEY", SECRET)
    catalog = open_catalog(platform(project))
    catalog.create_namespace("sinks")
    catalog.register_table("sinks.orders", metadata_file)
    return catalog.load_table("sinks.orders")


def glue(project, metadata_file, monkeypatch):
    """Glue's client is imported, and not asked: what PyIceberg makes of its answer is what counts."""
    for name in ("boto3", "botocore", "botocore.config", "botocore.exceptions"):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    from pyiceberg.catalog.glue import GlueCatalog

    catalog = trusted(GlueCatalog("glue", client=MagicMock(), **{"s3.secret-access-key": SECRET}))
    parameters = {"table_type": "ICEBERG", "metadata_location": metadata_file}
    return catalog._convert_glue_to_iceberg({"Name": "orders", "DatabaseName": "sinks", "Parameters": parameters})


def hive(project, metadata_file, monkeypatch):
    """As with Glue: the metastore is not asked, what comes from it is."""
    thrift = ("thrift", "thrift.protocol", "thrift.transport", "hive_metastore", "hive_metastore.ttypes")
    for name in (*thrift, "hive_metastore.ThriftHiveMetastore"):
        module = MagicMock()
        module.__class__ = ModuleType
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "pyiceberg.catalog.hive", raising=False)
    from pyiceberg.catalog.hive import HiveCatalog

    catalog = trusted(HiveCatalog("hive", uri="thrift://localhost:1", **{"s3.secret-access-key": SECRET}))
    parameters = {"table_type": "ICEBERG", "metadata_location": metadata_file}
    return catalog._convert_hive_into_iceberg(
        SimpleNamespace(dbName="sinks", tableName="orders", parameters=parameters)
    )


def trusted(catalog):
    from cleantail.lake import metadata_guards

    catalog.__class__ = metadata_guards._trusted(type(catalog))
    return catalog


@pytest.fixture
def rest(project, monkeypatch):
    """rest(metadata_file, config, credentials, overrides): a catalog of a real server that sends these with its table."""
    monkeypatch.setenv("CLEANTAIL_CATALOG_TOKEN", "TOKEN-OF-PLATFORM")
    sent = {}

    class Server(JsonHandler):
        def do_GET(self):
            if self.path.startswith("/v1/config"):
                self.answer(200, {"defaults": {}, "overrides": sent["overrides"]})
                return
            document = {"metadata-location": sent["file"], "metadata": json.loads(Path(sent["file"]).read_text())}
            credentials = [{"prefix": "", "config": sent["credentials"]}] if sent["credentials"] else []
            self.answer(200, {**document, "config": sent["config"], "storage-credentials": credentials})

    with served(Server) as (_, address):

        def opened(file, config=None, credentials=None, overrides=None):
            sent.update(file=file, config=config or {}, credentials=credentials, overrides=overrides or {})
            return open_catalog(platform(project, type="rest", uri=address))

        yield opened


def assert_untouched(table):
    assert CALLED == []
    evil = {k: v for k, v in table.io.properties.items() if v == EVIL or v in CODE.values()}
    assert evil == {}
    assert type(table.io).__name__ == "PyArrowFileIO"
    assert not {EVIL, *CODE.values()} & set(store_properties(table).values())
    assert table.properties["s3.endpoint"] == EVIL  # as data they stay


def test_there_are_names_to_try():
    assert {"py-io-impl", "s3.endpoint", "s3.signer.uri", "write.py-location-provider.impl", "warehouse"} <= NAMES
    assert len(NAMES) > 100


@pytest.mark.parametrize("kind", [sql, glue, hive], ids=lambda kind: kind.__name__)
def test_no_name_of_pyiceberg_in_a_table_reaches_the_file_io_of_its_catalog(kind, project, metadata, monkeypatch):
    table = kind(project, metadata(**PROPERTIES), monkeypatch)
    assert_untouched(table)
    if kind is sql:
        assert table.io.properties["s3.secret-access-key"] == SECRET
        assert_untouched(table.refresh())


def test_no_name_of_pyiceberg_in_a_table_reaches_the_file_io_of_a_rest_catalog(rest, metadata):
    catalog = rest(metadata(**PROPERTIES), {"s3.endpoint": "http://store", "s3.access-key-id": "of-config"})
    table = catalog.load_table("sinks.orders")
    assert_untouched(table)
    assert (table.io.properties["s3.endpoint"], table.io.properties["s3.access-key-id"]) == (
        "http://store",
        "of-config",
    )


def test_what_a_rest_catalog_vends_for_a_folder_wins_and_names_no_code(rest, metadata):
    impl = {
        "py-io-impl": f"{__name__}.provider",
        "io-impl": "evil.Class",
        "s3.retry-strategy-impl": f"{__name__}.provider",
    }
    own = {"s3.access-key-id": "of-config", **impl}
    vended = {"s3.access-key-id": "of-folder", **impl}
    table = rest(metadata(), own, vended).load_table("sinks.orders")
    assert table.io.properties["s3.access-key-id"] == "of-folder"
    assert CALLED == [] and not set(impl) & set(table.io.properties)


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param({"py-io-impl": f"{__name__}.provider"}, id="a-file-io"),
        pytest.param({"auth": {"type": f"{__name__}.provider"}}, id="a-login"),
        pytest.param({"auth": {"type": "custom", "impl": f"{__name__}.provider"}}, id="a-login-of-its-own"),
        pytest.param({"ssl": {"client": {"cert": "/etc/passwd"}}}, id="files-of-ours-to-show"),
    ],
)
def test_the_settings_of_a_rest_catalogs_server_name_no_code_and_no_login(rest, metadata, overrides):
    catalog = rest(metadata(), overrides={**overrides, "s3.region": "from-server"})
    table = catalog.load_table("sinks.orders")
    assert CALLED == [] and type(table.io).__name__ == "PyArrowFileIO" and catalog._session.cert is None
    assert table.io.properties["s3.region"] == "from-server"


def test_the_platforms_file_io_wins_over_the_one_that_the_server_names(project, rest, metadata):
    catalog = rest(metadata(), overrides={"py-io-impl": f"{__name__}.provider"})
    fsspec = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}
    own = platform(project, type="rest", uri=catalog.uri, properties=fsspec)
    assert type(open_catalog(own).load_table("sinks.orders").io).__name__ == "FsspecFileIO"
    assert CALLED == []


@pytest.mark.parametrize("value", ["builtins.print", "sys.exit", "logging.config.fileConfig"])
def test_status_neither_runs_nor_prints_what_a_table_names_as_its_file_io(
    project, orders_table, monkeypatch, capsys, value
):
    monkeypatch.setenv("CLEANTAIL_S3_SECRET_ACCESS_KEY", SECRET)
    orders_table.append((0, 0, 1000, b"k", b"v"))
    orders_table.set_properties(**{"py-io-impl": value, "s3.endpoint": EVIL})
    with pytest.raises(SystemExit) as end:
        sys.exit(main(["--config", str(project / "config"), "status", "orders"]))
    out, err = capsys.readouterr()
    assert end.value.code == 0 and SECRET not in out + err and "orders" in out


def test_a_table_named_on_the_command_line_is_loaded_without_its_py_io_impl(project, orders_table):
    orders_table.set_properties(**{"py-io-impl": f"{__name__}.provider"})
    CALLED.clear()
    load_named(orders_table.platform, "cleantail.orders")
    assert CALLED == []


CODE_NAMES = [
    "py-io-impl", "write.py-location-provider.impl", "write.location-provider.impl", "io-impl", "metrics-reporter-impl",
    "catalog-impl", "lock-impl", "encryption.kms-impl", "s3.retry-strategy-impl", "client.factory-impl",
    "write.metadata.metrics-reporter-impl", "fs.s3a.endpoint", "fs.file.impl", "FS.S3A.IMPL.DISABLE.CACHE", "dfs.client.x",
    "hadoop.security.credential.provider.path", "parquet.crypto.factory.class", "parquet.encryption.kms.client.class",
    "parquet.write.support.class", "io.compression.codecs", "fs.s3a.assumed.role.arn",
]  # fmt: skip
DATA_NAMES = [
    "comment", "owner", "implementation", "simplify", "write.parquet.compression-codec", "parquet.compression",
    "orc.compress", "storage.class", "security.class", "fs", "write.spark.fanout.enabled", "offsets", "fsx.a", "s3.endpoint",
]  # fmt: skip


@pytest.mark.parametrize("name", CODE_NAMES)
def test_a_table_that_names_code_or_a_store_is_refused_where_it_is_written(orders_table, name):
    from cleantail.lake.catalogs import require_usable

    file = Path(orders_table.append((0, 0, 1000, b"k", b"v")).table.metadata_location.removeprefix("file:"))
    document = json.loads(file.read_text())
    document["properties"][name] = f"{__name__}.provider"  # as its owner writes it, with a client of their own
    file.write_text(json.dumps(document))
    CALLED.clear()
    with pytest.raises(
        TableError, match=rf"cleantail\.orders has the property {re.escape(name)}, .*nothing was changed"
    ):
        require_usable(orders_table.topic)
    with pytest.raises(TableError, match="names code or a store"):
        orders_table.catalog.load_table("cleantail.orders").transaction().set_properties(a="b").commit_transaction()
    assert CALLED == []


def test_a_table_with_properties_that_are_only_data_is_usable(orders_table):
    from cleantail.lake.catalogs import require_usable

    orders_table.set_properties(**dict.fromkeys(DATA_NAMES[:-5], "x"), **dict.fromkeys(set(DATA_NAMES[-4:]), EVIL))
    require_usable(orders_table.topic)


def test_no_other_module_opens_a_catalog_or_builds_a_file_io_of_a_tables_properties():
    root = Path(__file__).parents[3]
    opening = re.compile(
        r"\bload_catalog\(|\bStaticTable\b|_load_file_io|load_location_provider|load_file_io\([^\n]*\bproperties\.properties"
    )
    folders = ("cleantail", "cleantail_cli", "spark_jobs", "plugins", "embedded_airflow", "demo", "differential")
    files = [file for folder in folders for file in (root / folder).rglob("*.py")]
    assert len(files) > 300
    assert [f.name for f in files if opening.search(f.read_text())] == ["metadata_guards.py"]

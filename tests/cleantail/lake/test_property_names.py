"""The table of property names is compared with both clients' own sources: a row with an unknown name fails."""

import importlib
import os
import pkgutil
import zipfile
from pathlib import Path

import pyiceberg
import pytest

from cleantail.config.catalog import Catalog
from cleantail.lake.client_properties import NAMES, of_java, of_pyiceberg

REPOSITORY = Path(__file__).parents[3]


def names_of_pyiceberg():
    """Every text that a module of PyIceberg's file IO or catalogs gives a name in capitals."""
    modules = [name for _, name, _ in pkgutil.walk_packages(pyiceberg.__path__, "pyiceberg.") if ".io" in name]
    values = [value for name in modules for key, value in vars(importlib.import_module(name)).items() if key.isupper()]
    source = (Path(pyiceberg.__path__[0]) / "catalog" / "glue.py").read_text()  # it needs boto3 to be imported
    return {value for value in values if isinstance(value, str)} | {part for part in source.split('"') if "." in part}


@pytest.mark.parametrize("row", NAMES, ids=lambda row: f"{row.java} {row.pyiceberg}")
def test_pyiceberg_has_its_name_of_each_row(row):
    assert row.pyiceberg in names_of_pyiceberg()


@pytest.mark.parametrize("row", NAMES, ids=lambda row: f"{row.java} {row.pyiceberg}")
def test_icebergs_jar_has_its_name_of_each_row(row):
    jars = Path(os.environ.get("CLEANTAIL_JARS") or REPOSITORY / ".cleantail" / "jars")
    (runtime,) = jars.glob("org.apache.iceberg_iceberg-spark-runtime-*.jar")
    with zipfile.ZipFile(runtime) as jar:
        classes = [
            name for name in jar.namelist() if name.startswith("org/apache/iceberg/aws/") and "Properties" in name
        ]
        assert any(row.java.encode() in jar.read(name) for name in classes)


@pytest.mark.parametrize(
    ("written", "java", "pyiceberg"),
    [
        pytest.param({"client.region": "eu-1"}, {"client.region": "eu-1"}, {"s3.region": "eu-1"}, id="region of Java"),
        pytest.param({"s3.region": "eu-1"}, {"client.region": "eu-1"}, {"s3.region": "eu-1"}, id="region of PyIceberg"),
        pytest.param(
            {"s3.path-style-access": "true"},
            {"s3.path-style-access": "true"},
            {"s3.force-virtual-addressing": "false"},
            id="path style",
        ),
        pytest.param(
            {"s3.force-virtual-addressing": "true"},
            {"s3.path-style-access": "false"},
            {"s3.force-virtual-addressing": "true"},
            id="virtual hosts",
        ),
        pytest.param(
            {"s3.connect-timeout": "1.5"},
            {"http-client.apache.connection-timeout-ms": "1500"},
            {"s3.connect-timeout": "1.5"},
            id="seconds and milliseconds",
        ),
        pytest.param(
            {"http-client.apache.socket-timeout-ms": "2500"},
            {"http-client.apache.socket-timeout-ms": "2500"},
            {"s3.request-timeout": "2.5"},
            id="milliseconds and seconds",
        ),
        pytest.param({"rest.auth.type": "sigv4"}, {"rest.auth.type": "sigv4"}, {"rest.sigv4-enabled": "true"}, id="sigv4"),
        pytest.param(
            {"rest.sigv4-enabled": "true"}, {"rest.auth.type": "sigv4"}, {"rest.sigv4-enabled": "true"}, id="sigv4, too"
        ),
        pytest.param({"io-impl": "a.B", "jdbc.useSSL": "true", "py-io-impl": "c.D"}, {"io-impl": "a.B", "jdbc.useSSL": "true"}, {"py-io-impl": "c.D"}, id="each its own"),
    ],
)  # fmt: skip
def test_each_client_gets_a_property_by_its_own_name(written, java, pyiceberg):
    assert of_java(written).items() >= java.items()
    assert of_pyiceberg(written).items() >= pyiceberg.items()
    ours, theirs = {row.java for row in NAMES}, {row.pyiceberg for row in NAMES}
    assert not (of_java(written).keys() & theirs) and not (of_pyiceberg(written).keys() & (ours - {"client.region"}))
    assert "io-impl" not in of_pyiceberg(written) and "py-io-impl" not in of_java(written)


@pytest.mark.parametrize("name", ["s3.endpoint", "oauth2-server-uri", "scope", "glue.id", "header.X-Team", "prefix"])
def test_what_no_row_has_goes_to_both_as_it_is_written(name):
    assert of_java({name: "x"}) == of_pyiceberg({name: "x"}) == {name: "x"}


def test_where_both_names_are_written_each_client_has_its_own():
    both = {"client.region": "eu-1", "s3.region": "eu-2"}
    assert of_java(both)["client.region"] == "eu-1"
    assert of_pyiceberg(both)["s3.region"] == "eu-2"


@pytest.mark.parametrize(
    ("catalog", "match"),
    [
        ({"properties": {"s3.remote-signing-enabled": "true"}}, "no remote signing"),
        ({"properties": {"s3.signer": "S3V4RestSigner"}}, "no remote signing"),
        ({"properties": {"s3.sse.type": "kms"}}, "Use the bucket's"),
        ({"properties": {"warehouse": "s3://b/w"}}, "platform.catalog.warehouse"),
        ({"properties": {"catalog-impl": "a.B"}}, "platform.catalog.type"),
        ({"properties": {"a": "1"}, "secrets": {"a": "CLEANTAIL_STORE_A"}}, "in properties or secrets, not both"),
        ({"type": "glue"}, "the root folder of tables"),
        ({"type": "glue", "uri": "https://glue"}, "set an endpoint by glue.endpoint"),
        ({"type": "hive", "uri": "http://x", "warehouse": "s3://w"}, "thrift://host:9083"),
        ({"type": "mysql", "uri": "postgresql://x/y"}, "mysql://host:3306/database"),
    ],
)
def test_what_one_client_could_not_do_is_refused(catalog, match):
    with pytest.raises(ValueError, match=match):
        Catalog(**catalog)


def test_properties_that_switch_a_feature_off_are_allowed():
    switched_off = {"s3.remote-signing-enabled": "false", "s3.sse.type": "none"}
    assert Catalog(properties=switched_off).properties == switched_off

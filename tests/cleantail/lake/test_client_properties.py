"""The properties that both clients get for each type of catalog, and the variable of each secret."""

import socket
import time

import pytest

from cleantail.config.loading import load_platform
from cleantail.config.platform import Catalog, Platform
from cleantail.errors import ConfigError, OutsideError
from cleantail.lake import client_properties
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.client_properties import (
    pyiceberg_properties,
    spark_catalog,
    spark_secrets,
    with_renewed_tokens,
)

LOGIN = {"CLEANTAIL_CATALOG_USER": "me", "CLEANTAIL_CATALOG_PASSWORD": "p@ss"}
LIMIT = "?connect_timeout=60&read_timeout=60"
DELEGATION = "header.X-Iceberg-Access-Delegation"


@pytest.fixture
def platform(tmp_path):
    return lambda **catalog: Platform(catalog=Catalog(**catalog), home=tmp_path, config_dir=tmp_path)


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "mysql+pymysql"])
def test_mysql_is_a_jdbc_catalog_of_both(platform, scheme):
    of = platform(type="mysql", uri=f"{scheme}://db:3306/iceberg", warehouse="s3://w")
    plain = scheme.partition("+")[0]
    assert spark_catalog(of)["uri"] == f"jdbc:{plain}://db:3306/iceberg"
    assert pyiceberg_properties(of.with_env(LOGIN))["uri"] == f"{plain}+pymysql://me:p%40ss@db:3306/iceberg{LIMIT}"
    assert spark_secrets(of.with_env(LOGIN)) == {"jdbc.user": "me", "jdbc.password": "p@ss"}
    assert not {k for k in pyiceberg_properties(of.with_env(LOGIN)) if k.startswith("jdbc.")}
    assert spark_catalog(of)["jdbc.socketTimeout"] == "60000"


def test_a_limit_of_time_of_the_platform_wins(platform):
    own = {"uri": "postgresql://db/iceberg?connect_timeout=2", "properties": {"jdbc.socketTimeout": "2"}}
    of = platform(type="postgres", warehouse="s3://w", **own)
    assert pyiceberg_properties(of)["uri"] == "postgresql+psycopg2://db/iceberg?connect_timeout=2"
    assert spark_catalog(of)["jdbc.socketTimeout"] == "2"
    of = platform(type="postgres", uri="postgresql://db/iceberg?sslmode=require", warehouse="s3://w")
    assert pyiceberg_properties(of)["uri"].endswith("?sslmode=require&connect_timeout=60")
    assert spark_catalog(of)["jdbc.socketTimeout"] == "60"


def test_a_database_that_never_answers_is_an_error(platform, monkeypatch):
    monkeypatch.setitem(client_properties._DATABASES, "postgres", ("2", "connect_timeout=2"))
    began = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(OutsideError, match="no answer in time"):
        uri = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/iceberg"
        open_catalog(platform(type="postgres", uri=uri, warehouse="s3://w"))
    assert time.monotonic() - began < 30


def test_both_clients_get_the_properties_of_glue(platform):
    of = platform(type="glue", warehouse="s3://w", properties={"client.region": "eu-1", "glue.id": "42"})
    assert spark_catalog(of).items() >= {"type": "glue", "client.region": "eu-1", "glue.id": "42"}.items()
    assert pyiceberg_properties(of).items() >= {"type": "glue", "client.region": "eu-1", "glue.id": "42"}.items()
    assert "uri" not in spark_catalog(of) and "uri" not in pyiceberg_properties(of)


def test_hive_has_one_address_for_both(platform):
    of = platform(type="hive", uri="thrift://h:9083", warehouse="s3://w")
    for told in (spark_catalog(of), pyiceberg_properties(of)):
        assert (told["type"], told["uri"], told["warehouse"]) == ("hive", "thrift://h:9083", "s3://w")


def test_a_rest_catalog_is_asked_for_the_stores_credentials_by_both_and_has_its_own_warehouse(platform):
    of = platform(type="rest", uri="http://c")
    for told in (spark_catalog(of), pyiceberg_properties(of)):
        assert told[DELEGATION] == "vended-credentials" and "warehouse" not in told
    asked = platform(type="rest", uri="http://c", warehouse="lake", properties={DELEGATION: ""})
    for told in (spark_catalog(asked), pyiceberg_properties(asked)):
        assert (told[DELEGATION], told["warehouse"]) == ("", "lake")


def test_a_secret_of_any_name_comes_from_the_variable_that_the_yaml_names(tmp_path):
    (tmp_path / "defaults.yaml").write_text(
        "platform: {catalog: {type: rest, uri: 'http://c', secrets: {header.X-Api-Key: CLEANTAIL_CATALOG_API_KEY}}}"
    )
    of = load_platform(tmp_path, {})
    knowing = of.with_env({"CLEANTAIL_CATALOG_API_KEY": "hunter2"})
    assert spark_secrets(knowing) == {"header.X-Api-Key": "hunter2"}
    assert pyiceberg_properties(knowing)["header.X-Api-Key"] == "hunter2"
    assert "hunter2" not in str(spark_catalog(of)) and "header.X-Api-Key" not in pyiceberg_properties(of)


@pytest.mark.parametrize("value", ["hunter2", "AWS_SECRET_ACCESS_KEY", "CLEANTAIL_KAFKA_SASL_PASSWORD", "CLEANTAIL_XY"])
def test_a_secret_that_names_no_cleantail_variable_is_refused_without_its_value(tmp_path, value):
    (tmp_path / "defaults.yaml").write_text(f"platform: {{catalog: {{secrets: {{token: {value}}}}}}}")
    with pytest.raises(ConfigError, match=r"catalog\.secrets\.token.*begins with CLEANTAIL_CATALOG_") as refused:
        load_platform(tmp_path, {})
    assert value not in str(refused.value).replace("CLEANTAIL_CATALOG_", "")


def test_pyiceberg_renews_a_token_where_it_knows_where(platform):
    where = {"oauth2-server-uri": "https://idp/token", "scope": "lake"}
    of = platform(type="rest", uri="http://c", properties=where)
    env = {"CLEANTAIL_CATALOG_CREDENTIAL": "me:a:b"}
    told = with_renewed_tokens(pyiceberg_properties(of.with_env(env)))
    login = {"client_id": "me", "client_secret": "a:b", "token_url": "https://idp/token", "scope": "lake"}
    assert told["auth"]["oauth2"].items() >= login.items() and "credential" not in told
    for less in ({}, {"CLEANTAIL_CATALOG_TOKEN": "t"}):
        assert "auth" not in with_renewed_tokens(pyiceberg_properties(of.with_env(less)))
    assert "auth" not in with_renewed_tokens(pyiceberg_properties(platform(type="rest", uri="http://c").with_env(env)))


@pytest.mark.parametrize(("value", "is_reference"), [("cleantail-login:credential", True), ("Hunter2", False)])
def test_a_reference_to_a_secret_of_kubernetes_is_no_secret(tmp_path, value, is_reference):
    key = "spark.kubernetes.driver.secretKeyRef.CLEANTAIL_CATALOG_CREDENTIAL"
    (tmp_path / "defaults.yaml").write_text(f"platform: {{spark: {{conf: {{{key}: {value}}}}}}}")
    if is_reference:
        assert load_platform(tmp_path, {}).spark.conf == {key: value}
    else:
        with pytest.raises(ConfigError, match="secrets are not allowed in YAML"):
            load_platform(tmp_path, {})

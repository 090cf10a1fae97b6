"""The catalog's login from an Airflow connection: into the environment, where it was not, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cleantail.config.platform import Catalog, Platform
from cleantail.errors import CleantailError
from cleantail.lake.client_properties import pyiceberg_properties
from cleantail.lake.spark_settings import spark_conf, spark_secrets
from cleantail_airflow import catalog_login
from cleantail_airflow.catalog_login import with_login

SECRET = "hunter2"


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_login, "_logins_put", {})


def connection(monkeypatch: pytest.MonkeyPatch, **what: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "iceberg", **what}))


def platform(home: Path, **catalog: Any) -> Platform:
    return Platform(catalog=Catalog(connection="lake", **catalog), home=home, config_dir=home)


REST = {"type": "rest", "uri": "http://c", "secrets": {"header.X-Api-Key": "CLEANTAIL_CATALOG_API_KEY"}}
POSTGRES = {"type": "postgres", "uri": "postgresql://db/iceberg"}


@pytest.mark.parametrize(
    ("catalog", "given", "expected"),
    [
        (REST, {"login": "me", "password": SECRET}, {"CLEANTAIL_CATALOG_CREDENTIAL": f"me:{SECRET}"}),
        (REST, {"password": SECRET}, {"CLEANTAIL_CATALOG_TOKEN": SECRET}),
        (REST, {"extra": {"header.X-Api-Key": SECRET, "other": "x"}}, {"CLEANTAIL_CATALOG_API_KEY": SECRET}),
        (REST, {"extra": {"s3.access-key-id": "a"}}, {"CLEANTAIL_S3_ACCESS_KEY_ID": "a"}),
        (POSTGRES, {"login": "me", "password": SECRET}, {"CLEANTAIL_CATALOG_USER": "me", "CLEANTAIL_CATALOG_PASSWORD": SECRET}),
        ({"type": "glue", "warehouse": "s3://w"}, {"login": "me", "password": SECRET}, {}),
    ],
    ids=["credential", "token", "a secret that the yaml names", "store", "database", "glue has its own chain"],
)  # fmt: skip
def test_a_connection_gives_what_the_environment_lacks(monkeypatch, tmp_path, catalog, given, expected):  # type: ignore[no-untyped-def]
    connection(monkeypatch, **given)
    env: dict[str, str] = {}
    with_login(platform(tmp_path, **catalog), env)
    assert env == expected


def test_what_the_environment_has_wins_and_a_changed_connection_is_taken_up(monkeypatch, tmp_path):  # type: ignore[no-untyped-def]
    lake = platform(tmp_path, **REST)
    connection(monkeypatch, password=SECRET)
    own = {"CLEANTAIL_CATALOG_TOKEN": "own"}
    with_login(lake, own)
    assert own == {"CLEANTAIL_CATALOG_TOKEN": "own"}
    env: dict[str, str] = {}
    for password in (SECRET, "rotated"):
        connection(monkeypatch, password=password)
        with_login(lake, env)
        assert env == {"CLEANTAIL_CATALOG_TOKEN": password}
    lake = lake.with_env(env)
    assert pyiceberg_properties(lake)["token"] == "rotated"
    assert spark_secrets(lake) == {"spark.sql.catalog.cleantail.token": "rotated"}
    assert "rotated" not in str(spark_conf(lake))


def test_a_connection_that_is_not_there_is_named(tmp_path):  # type: ignore[no-untyped-def]
    with pytest.raises(CleantailError, match="Airflow has no connection lake, which platform.catalog.connection names"):
        with_login(platform(tmp_path, **REST), {})


def test_a_connection_gives_the_secrets_of_erasures(monkeypatch, tmp_path):  # type: ignore[no-untyped-def]
    monkeypatch.setenv("AIRFLOW_CONN_FORGET", json.dumps({"password": SECRET, "extra": {"certificate_key": "signs"}}))
    asks = Platform(erasure_connection="forget", home=tmp_path, config_dir=tmp_path)
    env = {"CLEANTAIL_CERTIFICATE_KEY": "own"}
    with_login(asks, env)
    assert env == {"CLEANTAIL_CERTIFICATE_KEY": "own", "CLEANTAIL_ERASURE_KEY": SECRET}
    env = {}
    with_login(asks, env)
    assert env == {"CLEANTAIL_CERTIFICATE_KEY": "signs", "CLEANTAIL_ERASURE_KEY": SECRET}
    monkeypatch.delenv("AIRFLOW_CONN_FORGET")
    with pytest.raises(CleantailError, match="no connection forget, which platform.erasure_connection names"):
        with_login(asks, {})

"""The catalogs that a team may have, each a real server where it can be started here: what `platform.catalog` says of
it, and the secrets of the environment."""

from __future__ import annotations

import importlib.util
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.catalog_door import Door, door

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy"))
import catalog_services as services  # noqa: E402
from service_processes import (  # noqa: E402
    LOOPBACK,
    NotStarted,
    Processes,
    built_versitygw,
    free_port,
    start_postgres,
    start_s3,
)

SECRET, ID = "th1s-is-secret", "cleantail-id"
REQUIRED = "CLEANTAIL_REQUIRE_CATALOGS"
"""Set by `make test-services`: a catalog that cannot be started is a failure there, and not passed over."""
PACKAGES = "CLEANTAIL_CATALOG_PACKAGES"
"""Where moto, boto3 and pymysql are, where the environment lacks them."""


@dataclass
class Site:
    """A catalog, as YAML and environment say it."""

    kind: str
    catalog: dict[str, Any]
    env: dict[str, str] = field(default_factory=dict)
    door: Door | None = None
    has_views: bool = True


def lacks(*needs: tuple[bool, str]) -> None:
    missing = [text for there, text in needs if not there]
    if missing and os.environ.get(REQUIRED):
        pytest.fail(f"missing: {', '.join(missing)}")
    if missing:
        pytest.skip(f"missing: {', '.join(missing)}")


def _package(name: str) -> tuple[bool, str]:
    return importlib.util.find_spec(name) is not None, f"Python package {name}"


def jars(name: str) -> list[Path]:
    return sorted(Path(os.environ.get("CLEANTAIL_JARS") or ROOT / ".cleantail" / "jars").glob(f"*{name}*.jar"))


def rest_jars() -> Path:
    return Path(os.environ.get("CLEANTAIL_REST_JARS") or ROOT / ".cleantail" / "jars-rest")


@contextmanager
def site(kind: str):
    """Yields the catalog, and stops all that it takes."""
    with TemporaryDirectory(prefix="cleantail-catalog-") as name:
        Path(name).chmod(0o711)  # a database runs as a user of its own, and passes through: not so by pytest's folders
        yield from _site(kind, Path(name))


def _site(kind: str, folder: Path):
    (folder / "logs").mkdir()
    with Processes(folder / "logs") as processes:
        try:
            yield from {"rest": _rest, "rest-s3": _rest_s3, "postgres": _postgres, "mysql": _mysql, "glue": _glue}[
                kind
            ](processes, folder)
        except NotStarted as error:
            lacks((False, str(error).partition("\n")[0]))


def _rest(processes: Processes, folder: Path):
    lacks((any(rest_jars().glob("*.jar")), f"bin/fetch-jars {rest_jars()} rest"))
    properties = {"uri": f"jdbc:sqlite:{folder / 'rest.db'}", "warehouse": f"file://{folder / 'warehouse'}"}
    behind = services.start_rest(processes, free_port(), rest_jars(), properties)
    with door(behind, f"{ID}:{SECRET}", lives_s=20) as before:
        catalog = {
            "type": "rest",
            "uri": before.address,
            "properties": {"scope": "lake", "oauth2-server-uri": f"{before.address}/v1/oauth/tokens"},
        }
        yield Site("rest", catalog, {"CLEANTAIL_CATALOG_CREDENTIAL": f"{ID}:{SECRET}"}, before)


def _rest_s3(processes: Processes, folder: Path):
    """The store's credentials are the catalog's own, which gives them with each table: the environment has none."""
    bundle = jars("iceberg-aws-bundle")
    lacks(
        (any(rest_jars().glob("*.jar")), f"bin/fetch-jars {rest_jars()} rest"),
        (bool(bundle), "the AWS bundle: bin/fetch-jars … with-all"),
    )
    endpoint = _s3(processes, folder)
    store = {"s3.endpoint": endpoint, "s3.path-style-access": "true", "client.region": "us-east-1"}
    backend = {
        "uri": f"jdbc:sqlite:{folder / 'rest.db'}",
        "warehouse": "s3://lake/warehouse",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.access-key-id": "the-id",
        "s3.secret-access-key": SECRET,
        "include-credentials": "true",
    }
    behind = services.start_rest(processes, free_port(), rest_jars(), {**store, **backend}, tuple(bundle))
    with door(behind, f"{ID}:{SECRET}") as before:
        yield Site(
            "rest-s3",
            {"type": "rest", "uri": before.address, "properties": store},
            {"CLEANTAIL_CATALOG_CREDENTIAL": f"{ID}:{SECRET}"},
            before,
        )


STORE_LOGIN = {"CLEANTAIL_S3_ACCESS_KEY_ID": "the-id", "CLEANTAIL_S3_SECRET_ACCESS_KEY": SECRET}


@contextmanager
def s3_gateway(folder: Path):
    """Yields the address of an S3 gateway, whose bucket `lake` is `folder/s3/lake`; it lets in who has STORE_LOGIN. One
    that would have to be built first is required by `make test-services` alone."""
    if not os.environ.get(REQUIRED):
        lacks((built_versitygw() is not None, "versitygw, which make test-services builds"))
    (folder / "logs").mkdir()
    with Processes(folder / "logs") as processes:
        yield _s3(processes, folder)


def bucket_client(endpoint: str) -> Any:
    """An S3 client that is not one of ours."""
    lacks(_package("boto3"))
    import boto3

    login = {
        "aws_access_key_id": STORE_LOGIN["CLEANTAIL_S3_ACCESS_KEY_ID"],
        "aws_secret_access_key": STORE_LOGIN["CLEANTAIL_S3_SECRET_ACCESS_KEY"],
    }
    return boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **login)


def _s3(processes: Processes, folder: Path) -> str:
    port = free_port()
    (folder / "s3" / "lake").mkdir(parents=True)  # versitygw's bucket is a folder
    start_s3(processes, folder / "s3", port, STORE_LOGIN)
    return f"http://{LOOPBACK}:{port}"


def _postgres(processes: Processes, folder: Path):
    port = free_port()
    keys = {"POSTGRES_PASSWORD": "x", "AIRFLOW_DB_PASSWORD": "y", "CLEANTAIL_CATALOG_PASSWORD": SECRET}
    (folder / "postgres").mkdir()
    start_postgres(processes, folder / "postgres", port, keys)
    catalog = {
        "type": "postgres",
        "uri": f"postgresql://{LOOPBACK}:{port}/iceberg",
        "warehouse": f"file:{folder / 'warehouse'}",
    }
    yield Site("postgres", catalog, {"CLEANTAIL_CATALOG_USER": "cleantail", "CLEANTAIL_CATALOG_PASSWORD": SECRET})


def _mysql(processes: Processes, folder: Path):
    lacks((bool(jars("mysql-connector")), "MySQL's driver: bin/fetch-jars … with-all"), _package("pymysql"))
    (folder / "mysql").mkdir()
    uri = services.start_mysql(processes, folder / "mysql", free_port(), SECRET)
    catalog = {"type": "mysql", "uri": uri, "warehouse": f"file:{folder / 'warehouse'}"}
    yield Site("mysql", catalog, {"CLEANTAIL_CATALOG_USER": "cleantail", "CLEANTAIL_CATALOG_PASSWORD": SECRET})


def _glue(processes: Processes, folder: Path):
    """Glue has AWS's own chain for its login; here that is the environment, also that of the JVM, which is running."""
    lacks(
        (bool(jars("iceberg-aws-bundle")), "the AWS bundle: bin/fetch-jars … with-all"),
        _package("boto3"),
        _package("moto"),
    )
    endpoint = services.start_aws(processes, free_port(), os.environ.get(PACKAGES, ""))
    properties = {
        "glue.endpoint": endpoint,
        "s3.endpoint": _s3(processes, folder),  # moto's does not understand how pyarrow uploads
        "s3.path-style-access": "true",
        "client.region": "us-east-1",
    }
    env = {"AWS_ACCESS_KEY_ID": "the-id", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true"}
    catalog = {"type": "glue", "warehouse": "s3://lake/warehouse", "properties": properties}
    yield Site("glue", catalog, env | STORE_LOGIN, has_views=False)

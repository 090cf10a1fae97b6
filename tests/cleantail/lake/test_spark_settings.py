"""One catalog, two clients, and secrets in neither command line nor message."""

from pathlib import Path

import pytest

from cleantail.config.platform import Catalog, Platform, Spark
from cleantail.config.platform_configs import CleanerConfigs
from cleantail.lake import jar_list
from cleantail.lake import spark_settings as spark_settings
from cleantail.lake.client_properties import pyiceberg_properties
from cleantail.lake.jar_list import kinds_of, listed, spark_version
from cleantail.lake.spark_settings import SMALL_RECORDS, jars, spark_conf, spark_secrets

SECRETS = {
    "CLEANTAIL_CATALOG_USER": "me",
    "CLEANTAIL_CATALOG_PASSWORD": "p@ss/w:rd",
    "CLEANTAIL_S3_ACCESS_KEY_ID": "key-id",
    "CLEANTAIL_S3_SECRET_ACCESS_KEY": "key-secret",
}
POSTGRES = {"type": "postgres", "uri": "postgresql://db:5432/iceberg"}


@pytest.fixture
def platform(tmp_path):
    def build(spark=None, **catalog):
        return Platform(catalog=Catalog(**catalog), spark=Spark(**spark or {}), home=tmp_path, config_dir=tmp_path)

    return build


def fetched_jars(directory):
    """Files of the names and sizes of Spark's jars; returns the names in order."""
    directory.mkdir()
    found = [jar for jar in listed() if jar.kind in kinds_of(spark_version())]
    for jar in found:
        with (directory / jar.name).open("wb") as file:
            file.truncate(jar.bytes)
    return sorted(jar.name for jar in found)


def catalog_part(platform, env=None):
    prefix = f"spark.sql.catalog.{platform.catalog.name}."
    return {
        k.removeprefix(prefix): v for k, v in spark_conf(platform.with_env(env or {})).items() if k.startswith(prefix)
    }


# ---- Spark


def test_sqlite_is_a_jdbc_catalog_that_waits_for_its_lock(platform, tmp_path):
    assert catalog_part(platform()) == {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{tmp_path}/catalog.db?busy_timeout=30000",
        "jdbc.schema-version": "V1",
        "warehouse": f"file:{tmp_path}/warehouse",
        "cache-enabled": "false",
    }


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg2"])
def test_postgres_is_a_jdbc_catalog_whatever_the_driver(platform, scheme):
    found = catalog_part(platform(type="postgres", uri=f"{scheme}://db:5432/iceberg", warehouse="s3://w"))
    assert (found["type"], found["uri"], found["warehouse"]) == ("jdbc", "jdbc:postgresql://db:5432/iceberg", "s3://w")


def test_rest_is_a_rest_catalog(platform):
    found = catalog_part(platform(type="rest", uri="http://c:8181"))
    assert (found["type"], found["uri"]) == ("rest", "http://c:8181")
    assert "jdbc.schema-version" not in found


def test_properties_of_the_catalog_win(platform):
    found = catalog_part(platform(properties={"cache-enabled": "true", "s3.endpoint": "http://s3"}))
    assert (found["cache-enabled"], found["s3.endpoint"]) == ("true", "http://s3")


def test_the_catalog_has_the_name_of_the_configuration(platform):
    assert spark_conf(platform(name="lake"))["spark.sql.catalog.lake"] == "org.apache.iceberg.spark.SparkCatalog"


def test_the_platforms_own_spark_settings_win(platform):
    conf = spark_conf(platform(spark={"master": "local[2]", "conf": {"spark.driver.memory": "9g", "spark.x": "1"}}))
    assert (conf["spark.master"], conf["spark.driver.memory"], conf["spark.x"]) == ("local[2]", "9g", "1")


@pytest.mark.parametrize(
    ("master", "bind", "host"),
    [("local[*]", "127.0.0.1", "127.0.0.1"), ("spark://m:7077", "0.0.0.0", None)],
)
def test_a_local_driver_is_not_reachable_from_outside(platform, master, bind, host):
    conf = spark_conf(platform(spark={"master": master, "insecure": True}))
    assert (conf["spark.driver.bindAddress"], conf.get("spark.driver.host")) == (bind, host)


@pytest.mark.parametrize(
    ("spark", "told"),
    [
        pytest.param(
            {"master": "spark://c:7077", "insecure": True, "conf": {"spark.executor.cores": "4"}}, "8704m", id="cluster"
        ),
        pytest.param({"master": "local[4]"}, None, id="local"),
    ],
)
def test_executors_of_a_cluster_get_the_memory_of_their_tasks_beside_the_jvm(platform, spark, told):
    """Without it YARN and Kubernetes kill an executor whose tasks take what platform.cleaner allows them."""
    two_gib = CleanerConfigs(cleantail_task_memory_bytes=2 << 30)
    conf = spark_conf(platform(spark=spark).model_copy(update={"cleaner": two_gib}))
    assert conf.get("spark.executor.memoryOverhead") == told


def test_no_sql_reads_a_file_by_its_path_whatever_the_platform_says(platform):
    setting = "spark.sql.runSQLOnFiles"
    assert spark_conf(platform())[setting] == "false"
    assert spark_conf(platform(spark={"conf": {setting: "true"}}))[setting] == "false"


def test_times_are_utc(platform):
    assert spark_conf(platform())["spark.sql.session.timeZone"] == "UTC"


def test_the_jars_are_those_of_the_home(platform, tmp_path):
    names = fetched_jars(tmp_path / "jars")
    (tmp_path / "jars" / "another.jar").touch()
    assert [j.name for j in jars(platform())] == names
    path = spark_conf(platform())["spark.driver.extraClassPath"]
    assert path == ":".join(f"{tmp_path}/jars/{name}" for name in names)


@pytest.mark.parametrize(("master", "fetched"), [("local[2]", False), ("spark://m:7077", True)])
def test_only_executors_of_a_cluster_fetch_the_jars(platform, tmp_path, master, fetched):
    assert ("spark.jars" in spark_conf(platform(spark={"master": master, "insecure": True}))) is fetched


# ---- the JVM


def default_options(platform, env):
    return spark_conf(platform().with_env(env))["spark.driver.defaultJavaOptions"]


def test_the_jars_are_those_of_the_home_or_of_the_checkout_or_of_the_cache(platform, tmp_path, monkeypatch):
    fetched, env = tmp_path / "checkout", {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    monkeypatch.setattr(jar_list, "CHECKOUT_JARS", fetched)
    cache = tmp_path / "cache" / "cleantail" / "jars" / f"spark-{spark_version()}"
    assert spark_settings.jars_directory(platform().with_env(env)) == cache
    fetched.mkdir()
    assert spark_settings.jars_directory(platform().with_env(env)) == fetched
    (tmp_path / "jars").mkdir()
    assert spark_settings.jars_directory(platform().with_env(env)) == tmp_path / "jars"
    assert spark_settings.jars_directory(platform().with_env(env | {"CLEANTAIL_JARS": "/x"})) == Path("/x")


@pytest.mark.parametrize(
    "spark",
    [
        pytest.param({"jars": "cluster"}, id="an image has them"),
        pytest.param(
            {"conf": {"spark.jars.packages": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"}}, id="packages"
        ),
    ],
)
def test_jars_that_the_cluster_has_are_named_on_no_class_path(platform, tmp_path, spark):
    fetched_jars(tmp_path / "jars")
    conf = spark_conf(platform(spark=spark))
    assert {"spark.driver.extraClassPath", "spark.jars"}.isdisjoint(conf)
    assert "spark.driver.extraClassPath" in spark_conf(platform())


def test_the_class_archive_is_used_where_there_is_one(platform, tmp_path, monkeypatch):
    monkeypatch.setattr(jar_list, "CHECKOUT_JARS", tmp_path / "none")
    assert "SharedArchiveFile" not in default_options(platform, {})
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "classes.jsa").touch()
    options = default_options(platform, {})
    assert f'-XX:SharedArchiveFile="{tmp_path}/jars/classes.jsa"' in options
    assert options.index("UnlockDiagnosticVMOptions") < options.index("ArchiveRelocationMode=0")


def test_a_user_defined_spark_conf_dir_keeps_its_own_logging(platform):
    assert default_options(platform, {}).startswith("-Dlog4j2.configurationFile=")
    assert default_options(platform, {"SPARK_CONF_DIR": "/etc/spark"}) == ""


@pytest.mark.parametrize(
    ("records", "small"), [(None, False), (SMALL_RECORDS, True), (SMALL_RECORDS + 1, False)], ids=str
)
def test_a_small_run_compiles_little(platform, records, small):
    conf = spark_conf(platform(), records)
    assert ("spark.sql.codegen.wholeStage" in conf) is small
    assert ("TieredStopAtLevel" in conf["spark.driver.extraJavaOptions"]) is small


def test_the_platforms_own_settings_win_over_those_of_a_small_run(platform):
    mine = {"spark.sql.shuffle.partitions": "5"}
    assert spark_conf(platform(spark={"conf": mine}), 1)["spark.sql.shuffle.partitions"] == "5"


def test_the_environment_may_name_another_place_of_the_jars(platform, tmp_path):
    names = fetched_jars(tmp_path / "elsewhere")
    assert [j.name for j in jars(platform().with_env({"CLEANTAIL_JARS": str(tmp_path / "elsewhere")}))] == names


# ---- secrets


@pytest.mark.parametrize(
    "catalog", [{}, POSTGRES, {"type": "rest", "uri": "http://c"}], ids=["sqlite", "postgres", "rest"]
)
def test_what_travels_on_a_command_line_holds_no_secret(platform, catalog):
    text = str(spark_conf(platform(**catalog).with_env(SECRETS)))
    assert not [secret for secret in SECRETS.values() if len(secret) > 2 and secret in text]
    assert "jdbc.user" not in text


def test_secrets_are_added_inside_the_driver(platform):
    assert spark_secrets(platform(**POSTGRES).with_env(SECRETS)) == {
        "spark.sql.catalog.cleantail.s3.access-key-id": "key-id",
        "spark.sql.catalog.cleantail.s3.secret-access-key": "key-secret",
        "spark.sql.catalog.cleantail.jdbc.user": "me",
        "spark.sql.catalog.cleantail.jdbc.password": "p@ss/w:rd",
    }


def test_only_postgres_gets_the_login_of_the_catalog(platform):
    assert set(spark_secrets(platform().with_env(SECRETS))) == {
        "spark.sql.catalog.cleantail.s3.access-key-id",
        "spark.sql.catalog.cleantail.s3.secret-access-key",
    }


def test_what_the_environment_does_not_have_is_not_set(platform):
    assert spark_secrets(platform(**POSTGRES).with_env({"CLEANTAIL_CATALOG_USER": ""})) == {}


# ---- PyIceberg


def test_pyiceberg_opens_the_same_sqlite_file(platform, tmp_path):
    assert pyiceberg_properties(platform()) == {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db?timeout=30",
        "warehouse": f"file:{tmp_path}/warehouse",
    }


@pytest.mark.parametrize(
    ("env", "uri"),
    [
        pytest.param({}, "postgresql+psycopg2://db:5432/iceberg?connect_timeout=60", id="no login"),
        pytest.param(
            SECRETS, "postgresql+psycopg2://me:p%40ss%2Fw%3Ard@db:5432/iceberg?connect_timeout=60", id="quoted"
        ),
        pytest.param(
            {"CLEANTAIL_CATALOG_USER": "me"},
            "postgresql+psycopg2://me:@db:5432/iceberg?connect_timeout=60",
            id="no password",
        ),
        pytest.param(
            {"CLEANTAIL_CATALOG_PASSWORD": "x"},
            "postgresql+psycopg2://db:5432/iceberg?connect_timeout=60",
            id="no user",
        ),
    ],
)
def test_pyiceberg_logs_in_to_postgres(platform, env, uri):
    found = pyiceberg_properties(platform(**POSTGRES).with_env(env))
    assert (found["type"], found["uri"]) == ("sql", uri)


def test_pyiceberg_opens_the_same_rest_catalog(platform):
    found = pyiceberg_properties(platform(type="rest", uri="http://c:8181").with_env(SECRETS))
    assert (found["type"], found["uri"]) == ("rest", "http://c:8181")
    assert (found["s3.access-key-id"], found["s3.secret-access-key"]) == ("key-id", "key-secret")


def test_properties_are_passed_on_in_pyicebergs_words(platform):
    properties = {"client.region": "eu-1", "io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "s3.endpoint": "http://s3"}
    found = pyiceberg_properties(platform(properties=properties))
    assert (found["s3.region"], found["s3.endpoint"]) == ("eu-1", "http://s3")
    assert "io-impl" not in found

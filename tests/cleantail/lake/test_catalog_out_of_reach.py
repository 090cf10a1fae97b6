"""A catalog out of reach is exit code 4, with its cause, against real sockets; and a login is shown where there is one."""

import os
import shutil
import socket
import subprocess
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cleantail.config.loading import load_platform
from cleantail.lake import catalogs, foreign_errors
from cleantail.lake.catalogs import file_io_properties
from cleantail.lake.spark_settings import spark_conf, spark_secrets
from cleantail_cli import main
from tests.cleantail.rest_catalog import rest_catalog

SECRET = "hunter2"


@pytest.fixture
def run(project, capsys, monkeypatch):
    """`status` of a catalog of this kind at this address, with these variables: (exit code, stderr)."""

    def status(kind, uri, **env):
        catalog = f"{{type: {kind}, uri: '{uri}', warehouse: 's3://w'}}"
        (project / "config" / "defaults.yaml").write_text(f"platform:\n  catalog: {catalog}\n")
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        code = main(["status", "orders", "--config", str(project / "config")])
        out, err = capsys.readouterr()
        assert SECRET not in out + err
        assert "Traceback" not in err
        return code, err

    return status


@pytest.fixture(scope="module")
def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("kind", ["postgres", "rest"])
def test_a_closed_port_is_told_as_refused(run, kind, closed_port):
    scheme = {"postgres": "postgresql", "rest": "http"}[kind]
    code, err = run(kind, f"{scheme}://127.0.0.1:{closed_port}/db", CLEANTAIL_CATALOG_PASSWORD=SECRET)
    assert code == 4
    assert f"cannot be reached: {foreign_errors.REFUSED}\n" in err


@pytest.mark.parametrize("uri", ["postgresql://nohost.invalid/db", "http://nohost.invalid"])
def test_a_name_that_no_server_knows_is_told_as_unknown_host(run, uri):
    code, err = run("rest" if uri.startswith("http") else "postgres", uri)
    assert (code, f"cannot be reached: {foreign_errors.UNKNOWN_HOST}\n" in err) == (4, True), err


@pytest.fixture(scope="module")
def some_web_server():
    """Answers whatever it is asked with a page; its host and port."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(("scheme", "why"), [("http", foreign_errors.NO_CATALOG), ("https", foreign_errors.NO_TLS)])
def test_a_server_of_another_kind_is_told_from_a_certificate_and_a_refusal(run, some_web_server, scheme, why):
    code, err = run("rest", f"{scheme}://{some_web_server}")
    assert (code, f"cannot be reached: {why}\n" in err) == (4, True), err


def binaries():
    places = [*sorted(Path("/usr/lib/postgresql").glob("*/bin")), Path(shutil.which("initdb") or "/none").parent]
    return next((place for place in places if (place / "initdb").exists()), None)


@pytest.fixture(scope="module")
def postgres(closed_port):
    """A real server on loopback with the user `me` and no database but its own; its port."""
    place = binaries()
    if place is None:
        pytest.skip("no Postgres is installed")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "password").write_text(SECRET)
        own = {"cwd": folder, "check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        if os.geteuid() == 0:  # initdb refuses root
            shutil.chown(folder, "postgres")
            shutil.chown(folder / "password", "postgres")
            own |= {"user": "postgres", "group": "postgres", "extra_groups": []}
        data = folder / "data"
        subprocess.run(
            [place / "initdb", "-D", data, "-U", "me", "-A", "scram-sha-256", f"--pwfile={folder}/password"], **own
        )
        options = f"-c listen_addresses=127.0.0.1 -c port={closed_port} -c unix_socket_directories={folder}"
        server = [place / "pg_ctl", "-D", data, "-w", "-l", folder / "log"]
        subprocess.run([*server, "-o", options, "start"], **own)
        yield closed_port
        subprocess.run([*server, "-m", "immediate", "stop"], **own)


@pytest.mark.parametrize(
    ("user", "password", "database", "why"),
    [
        pytest.param("me", "wrong", "postgres", foreign_errors.LOGIN, id="wrong password"),
        pytest.param("nobody", SECRET, "postgres", foreign_errors.LOGIN, id="unknown user"),
        pytest.param("me", SECRET, "absent", foreign_errors.NOT_THERE, id="no such database"),
    ],
)
def test_a_real_postgres_tells_a_wrong_login_from_a_missing_database(run, postgres, user, password, database, why):
    login = {"CLEANTAIL_CATALOG_USER": user, "CLEANTAIL_CATALOG_PASSWORD": password}
    code, err = run("postgres", f"postgresql://127.0.0.1:{postgres}/{database}", **login)
    assert (code, f"cannot be reached: {why}\n" in err) == (4, True), err


def test_a_real_postgres_with_the_right_login_is_a_catalog(run, postgres):
    login = {"CLEANTAIL_CATALOG_USER": "me", "CLEANTAIL_CATALOG_PASSWORD": SECRET}
    assert run("postgres", f"postgresql://127.0.0.1:{postgres}/postgres", **login) == (0, "")


# ---- REST: a login from the environment


def test_a_rest_catalog_gets_the_token_of_the_environment(run):
    with rest_catalog(SECRET) as (uri, shown):
        assert run("rest", uri, CLEANTAIL_CATALOG_TOKEN=SECRET) == (0, "")
    assert set(shown) == {f"Bearer {SECRET}"}


def test_a_rest_catalog_gives_a_token_for_the_credential_of_the_environment(run):
    with rest_catalog("t0ken", f"me:{SECRET}") as (uri, shown):
        assert run("rest", uri, CLEANTAIL_CATALOG_CREDENTIAL=f"me:{SECRET}")[0] == 0
    assert set(shown) == {"Bearer t0ken"}


@pytest.mark.parametrize(
    "login", [{}, {"CLEANTAIL_CATALOG_TOKEN": "wrong"}, {"CLEANTAIL_CATALOG_CREDENTIAL": "me:wrong"}]
)
def test_a_rest_catalog_without_the_right_login_says_so(run, login):
    with rest_catalog(SECRET, f"me:{SECRET}") as (uri, _):
        code, err = run("rest", uri, **login)
    assert (code, f"cannot be reached: {foreign_errors.LOGIN}\n" in err) == (4, True), err


def test_a_rest_catalog_that_is_elsewhere_is_told_as_not_there(run):
    with rest_catalog(SECRET, config_status=404) as (uri, _):
        code, err = run("rest", uri, CLEANTAIL_CATALOG_TOKEN=SECRET)
    assert (code, f"cannot be reached: {foreign_errors.NOT_THERE}\n" in err) == (4, True), err


def test_spark_gets_the_login_as_a_secret_and_only_of_a_rest_catalog(project):
    env = {"CLEANTAIL_CATALOG_TOKEN": SECRET, "CLEANTAIL_CATALOG_CREDENTIAL": f"me:{SECRET}"}
    defaults = project / "config" / "defaults.yaml"
    of_rest = {"token": SECRET, "credential": f"me:{SECRET}"}
    for kind, scheme, expected in (("rest", "http", of_rest), ("postgres", "postgresql", {})):
        defaults.write_text(f"platform: {{catalog: {{type: {kind}, uri: '{scheme}://127.0.0.1:1', warehouse: w}}}}")
        platform = load_platform(project / "config", env)
        assert spark_secrets(platform) == {f"spark.sql.catalog.cleantail.{k}": v for k, v in expected.items()}
        assert SECRET not in str(spark_conf(platform))


def test_tasks_get_no_login_of_the_catalog(orders_table):
    """What opens files goes to tasks, and the catalog's own keys do not."""
    orders_table.append((0, 1, 1, b"k", b"v"))
    platform = orders_table.platform
    properties = {"token": SECRET, "credential": SECRET, "s3.endpoint": "x"}
    catalog = platform.catalog.model_copy(update={"properties": properties})
    found = file_io_properties(orders_table.topic.on(platform.model_copy(update={"catalog": catalog})))
    assert found == {"s3.endpoint": "x"} | {k: v for k, v in found.items() if SECRET not in v}


@pytest.mark.parametrize(("kind", "loads"), [("sqlite", 2), ("rest", 5)])
def test_how_files_are_opened_is_remembered_for_a_while_where_no_table_has_secrets_of_its_own(
    orders_table, monkeypatch, kind, loads
):
    orders_table.append((0, 1, 1, b"k", b"v"))
    platform, topic, loaded, load = orders_table.platform, orders_table.topic, [], catalogs.load_table
    catalog = catalogs.kept_catalog(platform)

    def counted(*arguments):
        loaded.append(arguments)
        return load(*arguments)

    monkeypatch.setattr(catalogs, "load_table", counted)
    monkeypatch.setattr(catalogs, "kept_catalog", lambda *_: catalog)
    asked = platform.model_copy(update={"catalog": platform.catalog.model_copy(update={"type": kind})})
    first = file_io_properties(topic.on(asked))
    first["s3.endpoint"] = "changed by who asked"
    for _ in range(3):
        assert "s3.endpoint" not in file_io_properties(topic.on(asked))
    monkeypatch.setattr(catalogs, "STORES_LIVE_S", 0.0)
    file_io_properties(topic.on(asked))
    assert len(loaded) == loads


def test_a_catalog_file_that_is_no_database_is_a_wrong_input(project, capsys):
    (project / "home").mkdir()
    (project / "home" / "catalog.db").write_bytes(b"no database " * 100)
    assert main(["status", "orders", "--config", str(project / "config")]) == 2
    assert f"cannot be opened: {foreign_errors.NOT_A_DATABASE}\n" in capsys.readouterr().err


def test_what_no_rule_knows_is_named_by_its_class_and_says_nothing_else():
    assert foreign_errors.cause(RuntimeError(f"password={SECRET}")) == "RuntimeError"
    assert foreign_errors.cause(ConnectionRefusedError()) == foreign_errors.REFUSED

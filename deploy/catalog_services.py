"""Catalogs as processes on loopback: Iceberg's own REST catalog, MySQL (MariaDB's server), and moto's Glue.

    with Processes(logs) as processes:
        uri = start_rest(processes, free_port(), jars, {"uri": "jdbc:sqlite:/…", "warehouse": "file:///…"})

They are for tests, and require no login.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark
from service_processes import LOOPBACK, NotStarted, Processes, Ready, listens

SPARKS_JARS = ("hadoop-client-api", "hadoop-client-runtime", "log4j-", "slf4j-api", "jcl-over-slf4j")
"""The jars of Spark that the REST catalog uses."""
SERVER = "org.apache.iceberg.rest.RESTCatalogServer"
MYSQL_USER, MYSQL_DATABASE = "cleantail", "iceberg"


def start_rest(
    processes: Processes, port: int, jars: Path, properties: Mapping[str, str], more: tuple[Path, ...] = ()
) -> str:
    """Start a REST catalog over a JDBC catalog with these properties, and return its address. `jars` has the jars of
    `bin/fetch-jars DIRECTORY rest`. `more` are further jars, such as the AWS bundle for a warehouse on S3."""
    own = sorted(jars.glob("*.jar"))
    if not own:
        raise NotStarted(f"there are no jars of a REST catalog in {jars}: bin/fetch-jars {jars} rest")
    spark = (
        file for file in (Path(pyspark.__file__).parent / "jars").glob("*.jar") if file.name.startswith(SPARKS_JARS)
    )
    path = os.pathsep.join(str(file) for file in (*own, *more, *sorted(spark)))
    settings = {"rest.port": str(port), **properties}
    # the server reads CATALOG_IO__IMPL as io-impl
    env = {f"CATALOG_{k.replace('-', '__').replace('.', '_').upper()}": v for k, v in settings.items()}
    kept = {k: os.environ[k] for k in ("PATH", "JAVA_HOME") if k in os.environ}
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", path, SERVER]
    address = f"http://{LOOPBACK}:{port}"
    processes.start("rest-catalog", command, answers(f"{address}/v1/config"), {**kept, **env})
    return address


def answers(url: str) -> Ready:
    """Return a function that checks whether a server answers at the address."""

    def ready() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    return ready


def start_mysql(processes: Processes, directory: Path, port: int, password: str) -> str:
    """Start MariaDB's server with one database and one user, and return the catalog's address."""
    server = shutil.which("mariadbd") or shutil.which("mysqld", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    install = shutil.which("mariadb-install-db") or shutil.which("mysql_install_db")
    if not server or not install:
        raise NotStarted("there is no MariaDB: apt-get install mariadb-server-core mariadb-client-core")
    user: dict[str, Any] = {}
    if os.geteuid() == 0:  # the server refuses to run as root
        user = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        shutil.chown(directory, "nobody", "nogroup")
    data, first = directory / "data", directory / "first.sql"
    subprocess.run(
        [install, "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal", "--skip-test-db"],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=directory, **user,
    )  # fmt: skip
    first.touch(mode=0o600)
    first.write_text(
        f"CREATE DATABASE {MYSQL_DATABASE};\nCREATE USER '{MYSQL_USER}'@'%' IDENTIFIED BY '{password}';\n"
        f"GRANT ALL ON {MYSQL_DATABASE}.* TO '{MYSQL_USER}'@'%';\n"
    )
    if user:
        shutil.chown(first, "nobody", "nogroup")
    command = [server, "--no-defaults", f"--datadir={data}", f"--port={port}", f"--bind-address={LOOPBACK}"]
    command += [f"--socket={directory / 'socket'}", f"--pid-file={directory / 'pid'}", f"--init-file={first}"]
    processes.start("mysql", command, lambda: listens(port), {"PATH": os.defpath}, cwd=directory, **user)
    return f"mysql://{LOOPBACK}:{port}/{MYSQL_DATABASE}"


def start_aws(processes: Processes, port: int, packages: str) -> str:
    """Start moto, with Glue and S3, and return its address. `packages` is the folder of its installation."""
    env = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": packages}
    command = [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(port)]
    processes.start("moto", command, lambda: listens(port), env)
    return f"http://{LOOPBACK}:{port}"

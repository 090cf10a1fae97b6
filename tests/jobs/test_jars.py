"""`cleantail jars`: which jars it asks for, and where."""

import hashlib
import os
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cleantail.lake import jar_list
from cleantail.lake.jar_list import Jar
from cleantail_cli import main

ROOT = Path(__file__).resolve().parents[2]
FETCHED = Path(os.environ.get("CLEANTAIL_JARS") or ROOT / ".cleantail" / "jars")
EMPTY_JAR = b"PK\5\6" + bytes(18)
POM = "<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId><artifactId>thing</artifactId>{}</project>"


@pytest.fixture
def jars(tmp_path, monkeypatch):
    monkeypatch.setenv("CLEANTAIL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CLEANTAIL_JARS", str(tmp_path / "jars"))
    (tmp_path / "config").mkdir()

    def run(*arguments):
        return main(["jars", *arguments, "--config", str(tmp_path / "config")])

    return run


def test_the_jar_of_object_stores_is_asked_for_where_a_person_says_so(jars, tmp_path, capfd):
    """The folder has what local tables need, and no more."""
    folder = tmp_path / "without-s3"
    folder.mkdir()
    for jar in FETCHED.glob("*.jar"):
        if "aws" not in jar.name:
            (folder / jar.name).symlink_to(jar)
    assert jars("--s3", "--from", str(folder)) == 2
    assert "iceberg-aws-bundle-1.11.0.jar is missing" in capfd.readouterr().err
    assert not (tmp_path / "jars").exists()
    assert jars("--from", str(folder)) == 0
    assert any("iceberg-spark-runtime" in jar.name for jar in (tmp_path / "jars").iterdir())


@pytest.mark.deep
def test_a_repository_that_is_named_is_asked(jars, tmp_path, monkeypatch):
    """By Spark's own resolver, for a package that no other repository has. `make test-versions` and `make test-first-day`
    fetch jars by it."""
    place = tmp_path / "maven" / "org" / "example" / "thing" / "1.0"
    place.mkdir(parents=True)
    (place / "thing-1.0.jar").write_bytes(EMPTY_JAR)
    (place / "thing-1.0.pom").write_text(POM.format("<version>1.0</version>"))
    thing = Jar("spark", hashlib.sha256(EMPTY_JAR).hexdigest(), len(EMPTY_JAR), "org.example_thing-1.0.jar")
    monkeypatch.setattr(jar_list, "listed", lambda: iter([thing]))
    monkeypatch.setattr(jar_list, "packages", lambda _: ["org.example:thing:1.0"])
    monkeypatch.setattr(jar_list, "TRIES", 1)
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=tmp_path / "maven")
    ) as maven:
        threading.Thread(target=maven.serve_forever, daemon=True).start()
        assert jars("--repository", f"http://127.0.0.1:{maven.server_port}") == 0
        maven.shutdown()
    assert [jar.name for jar in (tmp_path / "jars").iterdir()] == [thing.name]

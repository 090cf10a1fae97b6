"""A table with a file that is damaged or missing: it hides no other topic, and ends no command in a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlparse

import pytest

from tests.jobs.round.test_rounds import NOW, record

COMMANDS = [
    ("status",), ("plan",), ("read",), ("latest",), ("compact",), ("check",), ("reclaim",), ("release", 0),
    ("plan", "--set", "segment.ms=5"),
]  # fmt: skip


def missing(file):
    file.unlink()


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def garbage(file):
    file.write_bytes(b"Obj\x01" + b"\xff\xfe\x00garbage" * 40)


def empty(file):
    file.write_bytes(b"")


@pytest.fixture
def two(workshop, table_of):
    """A topic that is well, and one of which files are damaged; of all tests the same tables."""
    for topic in ("damage-well", "damage-hurt"):
        workshop.topic(topic)
        if not table_of(topic).exists():
            lines = [record(n, "k", None if n == 2 else "v") for n in range(3)]
            workshop.ok("ingest", topic, "--file", workshop.file(f"{topic}.jsonl", lines))
            if topic == "damage-hurt":
                workshop.ok("compact", topic, "--now", NOW)
    return workshop


def files_of(table_of):
    """Kind -> a file of the table that is of it."""
    table = table_of("damage-hurt").load()
    snapshot = table.currentSnapshot()
    manifests = {str(m.content()): str(m.path()) for m in snapshot.allManifests(table.io())}
    return {
        "metadata": table.operations().current().metadataFileLocation(),
        "list": snapshot.manifestListLocation(),
        "manifest": manifests["DATA"],
        "deletes": manifests["DELETES"],
        "vectors": str(next(iter(snapshot.addedDeleteFiles(table.io()))).location()),
    }


CASES = [
    pytest.param(kind, damage, id=f"{kind}-{damage.__name__}")
    for kind in ("metadata", "list", "manifest", "deletes")
    for damage in (missing, cut, garbage, empty)
] + [pytest.param("vectors", missing, id="vectors-missing")]


@pytest.mark.parametrize(("kind", "damage"), CASES)
def test_a_damaged_file_of_one_topic_hides_no_other_and_is_named_by_every_command(two, table_of, kind, damage):
    file = Path(urlparse(files_of(table_of)[kind]).path)
    whole = file.read_bytes()
    damage(file)
    try:
        code, out, err = two.run("status", "--json")
        assert "damage-well" in json.loads(out)["topics"]
        if kind != "vectors":  # metadata alone does not tell
            assert code == 2 and "damage-hurt" not in json.loads(out)["topics"]
            assert file.name in out + err and "is broken" in out + err
        for command, *options in COMMANDS:
            code, _, err = two.run(command, "damage-hurt", *options)
            assert "Traceback" not in err and "catalog cannot be reached" not in err, (command, err)
            assert kind == "vectors" or command == "release" or code == 2, (command, code, err)
    finally:
        file.write_bytes(whole)
    two.ok("status", "damage-hurt")

"""Rounds and ingestions of real Spark on a small file system that fills up."""

from __future__ import annotations

import base64
import os
import random
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlparse

import pytest

from tests.jobs.round.test_rounds import NOW, offsets, record

FULL = "No space left"


@pytest.fixture
def small_disk(workshop, table_of, tmp_path):
    """A topic of three records, whose data folder is a file system of 1 MiB: its name and the folder."""
    topic = workshop.topic("full-disk")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(n, "k", "v") for n in range(3)]))
    data = Path(urlparse(str(table_of(topic).load().location())).path) / "data"
    shutil.copytree(data, tmp_path / "before")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", data], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    try:
        shutil.copytree(tmp_path / "before", data, dirs_exist_ok=True)
        yield topic, data
        shutil.copytree(data, tmp_path / "after")
    finally:
        subprocess.run(["umount", "-l", data], check=True)
    shutil.copytree(tmp_path / "after", data, dirs_exist_ok=True)


@pytest.mark.skipif(not shutil.which("mount"), reason="there is no mount")
def test_a_full_disk_is_reported_as_one_changes_nothing_and_the_next_run_goes_on(small_disk, workshop):
    topic, data = small_disk
    draw = random.Random(1)
    large = [record(n, f"k{n}", base64.b64encode(draw.randbytes(30_000)).decode()) for n in range(3, 80)]
    file = workshop.file("large.jsonl", large)
    code, out, err = workshop.run("ingest", topic, "--file", file)
    assert (code, FULL in err, "Traceback" in err) == (4, True, False), (out, err)
    assert offsets(workshop.read(topic)) == [0, 1, 2]
    room = data / "filler"
    with room.open("wb", buffering=0) as filler, pytest.raises(OSError, match=FULL):
        while True:
            filler.write(os.urandom(4096))
    code, out, err = workshop.run("compact", topic, "--now", NOW)
    assert (code, FULL in err, "Traceback" in err) == (4, True, False), (out, err)
    assert offsets(workshop.read(topic)) == [0, 1, 2]
    room.unlink()
    workshop.ok("compact", topic, "--now", NOW)
    assert offsets(workshop.read(topic)) == [2]
    workshop.ok("ingest", topic, "--file", workshop.file("b.jsonl", [record(3, "k", "v")]))
    assert offsets(workshop.read(topic)) == [2, 3]

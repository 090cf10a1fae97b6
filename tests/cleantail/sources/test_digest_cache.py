"""What was digested is not read again, and no change of a file goes unseen for it."""

import logging
import os
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cleantail.errors import BadLineError
from cleantail.sources import digest_cache
from cleantail.sources.digest_cache import FILE_NAME, SETTLED_MS, DigestCache
from cleantail.sources.source_files import content_digest


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "landing" / "a.jsonl"
    file.parent.mkdir()
    file.write_text("one\n")
    return file


def later():
    return int(time.time() * 1000) + SETTLED_MS + 1000


def looked_up(home, file, clock_ms):
    with DigestCache(home) as cache:
        return cache.digest(file, clock_ms)


def rows(home):
    with sqlite3.connect(home / FILE_NAME) as database:
        return database.execute("SELECT path, sha256 FROM digests ORDER BY path").fetchall()


def mark(home):
    """Puts another digest into every row, so that a look-up shows whether it read the file."""
    with sqlite3.connect(home / FILE_NAME) as database:
        database.execute("UPDATE digests SET sha256 = 'remembered'")


def test_a_file_that_has_settled_is_read_once(tmp_path, source):
    assert looked_up(tmp_path, source, later()) == content_digest(source)
    assert rows(tmp_path) == [(os.fsencode(source), content_digest(source))]
    mark(tmp_path)
    assert looked_up(tmp_path, source, later()) == "remembered"


def test_a_file_is_the_same_by_every_way_to_it(tmp_path, source):
    looked_up(tmp_path, source, later())
    mark(tmp_path)
    (tmp_path / "link").symlink_to(source.parent)
    assert looked_up(tmp_path, tmp_path / "link" / "a.jsonl", later()) == "remembered"
    assert looked_up(tmp_path, source.parent / ".." / "landing" / "a.jsonl", later()) == "remembered"


def test_a_file_that_has_just_changed_is_not_remembered(tmp_path, source):
    changed_ms = source.stat().st_ctime_ns // 1_000_000
    looked_up(tmp_path, source, changed_ms + SETTLED_MS - 1)
    assert rows(tmp_path) == []
    looked_up(tmp_path, source, changed_ms + SETTLED_MS)
    assert len(rows(tmp_path)) == 1


def test_another_content_of_the_same_size_and_time_is_another_file(tmp_path, source):
    looked_up(tmp_path, source, later())
    before = source.stat()
    time.sleep(0.05)  # the ticks of a file system's clock
    source.write_text("two\n")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert looked_up(tmp_path, source, later()) == content_digest(source)


def test_a_file_that_replaced_another_gets_its_own_digest(tmp_path, source):
    looked_up(tmp_path, source, later())
    mark(tmp_path)
    (source.parent / "b").write_text("two\n")
    os.replace(source.parent / "b", source)
    assert looked_up(tmp_path, source, later()) == content_digest(source)


def test_the_cache_is_for_its_owner_only(tmp_path, source):
    before = os.umask(0)
    try:
        looked_up(tmp_path, source, later())
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600


def test_what_is_wrong_with_a_file_is_said_every_time(tmp_path, source):
    bad = source.with_name("bad.jsonl.gz")
    bad.write_bytes(b"not gzip")
    for _ in range(2):
        with pytest.raises(BadLineError, match="ends early or cannot be read"):
            looked_up(tmp_path, bad, later())
    assert rows(tmp_path) == []


def test_when_the_cache_is_full_files_that_are_gone_make_room(tmp_path, source, monkeypatch):
    monkeypatch.setattr(digest_cache, "MOST_FILES", 2)
    files = [source.with_name(f"{n}.jsonl") for n in range(3)]
    for file in files:
        file.write_text(file.name)
        looked_up(tmp_path, file, later())
    assert [Path(os.fsdecode(path)) for path, _ in rows(tmp_path)] == files[:2]
    files[0].unlink()
    looked_up(tmp_path, files[2], later())
    assert [Path(os.fsdecode(path)) for path, _ in rows(tmp_path)] == files[1:]


@pytest.mark.parametrize("kind", ["damaged", "a link", "a folder", "no home"])
def test_without_a_cache_everything_works(tmp_path, source, kind, caplog):
    home, place = tmp_path, tmp_path / FILE_NAME
    if kind == "damaged":
        place.write_bytes(b"no database, " * 1000)
    elif kind == "a link":
        (tmp_path / "foreign").write_bytes(b"")
        place.symlink_to(tmp_path / "foreign")
    elif kind == "a folder":
        place.mkdir()
    else:
        home = tmp_path / "none"
    with caplog.at_level(logging.WARNING):
        assert [looked_up(home, source, later()) for _ in range(2)] == [content_digest(source)] * 2
    if kind == "damaged":
        assert "is damaged and was deleted" in caplog.text and len(rows(home)) == 1
    if kind == "a link":
        assert (tmp_path / "foreign").read_bytes() == b""
    assert home.exists() == (kind != "no home")


def test_processes_share_the_cache(tmp_path, source):
    for n in range(40):
        source.with_name(f"{n}.jsonl").write_text(str(n))
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom cleantail.sources.digest_cache import DigestCache\n"
        f"for file in sorted(Path({str(source.parent)!r}).iterdir()):\n"
        f"    with DigestCache(Path({str(tmp_path)!r})) as cache:\n"
        f"        cache.digest(file, {later()})\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [(w.communicate()[1], w.returncode) for w in writers] == [("", 0)] * 3
    assert {digest for _, digest in rows(tmp_path)} == {content_digest(f) for f in source.parent.iterdir()}


def test_who_opens_the_cache_takes_no_lock_from_another_thread(tmp_path):
    """A process loses its locks of a file when it closes any descriptor of it. Of two writers that believe to be alone
    one damages what the other writes; topics of a pack are ingested side by side."""
    with DigestCache(tmp_path) as first:
        first._execute("BEGIN IMMEDIATE")
        DigestCache(tmp_path).__exit__(None, None, None)
        other = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
        done = subprocess.run([sys.executable, "-c", other, tmp_path / FILE_NAME], capture_output=True, text=True)
    assert "database is locked" in done.stderr

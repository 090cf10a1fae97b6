"""The demonstration's inputs: the changelog of a real git repository, and the generated streams."""

from __future__ import annotations

import gzip
import os
import subprocess
from pathlib import Path

import pytest

from cleantail.sources.kcat import read_records
from demo.generated_streams import customer_changes, file_changes, sensor_readings
from demo.git_history import NoHistoryError, changelog, head_of, tree
from demo.inputs import Expected, make_inputs
from demo.proof import latest_values
from demo.records import Change, in_logs, kcat_line, land, topic_input

NOW_MS = 1_800_000_000_000
COMMIT_S = 1_700_000_000


class Repository:
    """A temporary git repository whose clock is set."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str, at_s: int = COMMIT_S) -> str:
        who = {
            f"GIT_{role}_{what}": "demo@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
        }
        when = {"GIT_AUTHOR_DATE": f"{at_s - 60} +0000", "GIT_COMMITTER_DATE": f"{at_s} +0000"}
        own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        command = ["git", "-C", str(self.path), "-c", "protocol.file.allow=always", *arguments]
        done = subprocess.run(
            command, env={**os.environ, **who, **when, **own}, check=True, capture_output=True, text=True
        )
        return done.stdout

    def write(self, name: str, text: str) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def commit(self, at_s: int = COMMIT_S) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "one more", at_s=at_s)

    def changelog(self) -> list[Change]:
        return changelog(self.path, head_of(self.path), NOW_MS)

    def tree(self) -> dict[bytes, bytes]:
        return tree(self.path, head_of(self.path))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


@pytest.fixture(scope="module")
def inputs() -> list[Expected]:
    """Of files, customers and sensors; no test changes them."""
    return make_inputs(None, NOW_MS)


def assert_ends_as_the_tree(repository: Repository) -> None:
    assert latest_values(in_logs(repository.changelog(), 3)) == repository.tree()


def test_adding_changing_and_deleting_a_file_are_three_changes_of_its_path(repository: Repository) -> None:
    for text in ("one", "two"):
        repository.write("a.txt", text)
        repository.commit()
    (repository.path / "a.txt").unlink()
    repository.commit()
    first, second, third = repository.changelog()
    assert (first.key, second.key, third.key) == (b"a.txt",) * 3
    assert first.value != second.value
    assert third.value is None
    assert_ends_as_the_tree(repository)


def test_a_rename_deletes_the_old_path_and_adds_the_new_one(repository: Repository) -> None:
    repository.write("old.txt", "text")
    repository.commit()
    repository.git("mv", "old.txt", "new.txt")
    repository.commit()
    added, *renamed = repository.changelog()
    assert {change.key: change.value for change in renamed} == {b"old.txt": None, b"new.txt": added.value}
    assert_ends_as_the_tree(repository)


def test_a_change_of_mode_alone_is_a_change(repository: Repository) -> None:
    repository.write("run", "#!/bin/sh\n")
    repository.commit()
    (repository.path / "run").chmod(0o755)
    repository.commit()
    before, after = (change.value or b"" for change in repository.changelog())
    assert before.replace(b"100644", b"100755") == after


def test_symlinks_and_submodules_have_modes_of_their_own(repository: Repository, tmp_path: Path) -> None:
    other = Repository(tmp_path / "other")
    other.write("inner", "text")
    other.commit()
    (repository.path / "link").symlink_to("nowhere")
    repository.git("submodule", "--quiet", "add", str(other.path), "module")
    repository.commit()
    modes = {change.key: (change.value or b"")[:6] for change in repository.changelog()}
    assert modes == {b".gitmodules": b"100644", b"link": b"120000", b"module": b"160000"}
    assert_ends_as_the_tree(repository)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("grüße/日本.txt", id="not-ascii"),
        pytest.param(" spaces ", id="spaces"),
        pytest.param('tab\tand "quotes"', id="what-git-would-quote"),
        pytest.param(":100644 000000", id="like-git's-own-output"),
        pytest.param("two\nlines", id="line-break"),
        pytest.param(b"\xff\xfe".decode("utf-8", "surrogateescape"), id="not-utf-8"),
    ],
)
def test_a_path_may_hold_anything(repository: Repository, name: str, tmp_path: Path) -> None:
    repository.write(name, "text")
    repository.commit()
    assert [change.key for change in repository.changelog()] == [os.fsencode(name)]
    assert_ends_as_the_tree(repository)
    records = in_logs(repository.changelog(), 3)
    land("files", records, tmp_path / "files.jsonl.gz")
    assert list(read_records(tmp_path / "files.jsonl.gz")) == records


def test_the_changelog_of_a_merge_has_the_changes_to_the_main_branch(repository: Repository) -> None:
    repository.write("a.txt", "main")
    repository.commit()
    repository.git("switch", "--quiet", "--create", "side")
    for text in ("one", "two"):
        repository.write("b.txt", text)
        repository.commit()
    repository.git("switch", "--quiet", "main")
    repository.git("merge", "--quiet", "--no-ff", "--no-edit", "side")
    assert [change.key for change in repository.changelog()] == [b"a.txt", b"b.txt"]
    assert_ends_as_the_tree(repository)


def test_a_shallow_clone_begins_with_all_its_files(repository: Repository, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        repository.write(name, "text")
        repository.commit()
    repository.git("clone", "--quiet", "--depth", "1", f"file://{repository.path}", str(tmp_path / "shallow"))
    shallow = tmp_path / "shallow"
    changes = changelog(shallow, head_of(shallow), NOW_MS)
    assert {change.key: change.value for change in changes} == repository.tree()


def test_a_changelog_has_commit_times_but_none_of_the_future(repository: Repository) -> None:
    repository.write("a", "text")
    repository.commit(at_s=COMMIT_S)
    repository.write("a", "other")
    repository.commit(at_s=NOW_MS // 1000 + 3600)
    past, future = repository.changelog()
    assert (past.timestamp_ms, past.headers) == (COMMIT_S * 1000, (("author_ts", b"%d" % ((COMMIT_S - 60) * 1000)),))
    assert future.timestamp_ms == NOW_MS


def test_a_repository_without_a_commit_has_no_history(repository: Repository) -> None:
    with pytest.raises(NoHistoryError, match="no commit yet"):
        head_of(repository.path)


def test_a_folder_that_is_no_repository_has_no_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(NoHistoryError, match="not a git repository"):
        head_of(tmp_path)


def test_a_source_archive_gets_a_made_changelog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setattr("demo.inputs.ROOT", tmp_path)
    files = make_inputs(None, NOW_MS)[0]
    assert files.input.origin.startswith("generated, because there is no git history here")
    assert latest_values(files.input.records) == files.values


def test_one_change_is_one_batch_and_an_empty_one() -> None:
    first, second = topic_input("t", "", [Change(b"k", b"v", NOW_MS)], 3).batches
    assert (len(first), len(second)) == (1, 0)


def test_a_key_is_always_in_the_same_partition_and_offsets_have_no_gap() -> None:
    records = in_logs(customer_changes(NOW_MS, count=500), 3)
    assert len({(record.key, record.partition) for record in records}) == len({record.key for record in records})
    for partition in range(3):
        offsets = [record.offset for record in records if record.partition == partition]
        assert offsets == list(range(len(offsets)))


def test_a_stream_is_the_same_each_time() -> None:
    for stream in (customer_changes, sensor_readings, file_changes):
        assert stream(NOW_MS, 500) == stream(NOW_MS, 500)  # type: ignore[operator]


def test_versions_are_eight_bytes_each_there_once_and_out_of_order() -> None:
    versions = [change.headers[0][1] or b"" for change in customer_changes(NOW_MS, count=2000)]
    assert {len(version) for version in versions} == {8}
    assert sorted(int.from_bytes(version, "big") for version in versions) == list(range(2000))
    assert versions != sorted(versions)


def test_the_offset_alone_would_name_wrong_customers_as_current(inputs: list[Expected]) -> None:
    _, customers, sensors = inputs
    assert latest_values(customers.input.records) != customers.values
    assert latest_values(sensors.input.batches[1]) != sensors.values


def test_both_batches_of_customers_have_tombstones_and_old_versions_come_late(inputs: list[Expected]) -> None:
    first, second = inputs[1].input.batches
    assert all(any(record.value is None for record in batch) for batch in (first, second))
    newest = max(record.headers[0][1] or b"" for record in first)
    assert any((record.headers[0][1] or b"") < newest for record in second)


def test_some_sensors_fall_silent_after_the_first_batch(inputs: list[Expected]) -> None:
    first, second = inputs[2].input.batches
    assert {record.key for record in second} < {record.key for record in first}


def test_versions_are_base64_in_the_lines_and_survive(tmp_path: Path) -> None:
    records = in_logs(customer_changes(NOW_MS, count=50), 2)
    assert all('"headers_encoding": "base64"' in kcat_line("customers", record) for record in records)
    land("customers", records, tmp_path / "batch.jsonl.gz")
    assert list(read_records(tmp_path / "batch.jsonl.gz")) == records
    assert [file.name for file in tmp_path.iterdir()] == ["batch.jsonl.gz"]


def test_the_same_records_land_as_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        land("t", in_logs(file_changes(NOW_MS, count=20), 3), tmp_path / f"{name}.jsonl.gz")
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()).count(b"\n") == 20

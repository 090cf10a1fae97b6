"""Documents in a store: written over, read again, removed, and none where there is none."""

import pytest

from cleantail.config.platform import Catalog, Platform
from cleantail.errors import TableError
from cleantail.lake.exchange import (
    folder_of,
    is_address,
    read_document,
    read_numbered,
    remove_document,
    write_document,
    write_numbered,
)


@pytest.fixture
def platform(tmp_path):
    return Platform(catalog=Catalog(), home=tmp_path, config_dir=tmp_path)


def test_a_document_is_written_over_read_and_removed(platform, tmp_path):
    address = f"file://{tmp_path}/exchange/a/result.json"
    assert read_document(platform, address) is None
    for text in ("a longer text", "ü"):
        write_document(platform, address, text)
        assert read_document(platform, address) == text
    for _ in range(2):
        remove_document(platform, address)
        assert read_document(platform, address) is None


@pytest.mark.parametrize("number", ["2", "true", "1.0", "null"])
def test_a_numbered_document_of_an_unknown_format_is_refused_by_name(platform, tmp_path, number):
    address = f"file://{tmp_path}/exchange/a/result.json"
    write_document(platform, address, f'{{"format": {number}, "exit_code": 0}}')
    with pytest.raises(TableError, match=f"{address} has format={number}: this version of Cleantail reads format 1"):
        read_numbered(platform, address)


def test_a_numbered_document_is_read_if_it_is_whole(platform, tmp_path):
    address = f"file://{tmp_path}/exchange/a/result.json"
    assert read_numbered(platform, address) is None
    write_numbered(platform, address, {"exit_code": 0})
    assert read_numbered(platform, address) == {"format": 1, "exit_code": 0}
    for cut in ('{"format": 1, "exi', "", "1"):
        write_document(platform, address, cut)
        assert read_numbered(platform, address) is None


def test_every_task_has_a_folder_of_its_own_in_which_no_name_is_a_path():
    tasks = [("d", "r", "t", -1), ("d", "r", "t", 0), ("d", "r", "../t", 0)]
    folders = {folder_of("s3://b/x/", task) for task in tasks}
    assert len(folders) == 3 and all(f.startswith("s3://b/x/") and f.count("/") == 4 for f in folders)
    assert folder_of("s3://b/x", tasks[0]) == folder_of("s3://b/x/", ("d", "r", "t", "-1"))


@pytest.mark.parametrize(("text", "is_one"), [("s3://b/x", True), ("file:///x", True), ("/tmp/x", False), ("x", False)])
def test_an_address_is_told_from_a_path(text, is_one):
    assert is_address(text) is is_one

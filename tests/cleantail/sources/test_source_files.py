"""A file is known by its content, so what is read has to be what the digest was taken of."""

import os

import pytest

from cleantail.errors import OutsideError
from cleantail.sources.source_files import file_state, require_unchanged


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "orders.jsonl"
    file.write_bytes(b"first\n")
    os.utime(file, ns=(1, 1))
    return file


def test_a_file_that_stays_as_it_is_may_be_appended(source):
    state = file_state(source)
    source.read_bytes()
    require_unchanged({source: state})
    assert state is not None and state == file_state(source)


def grown(file):
    with file.open("ab") as stream:
        stream.write(b"more\n")


def in_place(file):
    with file.open("r+b") as stream:
        stream.write(b"other\n")


def in_place_with_its_old_time(file):
    in_place(file)
    os.utime(file, ns=(1, 1))


def by_another_file(file):
    (file.parent / "new").write_bytes(b"other\n")
    os.replace(file.parent / "new", file)


@pytest.mark.parametrize("change", [grown, in_place, in_place_with_its_old_time, by_another_file, os.unlink])
def test_a_file_that_changed_while_it_was_read_may_be_tried_again_and_the_error_says_what_to_do(source, change):
    state = file_state(source)
    before = source.stat().st_ctime_ns
    change(source)
    while source.exists() and source.stat().st_ctime_ns == before:  # one tick of the file system's clock
        os.utime(source, ns=(1, 1))
    with pytest.raises(OutsideError, match=r"orders\.jsonl changed while it was read; nothing was appended") as caught:
        require_unchanged({source: state})
    assert caught.value.exit_code == 4 and "when its producer has finished it" in str(caught.value)

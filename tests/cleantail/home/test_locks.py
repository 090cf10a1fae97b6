"""One process at a time: the lock is held for the block and no longer."""

import fcntl
import time

import pytest

from cleantail.errors import CleantailError
from cleantail.home.home_folder import exclusive, holds_within


def is_free(file):
    with file.open() as other:
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_the_lock_is_held_for_the_block(tmp_path):
    with exclusive(tmp_path / "home", "round-orders"):
        assert not is_free(tmp_path / "home" / "locks" / "round-orders")
    assert is_free(tmp_path / "home" / "locks" / "round-orders")


def test_the_lock_goes_when_the_block_fails(tmp_path):
    with pytest.raises(RuntimeError, match="boom"), exclusive(tmp_path, "a"):
        raise RuntimeError("boom")
    assert is_free(tmp_path / "locks" / "a")


def test_another_name_is_another_lock(tmp_path):
    with exclusive(tmp_path, "a"), exclusive(tmp_path, "b"):
        assert sorted(f.name for f in (tmp_path / "locks").iterdir()) == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "file"),
    [
        pytest.param("../../etc/passwd", ".._.._etc_passwd", id="a path"),
        pytest.param("round-orders.v2_x", "round-orders.v2_x", id="a topic name"),
        pytest.param("a b\n", "a_b_", id="white space"),
    ],
)
def test_a_name_never_leaves_the_folder_of_locks(tmp_path, name, file):
    with exclusive(tmp_path, name):
        assert [f.name for f in (tmp_path / "locks").iterdir()] == [file]


def test_a_wait_for_a_lock_beyond_its_limit_is_an_error_that_names_the_lock(tmp_path):
    message = "another process holds the lock alerts-orders for over 0.2 s"
    with (
        exclusive(tmp_path, "alerts-orders"),
        pytest.raises(CleantailError, match=message),
        exclusive(tmp_path, "alerts-orders", within_s=0.2),
    ):
        pass
    with exclusive(tmp_path, "alerts-orders", within_s=0.2):
        pass


def test_a_condition_is_asked_until_it_holds(monkeypatch):
    answers, slept_s = iter([False, False, True]), []
    monkeypatch.setattr(time, "sleep", slept_s.append)
    assert holds_within(lambda: next(answers), every_s=0.5, within_s=9)
    assert slept_s == [0.5, 0.5]


def test_a_condition_that_does_not_hold_in_time_is_asked_once_at_least():
    answers = iter([False])
    assert not holds_within(lambda: next(answers), every_s=0.01, within_s=0)
    assert list(answers) == []
    assert not holds_within(lambda: False, every_s=0.01, within_s=0.05)

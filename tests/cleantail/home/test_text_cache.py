"""Kept texts are never worth a wait for each topic, and what is damaged goes."""

import sqlite3
import time

import pytest

from cleantail.home import text_cache
from cleantail.home.text_cache import TextCache


@pytest.fixture
def kept(tmp_path):
    texts = TextCache(tmp_path, "folder", "texts.db")
    texts.keep("orders", "key", "a text")
    return texts


def test_a_text_is_there_for_its_key_alone(kept):
    assert kept.text("orders", "key") == "a text"
    assert kept.text("orders", "another") is None
    kept.keep("orders", "another", "a newer text")
    assert kept.text("orders", "key") is None
    assert kept.text("orders", "another") == "a newer text"


def test_a_locked_cache_is_waited_for_only_once_in_a_while(kept, tmp_path, monkeypatch):
    monkeypatch.setattr(text_cache, "WAIT_S", 0.01)
    tries, connect = [], sqlite3.connect

    def counted(*arguments, **more):
        tries.append(arguments)
        return connect(*arguments, **more)

    with connect(tmp_path / "folder" / "texts.db", isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr(sqlite3, "connect", counted)
        assert [kept.text("orders", "key") for _ in range(100)] == [None] * 100
        assert len(tries) == 1
        other.execute("ROLLBACK")
    later_s = time.monotonic() + text_cache.LOCKED_S
    monkeypatch.setattr(time, "monotonic", lambda: later_s)
    assert kept.text("orders", "key") == "a text"


def test_a_text_that_cannot_be_decoded_goes_with_its_file(kept, tmp_path):
    with sqlite3.connect(tmp_path / "folder" / "texts.db") as database:
        database.execute("UPDATE texts SET text = CAST(x'ff' AS TEXT)")
    assert kept.text("orders", "key") is None
    kept.keep("orders", "key", "a new text")
    assert kept.text("orders", "key") == "a new text"


def test_texts_are_dropped_after_their_retention(kept, monkeypatch):
    now_s = time.time() + text_cache.KEPT_S + 1
    monkeypatch.setattr(time, "time", lambda: now_s)
    kept.drop_old()
    assert kept.text("orders", "key") is None

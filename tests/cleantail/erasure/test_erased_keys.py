"""Marks and tags of keys, and records that are compared with them."""

import base64
import hashlib
import hmac
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleantail.erasure import erased_keys
from cleantail.erasure.erased_keys import ERASURE_KEY, ErasedKeys, ErasureSecret
from cleantail.errors import CleantailError

SECRET = ErasureSecret(bytes(range(32)))
KEYS = st.lists(st.none() | st.binary(max_size=40), max_size=30)


def binary(keys):
    return pa.array(keys, pa.binary())


@given(st.sets(st.binary(max_size=40), min_size=1, max_size=20), KEYS)
def test_a_record_is_found_if_and_only_if_its_key_is_erased(erased, keys):
    denylist = ErasedKeys.of("orders", SECRET, binary(sorted(erased)))
    column = binary([*keys, *erased])
    expected = [key in erased for key in column.to_pylist()]
    assert denylist.found(column).tolist() == expected
    assert denylist.found(column.slice(1)).tolist() == expected[1:]
    assert pickle.loads(pickle.dumps(denylist)).found(column).tolist() == expected


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(pa.array(["k1", "k2", None]), id="texts"),
        pytest.param(pa.array([b"k1", b"k2", None], pa.large_binary()), id="large binary"),
        pytest.param(pa.array([b"k1", b"k2", None], pa.binary(2)), id="fixed size"),
        pytest.param(pa.chunked_array([binary([b"k1"]), binary([b"k2", None])]), id="chunks"),
        pytest.param(binary([b"k1", b"k2", None]).dictionary_encode(), id="dictionary"),
    ],
)
def test_keys_of_every_type_are_compared_by_their_bytes(column):
    assert ErasedKeys.of("orders", SECRET, binary([b"k2"])).found(column).tolist() == [False, True, False]


def test_a_tag_that_two_keys_share_erases_only_the_key_with_the_mark(monkeypatch):
    monkeypatch.setattr(erased_keys.TopicKeys, "tags", lambda self, keys: np.full(len(keys), 7, np.uint64))
    denylist = ErasedKeys.of("orders", SECRET, binary([b"a", b"b"]))
    assert denylist.found(binary([b"a", b"c", b"b"])).tolist() == [True, False, True]


def test_keys_that_differ_anywhere_have_different_tags():
    length = 61
    keys = [bytes(length), *(bytes([*[0] * at, 1, *[0] * (length - at - 1)]) for at in range(length))]
    keys += [bytes(n) for n in range(length)]  # zeros at the end count too
    assert len(set(SECRET.tags("orders", binary(keys)).tolist())) == len(keys)


def test_a_mark_is_an_hmac_that_depends_on_the_secret_and_the_topic():
    (mark,) = SECRET.marks("orders", binary([b"k1"]))
    derived = hmac.digest(bytes(range(32)), b"cleantail erasure\0mark\0orders", "sha256")
    assert mark == hmac.new(derived, b"k1", hashlib.sha256).digest()
    assert SECRET.marks("payments", binary([b"k1"])) != [mark]
    assert ErasureSecret(bytes(32)).marks("orders", binary([b"k1"])) != [mark]


def test_sealed_tags_open_again_and_show_no_tag():
    tags = SECRET.tags("orders", binary([b"k1", b"k2", b"k3"]))
    sealed = SECRET.sealed("orders", "r1", tags)
    assert SECRET.sealed("orders", "r1", sealed).tolist() == tags.tolist()
    assert not set(sealed.tolist()) & set(tags.tolist())
    assert SECRET.sealed("orders", "r2", tags).tolist() != sealed.tolist()


def test_neither_texts_nor_pickles_have_a_secret_or_a_key():
    denylist = ErasedKeys.of("orders", SECRET, binary([b"marker-k1"]))
    assert "marker" not in repr(denylist) and b"marker" not in pickle.dumps(denylist)
    assert bytes(range(32)) not in pickle.dumps(denylist)
    assert repr(SECRET) == "ErasureSecret(…)" and repr(SECRET.keys_of("orders")) == "TopicKeys(…)"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("", "is not set", id="missing"),
        pytest.param("not base64!", "is not Base64", id="no Base64"),
        pytest.param(base64.b64encode(bytes(31)).decode(), "has 31 bytes", id="short"),
    ],
)
def test_a_bad_secret_is_refused_without_showing_it(text, problem):
    with pytest.raises(CleantailError, match=problem) as error:
        ErasureSecret.from_environ({ERASURE_KEY: text})
    assert not text or text not in str(error.value)


def test_entries_tell_the_erased_keys_apart():
    denylist = ErasedKeys.of("orders", SECRET, binary([b"a", b"b", b"c"]))
    found = denylist.entries(binary([b"a", b"x", b"c", b"a", None])).tolist()
    assert found[0] == found[3] != found[2] and min(found[0], found[2]) >= 0 and found[1] == found[4] == -1

"""Requests and erased keys in a real catalog."""

import base64
import os
from pathlib import Path

import pyarrow as pa
import pytest

from cleantail.config.loading import load_platform
from cleantail.erasure import store as erasure_store
from cleantail.erasure.requests import APPROVED, CERTIFIED, FAILED, HIDDEN, LIFTED, REJECTED, ErasureEvent
from cleantail.erasure.store import ErasureStore, newest_certificate
from cleantail.errors import CleantailError, TableError

NOW = 1_764_000_000_000
CERTIFICATE = '{"certificate": {"number": 1}}'
DAY = 86_400_000


def secret(byte):
    return "" if byte is None else base64.b64encode(bytes([byte]) * 32).decode()


def store_with(project, byte=1):
    env = {**os.environ, "CLEANTAIL_ERASURE_KEY": secret(byte), "CLEANTAIL_HOME": str(project / "home")}
    return ErasureStore(load_platform(project / "config", env))


@pytest.fixture
def store(project):
    return store_with(project)


def ask(store, *keys, topic="orders", now_ms=NOW, **asked):
    return store.request(topic, keys, by="ana", now_ms=now_ms, deadline_ms=now_ms + 30 * DAY, **asked)


def add(store, request, event, at_ms=NOW + 1, **more):
    store.append(ErasureEvent(request.topic, request.id, event, at_ms, "ana", **more))


def found(store, *keys, topic="orders", request=None):
    requests = store.denied(topic) if request is None else [r for r in store.requests(topic) if r.id == request]
    return store.keys_of(requests).found(pa.array(keys, pa.binary())).tolist() if requests else None


def test_without_a_request_there_is_no_table_and_no_denylist(store):
    assert (
        store.requests() == [] and store.denied("orders") == () and newest_certificate(store.events("orders")) is None
    )


def test_a_request_is_recorded_with_its_keys_as_marks_only(project, store):
    request = ask(store, b"marker-k2", b"marker-k1", b"marker-k2", exclude=("tag:audit",), tombstone=True)
    (read,) = store.requests("orders")
    assert read == request and read.keys == 2 and read.state == "requested" and read.requested_by == "ana"
    assert read.deadline_ms == NOW + 30 * DAY and read.excluded == ("tag:audit",) and read.asked["tombstone"] is True
    files = [file for file in Path(project / "home").rglob("*") if file.is_file()]
    assert len(files) > 4 and not [file for file in files if b"marker" in file.read_bytes()]


def test_keys_are_denied_from_the_approval_until_a_person_lifts_them(store):
    one, other = ask(store, b"k1"), ask(store, b"k2", now_ms=NOW + 1)
    assert found(store, b"k1", b"k2") is None
    assert found(store, b"k1", b"k2", request=other.id) == [False, True]
    add(store, one, APPROVED)
    assert found(store, b"k1", b"k2", b"k3") == [True, False, False]
    assert found(store, b"k1", topic="payments") is None
    add(store, other, APPROVED)
    assert found(store, b"k1", b"k2", b"k3") == [True, True, False]
    add(store, one, LIFTED, NOW + 2)
    assert found(store, b"k1", b"k2", b"k3") == [False, True, False]
    add(store, other, LIFTED, NOW + 2)
    assert found(store, b"k1", b"k2") is None


@pytest.mark.parametrize("column", ["lost", "tags", "marks"])
def test_keys_that_are_not_those_of_the_request_prove_nothing(store, monkeypatch, column):
    monkeypatch.setattr(erasure_store, "PORTION_KEYS", 2)
    keys = [b"k%d" % n for n in range(6)]
    request = ask(store, *keys)
    assert found(store, *keys, request=request.id) == [True] * 6
    table = store._load(erasure_store.ERASED_KEYS)
    row = table.scan(row_filter="number = 1").to_arrow()
    table.delete("number = 1")
    if column != "lost":
        [changed] = row[column].to_pylist()
        changed = bytes([changed[0] ^ 1]) + changed[1:]
        table.append(row.set_column(row.schema.get_field_index(column), row.schema.field(column), [[changed]]))
    with pytest.raises(TableError, match="has other keys of request"):
        found(store, *keys, request=request.id)


def test_the_same_keys_again_are_the_same_request_while_it_is_open(store):
    request = ask(store, b"k1", b"k2")
    assert ask(store, b"k2", b"k1", now_ms=NOW + 5).id == request.id
    assert ask(store, b"k2", now_ms=NOW + 5).id != request.id
    add(store, request, REJECTED)
    assert ask(store, b"k1", b"k2", now_ms=NOW + 5).id != request.id


def test_another_person_or_an_earlier_deadline_or_another_wish_is_another_request(store):
    request = ask(store, b"k1")
    others = [
        store.request("orders", [b"k1"], by="bo", now_ms=NOW, deadline_ms=NOW + 30 * DAY),
        store.request("orders", [b"k1"], by="ana", now_ms=NOW, deadline_ms=NOW + DAY),
        ask(store, b"k1", tombstone=True),
        ask(store, b"k1", exclude=("source",)),
    ]
    assert len({request.id, *(other.id for other in others)}) == 5


def test_a_request_that_was_lifted_while_it_was_open_is_over(store):
    request = ask(store, b"k1")
    add(store, request, APPROVED)
    add(store, request, LIFTED, NOW + 2)
    (lifted,) = store.requests("orders")
    assert lifted.state == LIFTED and not lifted.is_open and ask(store, b"k1", now_ms=NOW + 5).id != request.id


def test_another_secret_is_noticed_instead_of_finding_nothing(project, store):
    request = ask(store, b"k1")
    add(store, request, APPROVED)
    with pytest.raises(CleantailError, match="is not the secret with which the keys of request .* were marked"):
        store_with(project, 2).denied("orders")
    with pytest.raises(CleantailError, match="CLEANTAIL_ERASURE_KEY is not set"):
        store_with(project, None).denied("orders")


@pytest.mark.parametrize("loss", ["dropped", "rolled back"])
def test_a_lost_table_of_requests_is_an_error_if_the_topics_table_has_a_denylist(store, loss):
    add(store, ask(store, b"k0", topic="payments"), APPROVED)
    table = store._load(erasure_store.ERASURES)
    before = table.current_snapshot().snapshot_id
    request = ask(store, b"k1")
    add(store, request, APPROVED)
    assert store.denied("orders", noted=True) == store.denied("orders") == tuple(store.requests("orders"))
    if loss == "dropped":
        table.catalog.drop_table(table.name())
    else:
        table.refresh().manage_snapshots().set_current_snapshot(before).commit()
    with pytest.raises(TableError, match="cleantail_erasures has no approved request of topic orders, .* again"):
        store.denied("orders", noted=True)
    add(store, ask(store, b"k1", now_ms=NOW + 5), APPROVED)
    assert found(store, b"k1") == [True]


def test_a_denylist_without_its_property_is_read_if_the_topics_table_has_one(store):
    request = ask(store, b"k1")
    add(store, request, APPROVED)
    table = store._load(erasure_store.ERASURES)
    with table.transaction() as transaction:
        transaction.remove_properties(*(name for name in table.properties if name.startswith("cleantail.denied.")))
    assert [denied.id for denied in store.denied("orders", noted=True)] == [request.id]
    add(store, request, LIFTED, NOW + 2)
    assert store.denied("orders", noted=True) == ()


def test_the_state_follows_from_the_events(store):
    request = ask(store, b"k1")
    for event, at_ms in ((APPROVED, 1), (HIDDEN, 2), (FAILED, 3)):
        add(store, request, event, NOW + at_ms, details={"reason": "a tag", "files": 2})
    (failed,) = store.requests("orders")
    assert failed.state == FAILED and failed.is_open and failed.last(FAILED).details == {"reason": "a tag", "files": 2}
    add(store, request, CERTIFIED, NOW + 4, certificate=CERTIFICATE)
    add(store, request, LIFTED, NOW + 5)
    (certified,) = store.requests("orders")
    assert certified.state == CERTIFIED and not certified.is_open and certified.is_lifted and not certified.denies
    assert (
        newest_certificate(store.events("orders")) == CERTIFICATE
        and newest_certificate(store.events("payments")) is None
    )


def test_a_request_is_due_soon_in_its_last_fifth_and_overdue_at_its_deadline(store):
    request = ask(store, b"k1")
    days = {
        day: (request.is_due_soon(NOW + day * DAY), request.is_overdue(NOW + day * DAY)) for day in (23, 24, 29, 30)
    }
    assert days == {23: (False, False), 24: (True, False), 29: (True, False), 30: (False, True)}


@pytest.mark.parametrize(
    ("keys", "problem"), [((), "no key is named"), ((b"1", b"2"), "too many keys for one request: 2")]
)
def test_requests_of_no_key_or_of_too_many_are_refused(store, monkeypatch, keys, problem):
    monkeypatch.setattr("cleantail.erasure.store.MOST_KEYS", 1)
    with pytest.raises(CleantailError, match=problem):
        ask(store, *keys)
    assert store.requests() == []

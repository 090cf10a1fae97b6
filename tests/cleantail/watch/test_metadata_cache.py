"""Metadata of many tables: read once for each commit, and never waited for longer than asked."""

import base64
import os
import threading

import pytest

from cleantail.config.topic import Topic
from cleantail.erasure.requests import APPROVED, ErasureEvent
from cleantail.erasure.store import ErasureStore
from cleantail.errors import OutsideError
from cleantail.lake.reader_positions import set_position
from cleantail.watch import metadata_cache
from cleantail.watch.metadata_cache import ERRORS_LIVE_S, LOCATIONS_LIVE_S, UNLISTED_LIVE_S, MetadataCache
from cleantail.watch.observed_table import ObservedTable

WAIT_S = 20


@pytest.fixture
def reads(monkeypatch):
    """Topics in the order in which their metadata was really read."""
    seen, real = [], metadata_cache.load_table

    def load(catalog, topic):
        seen.append(topic.topic)
        return real(catalog, topic)

    monkeypatch.setattr(metadata_cache, "load_table", load)
    return seen


@pytest.fixture
def clock():
    class Clock:
        now_s = 0.0

        def __call__(self):
            return self.now_s

    return Clock()


def test_a_table_is_read_again_only_after_a_commit(orders_table, reads, clock):
    orders_table.append((0, 0, 1, b"a", b"1"))
    cache = MetadataCache(orders_table.platform, clock)
    first = cache.observe([orders_table.topic], WAIT_S)["orders"]
    assert ([f.records for f in first.facts.files], len(first.sizes)) == ([1], 1)
    assert first.sizes[0].operation == "append"
    clock.now_s = 1000
    assert cache.observe([orders_table.topic], WAIT_S)["orders"] is first
    orders_table.append((0, 1, 1, b"a", b"2"))
    clock.now_s += LOCATIONS_LIVE_S
    assert len(cache.observe([orders_table.topic], WAIT_S)["orders"].facts.files) == 2
    assert reads == ["orders", "orders"]


@pytest.mark.parametrize("lists", [True, False], ids=["the catalog lists its tables", "it does not"])
def test_requests_to_erase_keys_are_read_again_only_after_an_event(orders_table, clock, monkeypatch, lists):
    monkeypatch.setenv("CLEANTAIL_ERASURE_KEY", base64.b64encode(bytes(32)).decode())
    platform = orders_table.platform.with_env(os.environ)
    cache, store, loads = MetadataCache(platform, clock), ErasureStore(platform), []
    real = metadata_cache.load_any
    monkeypatch.setattr(metadata_cache, "load_any", lambda *arguments: loads.append(arguments) or real(*arguments))
    if not lists:
        monkeypatch.setattr(metadata_cache, "metadata_locations", lambda *_: {})
    assert (cache.erasures(), cache.erasures(), len(loads)) == ({}, {}, 0 if lists else 1)
    loads.clear()
    request = store.request("orders", [b"k"], by="ana", now_ms=1, deadline_ms=2)
    clock.now_s += LOCATIONS_LIVE_S if lists else UNLISTED_LIVE_S
    assert cache.erasures() == {"orders": [request]} and cache.erasures() and len(loads) == 1
    store.append(ErasureEvent("orders", request.id, APPROVED, 2, "ana"))
    clock.now_s += LOCATIONS_LIVE_S if lists else UNLISTED_LIVE_S
    assert [r.state for r in cache.erasures()["orders"]] == [APPROVED] and len(loads) == 2


def test_a_table_knows_which_rounds_were_undone(orders_table):
    summary = {"cleantail.operation": "rollback", "cleantail.undone": "r2,r1"}
    orders_table.append((0, 0, 1, b"a", b"1")).append((0, 1, 1, b"a", b"1"), summary=summary)
    found = MetadataCache(orders_table.platform).observe([orders_table.topic], WAIT_S)["orders"]
    [(at_ms, names)] = found.undone
    assert (at_ms, names) == (orders_table.table.current_snapshot().timestamp_ms, ("r2", "r1"))


def test_the_catalog_is_not_asked_at_each_look(orders_table, clock):
    cache = MetadataCache(orders_table.platform, clock)
    first = cache.observe([orders_table.topic], WAIT_S)["orders"]
    orders_table.append((0, 0, 1, b"a", b"1"))
    assert cache.observe([orders_table.topic], WAIT_S)["orders"] is first
    cache.forget(orders_table.topic)
    assert cache.observe([orders_table.topic], WAIT_S)["orders"].facts.files


def test_a_topic_without_a_table_has_no_facts(orders_table):
    absent = Topic(topic="absent", table="cleantail.absent").on(orders_table.platform)
    assert MetadataCache(orders_table.platform).observe([absent], WAIT_S) == {"absent": ObservedTable()}


def test_an_unreadable_table_is_its_own_problem_and_is_tried_again(orders_table, reads, clock):
    foreign = Topic(topic="foreign", table="cleantail.orders").on(orders_table.platform)
    cache = MetadataCache(orders_table.platform, clock)
    found = cache.observe([foreign, orders_table.topic], WAIT_S)
    assert found["foreign"].error.startswith("table cleantail.orders is not the table of topic foreign")
    assert not found["orders"].error
    cache.observe([foreign], WAIT_S)
    clock.now_s = ERRORS_LIVE_S
    cache.observe([foreign], WAIT_S)
    assert sorted(reads) == ["foreign", "foreign", "orders"]


def test_a_query_waits_no_longer_than_its_timeout(orders_table, monkeypatch):
    go_on, real = threading.Event(), metadata_cache.load_table

    def slow(*arguments):
        go_on.wait(WAIT_S)
        return real(*arguments)

    monkeypatch.setattr(metadata_cache, "load_table", slow)
    cache = MetadataCache(orders_table.platform)
    assert cache.observe([orders_table.topic], 0.01) == {"orders": None}
    go_on.set()
    assert cache.observe([orders_table.topic], WAIT_S)["orders"] is not None


def test_without_an_evidence_table_there_were_no_rounds(orders_table):
    assert MetadataCache(orders_table.platform).rounds(orders_table.topic) == []


def test_positions_of_readers_are_those_of_now(orders_table):
    orders_table.append((0, 0, 0, b"a", b"x"))
    cache, topics = MetadataCache(orders_table.platform), [orders_table.topic]
    seen = cache.observe(topics, 20)
    assert cache.with_namespaces(topics, seen) == seen
    reader = set_position(orders_table.catalog, orders_table.topic, "index", 0, 1, now_ms=1)
    assert cache.with_namespaces(topics, seen)["orders"].facts.readers == (reader,)
    assert cache.with_namespaces(topics, {"orders": None}) == {"orders": None}


def test_an_invalid_reader_position_makes_the_topics_of_its_namespace_unreadable(orders_table):
    orders_table.append((0, 0, 0, b"a", b"x"))
    orders_table.catalog.update_namespace_properties("cleantail", updates={"cleantail.reader.x": '{"topic": "orders"}'})
    cache, topics = MetadataCache(orders_table.platform), [orders_table.topic]
    found = cache.with_namespaces(topics, cache.observe(topics, 20))
    assert "namespace property cleantail.reader.x is not a reader's position" in found["orders"].error


def test_a_catalog_out_of_reach_is_tried_again_after_a_while_and_not_at_each_question_of_a_page(
    orders_table, clock, monkeypatch
):
    """Each question would wait for the catalog's whole timeout."""
    tries = []

    def away(*_):
        tries.append(clock.now_s)
        raise OutsideError("the catalog cannot be reached")

    with monkeypatch.context() as broken:
        broken.setattr(metadata_cache, "metadata_locations", away)
        cache, topics = MetadataCache(orders_table.platform, clock), [orders_table.topic]
        for ask in (lambda: cache.summaries(topics, 0), lambda: cache.totals(0), lambda: cache.rounds(topics[0])):
            with pytest.raises(OutsideError, match="cannot be reached"):
                ask()
        clock.now_s = ERRORS_LIVE_S
        with pytest.raises(OutsideError):
            cache.observe(topics, 0)
    assert tries == [0, ERRORS_LIVE_S]
    clock.now_s += ERRORS_LIVE_S
    assert cache.observe(topics, WAIT_S)["orders"].error == ""

"""Counters over the evidence table: read once, then only what is new, and the same after a restart."""

import json

import pyarrow as pa
import pytest

from cleantail.watch import metadata_cache
from cleantail.watch.metadata_cache import MetadataCache
from cleantail.watch.metrics import ROUNDS

WAIT_S = 20


def rows(topic, *partitions):
    common = {
        "kind": "compact",
        "outcome": "published",
        "freed_bytes": 0,
        "deleted": json.dumps({"superseded": 1}),
        "checks": "[]",
    }
    return pa.Table.from_pylist([{"topic": topic, "partition": p, "round": "r", **common} for p in partitions])


@pytest.fixture
def evidence(orders_table):
    return orders_table.catalog.create_table("cleantail.cleantail_evidence", rows("a", 0).schema)


@pytest.fixture
def opened(monkeypatch):
    """Numbers of rows of the files that were really opened."""
    seen, real = [], metadata_cache.totals_of

    def count(found):
        seen.append(len(found))
        return real(found)

    monkeypatch.setattr(metadata_cache, "totals_of", count)
    return seen


class Clock:
    now_s = 0.0

    def __call__(self):
        self.now_s += 60
        return self.now_s


def rounds_of(totals):
    return {labels[:2]: n for (metric, labels), n in totals.items() if metric is ROUNDS}


def test_a_new_round_is_added_and_nothing_is_read_twice(orders_table, evidence, opened):
    cache = MetadataCache(orders_table.platform, Clock())
    evidence.append(rows("a", 0, 1))
    assert rounds_of(cache.totals(WAIT_S)) == {("a", "0"): 1, ("a", "1"): 1}
    evidence.append(rows("a", 0))
    assert rounds_of(cache.totals(WAIT_S)) == {("a", "0"): 2, ("a", "1"): 1}
    assert cache.totals(WAIT_S) == cache.totals(WAIT_S)
    assert opened == [2, 1]


def test_after_a_restart_the_counters_are_the_same(orders_table, evidence):
    for _ in range(3):
        evidence.append(rows("a", 0, 1))
    before = MetadataCache(orders_table.platform, Clock()).totals(WAIT_S)
    assert MetadataCache(orders_table.platform, Clock()).totals(WAIT_S) == before
    assert set(rounds_of(before).values()) == {3}


def test_merged_files_are_counted_once(orders_table, evidence):
    cache = MetadataCache(orders_table.platform, Clock())
    evidence.append(rows("a", 0))
    evidence.append(rows("a", 1))
    before = cache.totals(WAIT_S)
    evidence.overwrite(evidence.scan().to_arrow())
    assert cache.totals(WAIT_S) == before


def test_without_evidence_there_is_nothing_to_count(orders_table):
    assert MetadataCache(orders_table.platform).totals(WAIT_S) == {}


def test_a_scrape_does_not_wait_for_the_first_read_and_never_sees_half_of_it(orders_table, evidence, monkeypatch):
    import threading

    evidence.append(rows("a", 0))
    go_on, real = threading.Event(), metadata_cache.totals_of
    monkeypatch.setattr(metadata_cache, "totals_of", lambda found: go_on.wait(WAIT_S) and real(found))
    cache = MetadataCache(orders_table.platform)
    assert cache.totals(0.01) is None
    go_on.set()
    assert rounds_of(cache.totals(WAIT_S)) == {("a", "0"): 1}


def test_a_read_that_fails_leaves_the_totals_of_before_and_is_tried_again(orders_table, evidence, monkeypatch):
    cache = MetadataCache(orders_table.platform, Clock())
    evidence.append(rows("a", 0))
    before = cache.totals(WAIT_S)
    evidence.append(rows("a", 0))
    with monkeypatch.context() as broken:
        broken.setattr(metadata_cache, "totals_of", lambda found: 1 / 0)
        assert cache.totals(WAIT_S) == before
    assert rounds_of(cache.totals(WAIT_S)) == {("a", "0"): 2}

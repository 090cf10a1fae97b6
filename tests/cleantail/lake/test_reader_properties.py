"""Readers' positions in a real catalog, and the hold that follows from them (semantics.md 3.9)."""

import os
import re

import pytest

from cleantail.config.loading import load_platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, TableError
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.own_namespace import PROPERTY_READER
from cleantail.lake.reader_positions import NAME_CHARS, registered, remove
from cleantail.lake.reader_positions import set_position as put
from cleantail.log.horizons import Reader, hold_offset, left_behind
from cleantail.log.partition_state import PartitionState

ORDERS = Topic(topic="orders", table="cleantail.orders")
PAYMENTS = Topic(topic="payments", table="cleantail.payments")


@pytest.fixture
def catalog(tmp_path):
    (tmp_path / "topics").mkdir()
    return open_catalog(load_platform(tmp_path, {**os.environ, "CLEANTAIL_HOME": str(tmp_path / "home")}))


def test_a_topic_without_readers_and_without_namespace_has_none(catalog):
    assert registered(catalog, ORDERS) == ()


def test_positions_are_kept_by_topic_name_and_partition(catalog):
    put(catalog, ORDERS, "b", 0, 7, now_ms=1)
    put(catalog, ORDERS, "a", 1, 3, now_ms=2)
    put(catalog, ORDERS, "a", 0, 9, now_ms=3)
    put(catalog, PAYMENTS, "a", 0, 1, now_ms=4)
    assert registered(catalog, ORDERS) == (
        Reader("orders", "a", 0, 9, 3),
        Reader("orders", "b", 0, 7, 1),
        Reader("orders", "a", 1, 3, 2),
    )
    assert registered(catalog, PAYMENTS) == (Reader("payments", "a", 0, 1, 4),)


def test_a_position_moves_forward_and_back_only_where_that_is_meant(catalog):
    for offset in (5, 9, 9):
        put(catalog, ORDERS, "a", 0, offset, now_ms=offset)
    with pytest.raises(CleantailError, match="reader a is at offset 9 of partition 0: 2 would move it back"):
        put(catalog, ORDERS, "a", 0, 2)
    assert registered(catalog, ORDERS) == (Reader("orders", "a", 0, 9, 9),)
    put(catalog, ORDERS, "a", 1, 2, now_ms=1)
    put(catalog, ORDERS, "b", 0, 2, now_ms=1)
    put(catalog, ORDERS, "a", 0, 2, now_ms=2, back=True)
    assert registered(catalog, ORDERS)[0] == Reader("orders", "a", 0, 2, 2)


@pytest.mark.parametrize(("offset", "allowed"), [(1, False), (2, True), (4, True), (5, False), (99_999, False)])
def test_a_position_lies_within_its_log(orders_table, offset, allowed):
    orders_table.append((0, 2, 1, b"k", b"v"), (0, 3, 1, b"k", b"w"))
    if allowed:
        put(orders_table.catalog, orders_table.topic, "a", 0, offset)
        return
    bounds = rf"offset {offset} is not in partition 0 of topic orders; .* from 2 \(log start\) to 4 \(log end"
    with pytest.raises(CleantailError, match=bounds):
        put(orders_table.catalog, orders_table.topic, "a", 0, offset)
    assert registered(orders_table.catalog, orders_table.topic) == ()


def test_a_name_of_any_script_and_quotes_is_only_a_name(catalog):
    name = 'Zoë\'s "reader"; DROP TABLE {{ x }} ' + "é" * 60
    put(catalog, ORDERS, name, 0, 5)
    assert [r.name for r in registered(catalog, ORDERS)] == [name]


def test_the_longest_name_is_one(catalog):
    put(catalog, ORDERS, "x" * NAME_CHARS, 0, 5)
    assert [len(r.name) for r in registered(catalog, ORDERS)] == [NAME_CHARS]


def test_a_position_is_a_short_property_of_plain_text(catalog):
    """Catalogs bound the length of a property's name, and not all of them keep other scripts as they are."""
    put(catalog, ORDERS, "Zoë", 3, 9, now_ms=7)
    ((name, text),) = [
        item for item in catalog.load_namespace_properties("cleantail").items() if item[0].startswith(PROPERTY_READER)
    ]
    assert re.fullmatch(r"cleantail\.reader\.[0-9a-f]{32}", name)
    assert text == r'{"at_ms":7,"name":"Zo\u00eb","offset":9,"partition":3,"topic":"orders"}'


def test_a_stored_position_is_read_with_spaces_or_unknown_fields(catalog):
    catalog.create_namespace_if_not_exists("cleantail")
    before = r'{"at_ms": 7, "name": "Zo\u00eb", "offset": 9, "partition": 3, "topic": "orders"}'
    to_come = '{"topic": "orders", "name": "b", "partition": 4, "offset": 1, "at_ms": 1, "more": 1}'
    texts = {f"{PROPERTY_READER}x": before, f"{PROPERTY_READER}y": to_come}
    catalog.update_namespace_properties("cleantail", updates=texts)
    assert registered(catalog, ORDERS) == (Reader("orders", "Zoë", 3, 9, 7), Reader("orders", "b", 4, 1, 1))


def test_a_position_without_a_time_is_of_now(catalog, monkeypatch):
    monkeypatch.setattr("cleantail.lake.reader_positions.time.time", lambda: 1_234.5678)
    assert put(catalog, ORDERS, "a", 0, 5).at_ms == 1_234_567


@pytest.mark.parametrize("name", ["", "a\nb", "\x00", "x" * (NAME_CHARS + 1)])
def test_an_invalid_reader_name_is_refused_and_nothing_is_registered(catalog, name):
    with pytest.raises(CleantailError, match="1 to 100 printable characters"):
        put(catalog, ORDERS, name, 0, 5)
    assert registered(catalog, ORDERS) == ()


def test_a_partition_that_the_topic_does_not_have_is_refused_and_nothing_is_registered(orders_table):
    catalog, topic = orders_table.catalog, orders_table.topic
    assert put(catalog, topic, "a", 99, 5).partition == 99  # the table has no record yet: any partition may come
    remove(catalog, topic, "a")
    orders_table.append((0, 0, 0, b"a", b"x"), (2, 0, 0, b"a", b"x"))
    with pytest.raises(TableError, match=r"^topic orders has no partition 99: it has 0, 2$"):
        put(catalog, topic, "a", 99, 5)
    assert registered(catalog, topic) == ()
    orders_table.set_properties(**{"cleantail.partition.1": PartitionState(log_end_offset=7).as_json()})
    assert put(catalog, topic, "a", 1, 5).partition == 1  # all its records were deleted, the log is there


def test_a_reader_is_forgotten_in_one_log_or_in_all(catalog):
    for partition in (0, 1, 2):
        put(catalog, ORDERS, "a", partition, 5, now_ms=1)
    put(catalog, ORDERS, "b", 0, 6, now_ms=1)
    assert [r.partition for r in remove(catalog, ORDERS, "a", 1)] == [1]
    assert [(r.name, r.partition) for r in registered(catalog, ORDERS)] == [("a", 0), ("b", 0), ("a", 2)]
    assert [r.partition for r in remove(catalog, ORDERS, "a")] == [0, 2]
    assert remove(catalog, ORDERS, "a") == []
    assert [r.name for r in registered(catalog, ORDERS)] == ["b"]


def test_an_invalid_position_property_of_the_topic_is_an_error_that_names_it(catalog):
    catalog.create_namespace_if_not_exists("cleantail")
    catalog.update_namespace_properties("cleantail", updates={f"{PROPERTY_READER}x": '{"topic": "orders"}'})
    with pytest.raises(TableError, match=r"cleantail\.reader\.x"):
        registered(catalog, ORDERS)


# ---- the hold

READERS = [Reader("t", "slow", 0, 3, 0), Reader("t", "fast", 0, 8, 0), Reader("t", "other", 1, 5, 0)]


@pytest.mark.parametrize(("partition", "expected"), [(0, 3), (1, 5), (2, None)])
def test_the_slowest_reader_of_a_log_holds(partition, expected):
    assert hold_offset(READERS, partition) == expected


@pytest.mark.parametrize(
    ("last_removed", "expected"),
    [
        ({}, []),
        ({0: 2}, []),
        ({0: 3}, ["slow"]),
        ({0: 7}, ["slow"]),
        ({0: 8, 1: 4}, ["slow", "fast"]),
        ({1: 5}, ["other"]),
    ],
)
def test_a_reader_is_left_behind_by_what_it_had_not_read(last_removed, expected):
    assert [r.name for r in left_behind(READERS, last_removed)] == expected


BROKEN = {
    "no JSON": "not json",
    "a list": "[1, 2]",
    "of another topic, a text for a number": '{"topic": "x", "name": "a", "partition": "0", "offset": 1, "at_ms": 1}',
    "of another topic, a key too few": '{"topic": "x", "name": "a", "partition": 0, "offset": 1}',
    "of another topic, below zero": '{"topic": "x", "name": "a", "partition": 0, "offset": -1, "at_ms": 1}',
    "of another topic, true for a number": '{"topic": "x", "name": "a", "partition": true, "offset": 1, "at_ms": 1}',
    "nested deeply": "[" * 100_000,
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_what_others_wrote_wrongly_into_the_namespace_hides_no_reader(catalog, caplog, text):
    put(catalog, ORDERS, "a", 0, 5, now_ms=1)
    catalog.update_namespace_properties("cleantail", updates={f"{PROPERTY_READER}foreign": text})
    assert [r.offset for r in registered(catalog, ORDERS)] == [5]
    assert "cleantail.reader.foreign is not a reader's position" in caplog.text
    assert "skipped" in caplog.text


@pytest.mark.parametrize("wrong", ['"offset": "7"', '"offset": -7', '"offset": null', '"more": 1'])
def test_a_broken_position_of_the_topic_is_an_error_and_not_a_lost_hold(catalog, wrong):
    put(catalog, ORDERS, "a", 0, 5, now_ms=1)
    text = f'{{"topic": "orders", "name": "b", "partition": 0, "at_ms": 1, {wrong}}}'
    catalog.update_namespace_properties("cleantail", updates={f"{PROPERTY_READER}own": text})
    with pytest.raises(TableError, match=r"cleantail.reader.own is not a reader's position"):
        registered(catalog, ORDERS)

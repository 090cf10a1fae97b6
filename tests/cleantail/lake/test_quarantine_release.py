"""Release from quarantine: a word in the table's namespace, for one quarantine of one table."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from cleantail.config.loading import find_topic
from cleantail.errors import CleantailError, OvertakenError
from cleantail.lake import releases
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.evaluate import evaluate_topic, log_states, read_facts
from cleantail.lake.releases import (
    PROPERTY_RELEASED,
    RELEASE_JSON,
    current_releases,
    forget_releases,
    release,
    releases_in,
)
from cleantail.log.partition_state import PROPERTY_PARTITION, Horizon, PartitionState, Quarantine
from cleantail.log.quarantine import Release, after_failure, lifted
from cleantail.watch.metadata_cache import MetadataCache
from cleantail.watch.topic_list import quarantined

HELD = Quarantine(1, "compact", "check failed: expect_x", 3, 10**15)
STATE = PartitionState(checkpoint=5, log_end_offset=9, horizons=(Horizon(5, 7, 1),), quarantine=HELD)
NOW = 10**13


def write_states(table, **states):
    properties = {f"{PROPERTY_PARTITION}{name[1:]}": state.as_json() for name, state in states.items()}
    return table.set_properties(**properties)


@pytest.fixture
def held(orders_table):
    """The orders table, partition 0 in quarantine, partition 1 not."""
    orders_table.append((0, 0, 1, b"a", b"1"), (1, 0, 1, b"a", b"1"))
    return write_states(orders_table, p0=STATE, p1=PartitionState(checkpoint=1))


def states(table):
    return read_facts(table.topic).states


def words(table):
    """The releases in the namespace, of all topics: (topic, partition)."""
    known = releases_in(table.catalog.load_namespace_properties("cleantail"))
    return sorted((topic, partition) for topic, releases in known.items() for partition in releases)


def test_a_released_log_keeps_all_of_its_state_but_the_quarantine(held, caplog):
    caplog.set_level(logging.INFO, "cleantail.release")
    before = held.catalog.load_table("cleantail.orders").metadata_location
    assert release(held.topic, 0, "ann", 1) == HELD
    assert states(held) == {0: replace(STATE, quarantine=None), 1: PartitionState(checkpoint=1)}
    assert "'ann' unblocked partition 0 of orders: it was blocked by: check failed: expect_x, 3 attempts" in caplog.text
    assert held.catalog.load_table("cleantail.orders").metadata_location == before  # no metadata is written


def test_the_next_run_tries_a_released_log_at_once(held):
    write_states(held, p0=PartitionState(quarantine=HELD))

    def due():
        plan = evaluate_topic(held.topic, now_ms=NOW, partition=0)
        return plan.by_log[0].decision.compact, plan.by_log[0].decision.reason

    assert due()[0] is False and due()[1].startswith("blocked ")
    release(held.topic, 0, "ann", 1)
    assert due()[0] is True


def test_metadata_of_version_3_is_released_as_any_other(held):
    """PyIceberg reads tables of format version 3, and does not write their metadata."""
    location = held.catalog.load_table("cleantail.orders").metadata_location.removeprefix("file:")
    metadata = json.loads(Path(location).read_text())
    for snapshot in metadata["snapshots"]:
        snapshot |= {"first-row-id": 0, "added-rows": 2}
    Path(location).write_text(json.dumps(metadata | {"format-version": 3, "next-row-id": 2}))
    release(held.topic, 0, "ann", 1)
    assert states(held)[0].quarantine is None


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        pytest.param(1, "partition 1 of topic orders is not blocked", id="not held"),
        pytest.param(7, "topic orders has no partition 7: it has 0, 1", id="unknown"),
    ],
)
def test_what_is_not_in_quarantine_is_not_released(held, partition, message):
    with pytest.raises(CleantailError, match=message):
        release(held.topic, partition, "ann", 1)
    assert states(held)[0] == STATE
    assert words(held) == []


def test_what_was_released_is_not_in_quarantine_for_the_next_who_asks(held):
    release(held.topic, 0, "ann", 1)
    with pytest.raises(CleantailError, match="partition 0 of topic orders is not blocked"):
        release(held.topic, 0, "bob", 2)


def test_a_topic_without_a_table_has_nothing_to_release(orders_table):
    orders_table.catalog.drop_table("cleantail.orders")
    with pytest.raises(CleantailError, match="topic orders has no table yet"):
        release(orders_table.topic, 0, "ann", 1)


def test_a_release_needs_no_right_to_create_namespaces(held, monkeypatch):
    def forbidden(*_):
        raise PermissionError("not allowed")

    monkeypatch.setattr(type(held.catalog), "create_namespace", forbidden)
    assert release(held.topic, 0, "ann", 1) == HELD


# ---- which quarantine the word is for


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(replace(HELD, since_ms=2, attempts=1), id="red again after a release"),
        pytest.param(replace(HELD, attempts=4), id="another attempt of the same"),
        pytest.param(replace(HELD, retry_at_ms=HELD.retry_at_ms + 1), id="a longer pause after a person's no"),
    ],
)
def test_an_earlier_release_does_not_end_a_later_quarantine(held, later):
    release(held.topic, 0, "ann", 1)
    write_states(held, p0=replace(STATE, quarantine=later))
    assert states(held)[0].quarantine == later
    assert release(held.topic, 0, "bob", 2) == later  # a second release is for the new one
    assert states(held)[0].quarantine is None
    assert words(held) == [("orders", 0)]


def test_what_else_changes_in_the_log_does_not_bring_the_quarantine_back(held):
    release(held.topic, 0, "ann", 1)
    write_states(held, p0=replace(STATE, checkpoint=6, log_end_offset=12))
    held.append((0, 9, 2, b"b", b"2"))
    assert states(held)[0] == replace(STATE, checkpoint=6, log_end_offset=12, quarantine=None)


def test_attempts_start_at_1_again_after_a_release(held):
    release(held.topic, 0, "ann", 1)
    red = after_failure(states(held)[0], "compact", ["expect_x"], NOW, 15_000).quarantine
    assert (red.since_ms, red.attempts) == (NOW, 1)


def test_a_release_for_a_dropped_table_does_not_apply_to_the_recreated_one(held):
    release(held.topic, 0, "ann", 1)
    schema, spec, properties = held.table.schema(), held.table.spec(), {"cleantail.topic": "orders"}
    held.catalog.drop_table("cleantail.orders")
    held.table = held.catalog.create_table("cleantail.orders", schema, partition_spec=spec, properties=properties)
    write_states(held.append((0, 0, 1, b"a", b"1")), p0=STATE)
    assert states(held)[0] == STATE


@pytest.fixture
def neighbours(held, project):
    """Topics whose names begin alike, or have dots and underscores, each with partition 0 and 1 in quarantine."""
    names = ["orders", "orders.0", "orders_0", "orders-0", "order"]
    found = {}
    for name in names:
        table = name.replace(".", "_x_").replace("-", "_y_")
        (project / "config" / "topics" / f"{name}.yaml").write_text(f"topic: {name}\ntable: cleantail.{table}\n")
        topic = find_topic(name, project / "config")
        made = held.catalog.create_table_if_not_exists(
            topic.table, held.table.schema(), partition_spec=held.table.spec()
        )
        with made.transaction() as transaction:
            transaction.set_properties(
                {"cleantail.topic": name} | {f"{PROPERTY_PARTITION}{p}": STATE.as_json() for p in (0, 1, 10)}
            )
        found[name] = topic
    return found


def test_topics_with_names_that_are_alike_do_not_meet(held, neighbours):
    for name, topic in neighbours.items():
        assert release(topic, 0, "ann", 1) == HELD
        still = {n: sorted(p for p, s in read_facts(t).states.items() if s.quarantine) for n, t in neighbours.items()}
        done = list(neighbours)[: list(neighbours).index(name) + 1]
        assert still == {n: [1, 10] if n in done else [0, 1, 10] for n in neighbours}
    assert release(neighbours["orders"], 1, "ann", 1) == HELD
    left = read_facts(neighbours["orders"]).states
    assert [p for p, state in left.items() if state.quarantine] == [10]


# ---- rounds at the same time


def test_a_release_that_met_a_round_starts_over_on_the_new_quarantine(held, monkeypatch, caplog):
    real, other = releases.write_release, replace(HELD, attempts=4)

    def late(*arguments):
        monkeypatch.setattr(releases, "write_release", real)
        write_states(held, p0=replace(STATE, checkpoint=6, quarantine=other))
        return real(*arguments)

    monkeypatch.setattr(releases, "write_release", late)
    assert release(held.topic, 0, "ann", 1) == other
    assert states(held)[0] == replace(STATE, checkpoint=6, quarantine=None)
    assert "release is tried again (1 of 5): cleantail.orders was changed meanwhile" in caplog.text


def test_rounds_that_always_come_first_are_a_conflict(held, monkeypatch):
    real, attempts, pauses = releases.write_release, iter(range(100)), []

    def late(*arguments):
        real(*arguments)
        write_states(held, p0=replace(STATE, quarantine=replace(HELD, attempts=10 + next(attempts))))

    monkeypatch.setattr(releases, "write_release", late)
    monkeypatch.setattr("tenacity.nap.time.sleep", pauses.append)
    with pytest.raises(OvertakenError, match="cleantail.orders was changed meanwhile"):
        release(held.topic, 0, "ann", 1)
    assert (next(attempts), len(pauses)) == (5, 4)
    assert sum(pauses) <= 1  # the user who releases it waits
    assert states(held)[0].quarantine


# ---- who sees it


def test_pages_and_metrics_see_a_release_at_once_though_they_keep_the_tables_metadata(held):
    cache, topics = MetadataCache(held.platform), [held.topic]

    def shown():
        facts = cache.with_namespaces(topics, cache.observe(topics, 20))["orders"].facts
        return quarantined(log_states(held.topic, facts, NOW))

    assert shown() == (0,)
    release(held.topic, 0, "ann", 1)
    assert shown() == ()
    write_states(held, p0=replace(STATE, quarantine=replace(HELD, attempts=4)))
    cache.forget(held.topic)
    assert shown() == (0,)


# ---- the word itself


def test_the_word_is_a_short_property_of_plain_text(held):
    release(held.topic, 0, "Zoë " + "é" * 2_000, 7)
    [(name, text)] = [
        item
        for item in held.catalog.load_namespace_properties("cleantail").items()
        if item[0].startswith(PROPERTY_RELEASED)
    ]
    assert len(name) == len(PROPERTY_RELEASED) + 32
    assert text.isascii() and len(text) < 1000  # what a SQL catalog has room for
    word = RELEASE_JSON.value(text, "x")
    assert (word.topic, word.partition, word.by, word.at_ms) == ("orders", 0, "Zoë " + "é" * 36, 7)


@pytest.mark.parametrize("text", ["none", "[1]", '{"topic": "orders", "partition": 0}'])
def test_an_unreadable_release_is_logged_and_ends_no_quarantine(held, caplog, text):
    release(held.topic, 0, "ann", 1)
    [name] = [n for n in held.catalog.load_namespace_properties("cleantail") if n.startswith(PROPERTY_RELEASED)]
    held.catalog.update_namespace_properties("cleantail", updates={name: text})
    assert states(held)[0] == STATE
    assert f"namespace property {name} cannot be read" in caplog.text
    assert "lifts no quarantine" in caplog.text


def test_the_other_properties_of_the_namespace_are_not_taken_for_releases(caplog):
    release_text = RELEASE_JSON.text(Release("orders", 0, "uuid", "ann", 1, 1, 3, 10**15))
    assert releases_in({"cleantail.reader.x": "{}", "owner": "ann", "copy": release_text}) == {}
    assert caplog.text == ""


def test_releases_without_effect_are_deleted_by_the_next_release(held):
    write_states(held, p1=STATE, p2=STATE)
    for partition in (0, 1):
        release(held.topic, partition, "ann", 1)
    assert words(held) == [("orders", 0), ("orders", 1)]
    write_states(held, p0=replace(STATE, quarantine=None))  # as a round leaves it
    release(held.topic, 2, "ann", 2)
    assert words(held) == [("orders", 1), ("orders", 2)]
    assert [p for p, state in states(held).items() if state.quarantine] == []


def test_a_round_deletes_the_releases_that_it_applied_and_no_newer_one(held):
    write_states(held, p1=STATE)
    for partition in (0, 1):
        release(held.topic, partition, "ann", 1)
    read = current_releases(open_catalog(held.platform), held.topic)
    write_states(held, p0=STATE, p1=replace(STATE, quarantine=replace(HELD, since_ms=5)))
    release(held.topic, 1, "bob", 2)
    forget_releases(held.topic, read.values())
    assert words(held) == [("orders", 1)]
    assert states(held)[0] == STATE  # the very same times, as a cleared task leaves them: the word is not for it
    assert states(held)[1].quarantine is None


def test_a_catalog_that_fails_after_the_commit_fails_no_round(held, monkeypatch, caplog):
    release(held.topic, 0, "ann", 1)
    caplog.clear()
    read = current_releases(open_catalog(held.platform), held.topic)

    def fail(*_):
        raise OSError("secret")

    monkeypatch.setattr("cleantail.lake.releases.open_catalog", fail)
    forget_releases(held.topic, [])  # nothing to ask the catalog for
    assert caplog.text == ""
    forget_releases(held.topic, read.values())
    assert "outdated releases of [0] were not removed" in caplog.text
    assert "secret" not in caplog.text


def test_a_release_applies_only_to_a_log_with_state_in_the_same_table():
    word = Release("orders", 7, "uuid", "ann", 1, 1, 3, 10**15)
    assert lifted({0: STATE}, {7: word}, "uuid") == {0: STATE}
    assert lifted({7: STATE}, {7: word}, "uuid") == {7: replace(STATE, quarantine=None)}
    assert lifted({7: STATE}, {7: word}, "another") == {7: STATE}

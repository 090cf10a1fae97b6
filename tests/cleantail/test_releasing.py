"""Release from quarantine: one property of the table changes, in one commit, also where the format is version 3."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from cleantail.errors import CleantailError, ConflictError, TableError
from cleantail.lake.runs import releasing
from cleantail.lake.table_properties import set_table_property, with_property
from cleantail.log.partition_state import PROPERTY_PARTITION, Horizon, PartitionState, Quarantine, states_of_properties

HELD = Quarantine(1, "compact", "check failed: expect_x", 3, 99)
STATE = PartitionState(checkpoint=5, log_end_offset=9, horizons=(Horizon(5, 7, 1),), quarantine=HELD)


@pytest.fixture
def held(orders_table):
    """The orders table, partition 0 in quarantine, partition 1 not."""
    orders_table.append((0, 0, 1, b"a", b"1"), (1, 0, 1, b"a", b"1"))
    states = {0: STATE, 1: PartitionState(checkpoint=1)}
    return orders_table.set_properties(**{f"{PROPERTY_PARTITION}{p}": s.as_json() for p, s in states.items()})


def states(table):
    return states_of_properties(table.catalog.load_table("cleantail.orders").properties, "orders")


def file_of(table):
    location = table.catalog.load_table("cleantail.orders").metadata_location
    return location, json.loads(Path(location.removeprefix("file:")).read_text())


def as_version_3(table):
    """The table's metadata as a writer of version 3 would have it, with a field that this PyIceberg does not know."""
    location, metadata = file_of(table)
    for snapshot in metadata["snapshots"]:
        snapshot |= {"first-row-id": 0, "added-rows": 2}
    metadata |= {"format-version": 3, "next-row-id": 2, "of-the-future": {"kept": True}}
    Path(location.removeprefix("file:")).write_text(json.dumps(metadata))
    return metadata


def test_a_released_log_keeps_all_of_its_state_but_the_quarantine(held, caplog):
    caplog.set_level(logging.INFO, "cleantail.release")
    assert releasing.release(held.topic, held.platform, 0, "ann", 1) == HELD
    assert states(held) == {0: replace(STATE, quarantine=None), 1: PartitionState(checkpoint=1)}
    assert "'ann' released partition 0 of orders from quarantine: check failed: expect_x, 3 attempts" in caplog.text


def test_metadata_of_version_3_changes_in_three_places_only(held):
    before = as_version_3(held)
    old_location, _ = file_of(held)
    releasing.release(held.topic, held.platform, 0, "ann", before["last-updated-ms"] + 5)
    location, after = file_of(held)
    assert {key for key in after if after[key] != before.get(key)} == {"properties", "last-updated-ms", "metadata-log"}
    assert set(after) == set(before)
    assert after["metadata-log"][-1] == {"timestamp-ms": before["last-updated-ms"], "metadata-file": old_location}
    assert location.rpartition("/")[2].startswith("00003-")


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        pytest.param(1, "partition 1 of topic orders is not in quarantine", id="not held"),
        pytest.param(7, "topic orders has no partition 7: it has 0, 1", id="unknown"),
    ],
)
def test_what_is_not_in_quarantine_is_not_released(held, partition, message):
    with pytest.raises(CleantailError, match=message):
        releasing.release(held.topic, held.platform, partition, "ann", 1)
    assert states(held)[0] == STATE


def test_a_topic_without_a_table_has_nothing_to_release(orders_table):
    orders_table.catalog.drop_table("cleantail.orders")
    with pytest.raises(CleantailError, match="topic orders has no table yet"):
        releasing.release(orders_table.topic, orders_table.platform, 0, "ann", 1)


def test_a_release_that_met_another_commit_starts_over_on_the_new_state(held, monkeypatch):
    real, other = releasing.set_table_property, replace(STATE, checkpoint=6)

    def late(*arguments):
        monkeypatch.setattr(releasing, "set_table_property", real)
        held.set_properties(**{f"{PROPERTY_PARTITION}0": other.as_json()})
        return real(*arguments)

    monkeypatch.setattr(releasing, "set_table_property", late)
    releasing.release(held.topic, held.platform, 0, "ann", 1)
    assert states(held)[0] == replace(other, quarantine=None)


def test_a_table_that_moved_on_is_not_written_and_leaves_no_file(held):
    stale = held.catalog.load_table("cleantail.orders")
    held.set_properties(other="x")
    location, _ = file_of(held)
    with pytest.raises(ConflictError, match="was changed meanwhile"):
        set_table_property(held.catalog, stale, "name", "value", 1)
    assert file_of(held)[0] == location
    assert len(list(Path(location.removeprefix("file:")).parent.glob("00003-*"))) == 1


def test_a_writer_that_always_comes_first_is_a_conflict(held, monkeypatch):
    def lose(*_):
        raise ConflictError("changed")

    monkeypatch.setattr(releasing, "set_table_property", lose)
    with pytest.raises(ConflictError, match="changed"):
        releasing.release(held.topic, held.platform, 0, "ann", 1)


def test_compressed_metadata_is_refused_rather_than_guessed_at(held):
    class Compressed:
        metadata_location = "file:/x/00001-a.gz.metadata.json"

    with pytest.raises(TableError, match="is compressed"):
        set_table_property(held.catalog, Compressed(), "name", "value", 1)


def test_the_metadata_log_keeps_as_many_as_the_table_says():
    log = [{"timestamp-ms": n, "metadata-file": f"f{n}"} for n in range(3)]
    metadata = {"last-updated-ms": 9, "metadata-log": log, "properties": {"write.metadata.previous-versions-max": "2"}}
    changed = with_property(metadata, "f3", "name", "value", 5)
    assert [entry["metadata-file"] for entry in changed["metadata-log"]] == ["f2", "f3"]
    assert changed["last-updated-ms"] == 9
    assert changed["properties"]["name"] == "value"
    assert "name" not in metadata["properties"]

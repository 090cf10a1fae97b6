"""Files that several logs share: a log's start, segments, retention and work go by the records that it lost itself."""

from __future__ import annotations

import pytest

from tests.jobs.conftest import settings
from tests.jobs.round.intake.test_adopt import HOUR, NOW

COLUMNS = "`partition` int, `offset` bigint, `timestamp` timestamp, key string, value string"
SELECT = ["p AS `partition`", "o AS `offset`", "timestamp_millis(ms) AS `timestamp`", "k AS key", "v AS value"]
WITH_DELETE = {"cleanup.policy": "compact,delete", "retention.ms": 24 * HOUR}


def at(hours):
    return NOW - int(hours * HOUR)


CROWD = [(0, n, at(1), "one", f"v{n}") for n in range(10)]
PRECIOUS = (1, 2, at(1), "precious", "kept")
HISTORY = [
    [(1, 0, at(20), "old", "a"), (1, 1, at(20), "old2", "b")],
    [*CROWD, PRECIOUS],
    [(1, 3, at(0.5), "new", "c"), (1, 4, at(0.5), "newer", "d")],
]
"""Partition 0 has ten records of one key in the file that has a record of partition 1 that is an hour old."""


@pytest.fixture
def shared(workshop, lake, spark):
    """Makes a table whose files have several logs, and its topic; gives a function that returns what readers see."""

    def make(name, groups, config, version=3, by="", before=()):
        table = lake(name, COLUMNS, groups, SELECT, by, f"'format-version'='{version}'" + MERGE_ON_READ)
        for statement in before:
            spark.sql(statement.format(f"cleantail.sinks.`{name}`"))
        workshop.ok("adopt", table, "--topic", name)
        settings(workshop, name, **config)
        return lambda partition: {r["key"]: r["offset"] for r in workshop.read(name) if r["partition"] == partition}

    return make


MERGE_ON_READ = ", 'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read'"
ALL_OF_PARTITION_1 = {"old": 0, "old2": 1, "precious": 2, "new": 3, "newer": 4}


@pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.deep), 3])
def test_retention_counts_a_record_of_a_file_in_which_a_round_hid_those_of_another_log(workshop, shared, version):
    name = f"shared-retention-{version}"
    seen = shared(name, HISTORY, WITH_DELETE, version)
    workshop.ok("compact", name, "--now", NOW, "--force")
    assert (seen(0), seen(1)) == ({"one": 9}, ALL_OF_PARTITION_1)
    # 6 hours later the records of 20 hours are past retention, and the one of one hour is not
    workshop.ok("compact", name, "--now", NOW + 6 * HOUR, "--force")
    assert seen(1) == {"precious": 2, "new": 3, "newer": 4}


# test_retention_counts_a_record_of_a_file_in_which_a_round_hid_... holds the rule; here another engine deleted them
@pytest.mark.deep
def test_a_record_of_a_file_in_which_another_engine_deleted_those_of_another_log_is_alive_on_adoption(workshop, shared):
    gone = "DELETE FROM {} WHERE `partition` = 0 AND `offset` < 9"
    config = {"cleanup.policy": "compact,delete", "retention.ms": -1}
    seen = shared("shared-adopted", HISTORY, config, before=[gone])
    logs = workshop.json("status", "shared-adopted", "--now", NOW)["topics"]["shared-adopted"]
    assert [(log["log_start_offset"], log["records"]) for log in logs] == [(0, 1), (0, 5)]
    workshop.ok("compact", "shared-adopted", "--now", NOW, "--force")
    assert seen(1) == ALL_OF_PARTITION_1


# test_retention_counts_a_record_of_a_file_in_which_a_round_hid_... holds the rule; here in the first file of a log
@pytest.mark.deep
def test_a_file_of_several_logs_lets_the_log_go_on_whose_first_file_it_is(workshop, shared):
    """The start of partition 1 is in a file of which partition 0 lost all: retention.ms -1 removes nothing of it."""
    gone = "DELETE FROM {} WHERE `partition` = 0"
    groups = [[*CROWD, (1, 0, at(1), "first", "a")], [(1, 1, at(0.5), "second", "b"), (0, 10, at(0.5), "z", "z")]]
    seen = shared("shared-first", groups, {"cleanup.policy": "compact,delete", "retention.ms": -1}, before=[gone])
    workshop.ok("compact", "shared-first", "--now", NOW, "--force")
    assert seen(1) == {"first": 0, "second": 1}


def test_a_log_of_files_in_which_others_lost_nearly_all_is_compacted_and_its_tombstone_goes(workshop, shared):
    groups = [[*CROWD, (1, 0, at(2), "k", "superseded")], [*((0, n, at(1), "one", "x") for n in range(10, 30)),
                                                           (1, 1, at(1), "k", None)]]  # fmt: skip
    gone = "DELETE FROM {} WHERE `partition` = 0"
    seen = shared("shared-empty", groups, {"cleanup.policy": "compact"}, before=[gone])
    planned = workshop.json("plan", "shared-empty", "--now", NOW)
    assert {row["partition"]: row["action"] for row in planned["partitions"]}[1] == "compact"
    workshop.ok("compact", "shared-empty", "--now", NOW)
    assert seen(1) == {"k": 1}
    workshop.ok("compact", "shared-empty", "--now", NOW + 5000)
    assert seen(1) == {}


def test_a_log_that_lost_all_its_records_in_shared_files_is_empty(workshop, shared):
    gone = "DELETE FROM {} WHERE `partition` = 1 AND `offset` < 3"
    shared("shared-gone", HISTORY, {"cleanup.policy": "compact"}, before=[gone])
    logs = workshop.json("status", "shared-gone", "--now", NOW)["topics"]["shared-gone"]
    assert [(log["log_start_offset"], log["records"]) for log in logs] == [(0, 10), (3, 2)]

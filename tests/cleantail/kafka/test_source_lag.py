"""How far a table is behind its brokers, and what is said of a read that would stop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleantail.codec import FORMAT
from cleantail.config.loading import load_topic
from cleantail.kafka.read_plan import BrokerTopic, LogLag, LogOffsets, source_lag
from cleantail.log.source_position import SourcePosition


@pytest.fixture
def topic(tmp_path):
    (tmp_path / "topics").mkdir()
    file = tmp_path / "topics" / "orders.yaml"

    def made(**source):
        file.write_text(f"topic: orders\nsource: {source | {'kafka': {}}}\n")
        return load_topic(file, tmp_path)

    return made


def broker(*logs, topic_id="id"):
    return BrokerTopic("c", "orders", topic_id, {p: LogOffsets(*log) for p, log in enumerate(logs)})


def position(*offsets):
    return SourcePosition("c", "orders", "id", dict(enumerate(offsets)), "read_committed", "r", 0, version=FORMAT)


def test_the_lag_goes_to_the_last_stable_offset_and_counts_an_added_partition(topic):
    lag = source_lag(topic(), position(3), {}, broker((0, 9, 12), (2, 6, 6)), 0)
    assert lag.logs == (LogLag(0, 3, 0, 9, 12, 6), LogLag(1, 2, 2, 6, 6, 4))
    assert lag.behind == 10


def test_with_uncommitted_records_it_goes_to_the_log_end(topic):
    assert source_lag(topic(isolation="read_uncommitted"), position(3), {}, broker((0, 9, 12)), 0).behind == 9


def test_a_table_that_is_ahead_of_the_last_stable_offset_is_not_behind(topic):
    assert source_lag(topic(), position(11), {}, broker((0, 9, 12)), 0).behind == 0


def test_before_the_first_read_files_count(topic):
    assert source_lag(topic(), None, {0: 4}, broker((0, 9, 9), (0, 2, 2)), 0).behind == 7


@pytest.mark.parametrize(
    ("at", "brokers", "says"),
    [
        (position(3), broker((0, 9, 9), topic_id="new"), "topic orders was recreated"),
        (position(3), broker((5, 9, 9)), "offsets 3 to 4 were deleted in Kafka"),
        (position(30), broker((0, 9, 9)), "partition 0 ends at offset 9, and the table has offsets up to 30"),
    ],
    ids=["made anew", "gap", "shorter"],
)
def test_the_lag_names_the_obstacle_to_a_read_without_claiming_that_nothing_was_appended(topic, at, brokers, says):
    problem = source_lag(topic(), at, {}, brokers, 0).problem
    assert says in problem and "nothing was appended" not in problem


@pytest.mark.parametrize(
    ("as_of_ms", "caught_up_ms", "since_ms"),
    [
        pytest.param({0: 70, 1: 50}, 0, 50, id="the log that waits longest"),
        pytest.param({0: 70, 1: 50}, 60, 60, id="a look that found nothing new"),
        pytest.param({0: 70, 1: 50, 2: 1}, 0, 50, id="a log with nothing unread does not count"),
        pytest.param({0: 70}, 0, None, id="unknown for a log"),
        pytest.param({0: 70, 1: 0}, 0, None, id="copied from files"),
        pytest.param({}, 60, 60, id="a look alone"),
    ],
)
def test_what_is_unread_came_after_the_table_had_all(topic, as_of_ms, caught_up_ms, since_ms):
    at = replace(position(3, 2, 4), as_of_ms=as_of_ms)
    lag = source_lag(topic(), at, {}, broker((0, 9, 9), (0, 6, 6), (0, 4, 4)), 0, caught_up_ms)
    assert (lag.behind, lag.unread_since_ms) == (10, since_ms)


def test_unread_since_ms_is_unknown_before_the_first_read(topic):
    assert source_lag(topic(), None, {0: 4}, broker((0, 9, 9)), 0, 60).unread_since_ms is None

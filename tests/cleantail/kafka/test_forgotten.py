"""When the brokers may have forgotten deletions before they were read: all of three conditions, each at its boundary."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleantail.codec import FORMAT
from cleantail.config.topic import Topic
from cleantail.kafka.read_plan import (
    CLEANING_MS,
    BrokerPolicy,
    LogRead,
    as_of,
    forgotten_by,
    hindrance_of,
    lowest_retention_ms,
    with_forgotten,
)
from cleantail.log.partition_state import PartitionState, Reconciled, parse_partition_state
from cleantail.log.source_position import HINDERED_REPORTED_MS, Forgotten, SourcePosition, parse_position

DAY_MS = 86_400_000
COMPACT = BrokerPolicy(frozenset({"compact"}), DAY_MS)
READ = LogRead(partition=0, start=10, end=20, records=9, as_of_ms=1_000)
FROM_KAFKA = {"source": {"kafka": {"bootstrap.servers": "kafka:9092"}}}
POSITION = SourcePosition("c", "orders", "id", {0: 20}, "read_committed", "r", 5, as_of_ms={0: 700}, version=FORMAT)
ENTRY = Forgotten(0, 10, 20, 1, DAY_MS, 9_000)


@pytest.mark.parametrize(
    ("read", "configs", "read_ms", "is_told"),
    [
        pytest.param(READ, COMPACT, 1_001 + DAY_MS, True, id="later than the retention, with a hole"),
        pytest.param(READ, COMPACT, 1_000 + DAY_MS, False, id="just as late as the retention"),
        pytest.param(replace(READ, records=10), COMPACT, 10 * DAY_MS, False, id="every offset has a record"),
        pytest.param(
            READ, replace(COMPACT, policy=frozenset({"delete"})), 10 * DAY_MS, False, id="nothing is compacted"
        ),
        pytest.param(
            READ, replace(COMPACT, policy=frozenset({"compact", "delete"})), 10 * DAY_MS, True, id="compacted as well"
        ),
    ],
)
def test_a_deletion_may_be_missing_where_the_read_was_late_over_a_part_with_holes(read, configs, read_ms, is_told):
    told = forgotten_by([read], configs, DAY_MS, read_ms, "")
    assert told == ((Forgotten(0, 10, 20, 1, DAY_MS, read_ms),) if is_told else ())


@pytest.mark.parametrize(
    ("position", "table_end", "caught_up_ms", "expected"),
    [
        pytest.param(POSITION, 0, 0, 700, id="the last read that came to the end"),
        pytest.param(POSITION, 0, 900, 900, id="a later look that found nothing"),
        pytest.param(replace(POSITION, as_of_ms={}), 0, 0, 0, id="nobody knows when"),
        pytest.param(None, 5, 0, 0, id="files came before"),
        pytest.param(None, 0, 0, 2 * DAY_MS - CLEANING_MS, id="nothing was read yet"),
        pytest.param(
            replace(POSITION, next_offsets={1: 3}), 0, 0, 2 * DAY_MS - CLEANING_MS, id="a partition was added"
        ),
    ],
)
def test_a_log_is_as_of_when_the_table_last_had_all_of_it_or_nothing(position, table_end, caught_up_ms, expected):
    position = replace(position, as_of_ms={}) if position and 0 not in position.next_offsets else position
    assert as_of(0, position, table_end, caught_up_ms, 2 * DAY_MS, DAY_MS) == expected
    assert as_of(9, None, 0, 0, 1_000, 600) == 700  # of a short retention half is allowed for a cleaning at most


def test_of_two_retentions_the_lower_counts():
    assert lowest_retention_ms(COMPACT, POSITION) == DAY_MS
    assert lowest_retention_ms(COMPACT, replace(POSITION, delete_retention_ms=7)) == 7


@pytest.mark.parametrize(
    ("strategy", "configs", "words"),
    [
        ("offset", COMPACT, ""),
        ("offset", None, "DescribeConfigs"),
        (
            "offset",
            BrokerPolicy(frozenset({"compact", "delete"}), 1),
            "has delete in its cleanup.policy (compact,delete)",
        ),
        ("timestamp", COMPACT, "compaction.strategy is timestamp"),
    ],
)
def test_what_is_gone_at_the_source_need_not_have_been_deleted(strategy, configs, words):
    topic = Topic.model_validate(
        {"topic": "orders", "table": "n.orders", "config": {"compaction.strategy": strategy}} | FROM_KAFKA
    )
    why = hindrance_of(topic, configs)
    assert words in why and bool(why) is bool(words)


def test_a_log_has_one_entry_until_a_reconciliation_has_seen_to_it():
    later = replace(ENTRY, from_offset=30, to_offset=50, holes=4, at_ms=9_500)
    assert with_forgotten([ENTRY], [later], {}) == (replace(later, from_offset=10, holes=5),)
    done = PartitionState(reconciled=Reconciled(20, 9_000))
    assert with_forgotten([ENTRY], [later], {0: done}) == (later,)
    assert with_forgotten([ENTRY], [], {0: done}) == (ENTRY,)  # the reconciliation may be undone
    assert replace(POSITION, forgotten=(ENTRY,)).forgotten_of(0, done, 0) is None
    for earlier in (Reconciled(19, 9_000), Reconciled(20, 8_999)):
        state = PartitionState(reconciled=earlier)
        assert replace(POSITION, forgotten=(ENTRY,)).forgotten_of(0, state, 0) == ENTRY


def test_forgotten_deletions_that_cannot_be_reconciled_are_reported_for_a_day():
    position = replace(POSITION, forgotten=(replace(ENTRY, hindrance="the policy deletes"),))
    assert position.forgotten_of(0, PartitionState(), ENTRY.at_ms + HINDERED_REPORTED_MS - 1) is not None
    assert position.forgotten_of(0, PartitionState(), ENTRY.at_ms + HINDERED_REPORTED_MS) is None


def test_position_and_state_keep_it_as_text():
    position = replace(POSITION, forgotten=(ENTRY,), delete_retention_ms=5)
    assert parse_position(position.as_json(), "t") == position
    state = PartitionState(reconciled=Reconciled(20, 9_000))
    assert parse_partition_state(state.as_json(), "t") == state
    assert "reconciled" not in PartitionState().as_json()

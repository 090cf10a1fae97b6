"""The memory budget of a round, by Kafka's own figures and cases (semantics.md 1.1, 1.4.1, cases 4 and 10)."""

import pytest

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.platform_configs import CleanerConfigs
from cleantail.log.task_shares import buffer_percent, keys_in_budget, map_slots, round_end

BY_OFFSET = KafkaConfigs()
VERSIONED = [
    KafkaConfigs(compaction_strategy="timestamp"),
    KafkaConfigs(compaction_strategy="header", compaction_strategy_header="v"),
]


def test_the_defaults_hold_as_many_keys_as_kafka_says():
    assert keys_in_budget(CleanerConfigs(), BY_OFFSET) == 5_033_164
    assert [keys_in_budget(CleanerConfigs(), configs) for configs in VERSIONED] == [3_774_873, 3_774_873]


def test_the_budget_is_shared_by_the_threads():
    shared = CleanerConfigs(log_cleaner_threads=4)
    assert keys_in_budget(shared, BY_OFFSET) == int(134_217_728 // 4 // 24 * 0.9)


@pytest.mark.parametrize(
    ("bytes_", "factor", "keys"),
    [(24, 1.0, 1), (47, 1.0, 1), (48, 1.0, 2), (48, 0.9, 1), (72, 0.9, 2), (240, 0.25, 2)],
)
def test_slots_and_keys_are_rounded_down(bytes_, factor, keys):
    small = CleanerConfigs(log_cleaner_dedupe_buffer_size=bytes_, log_cleaner_io_buffer_load_factor=factor)
    assert keys_in_budget(small, BY_OFFSET) == keys


@pytest.mark.parametrize(("keys", "percent"), [(0, 0), (1, 25), (4, 100), (5, 100)])
def test_a_map_is_full_by_its_slots_without_the_load_factor(keys, percent):
    small = CleanerConfigs(log_cleaner_dedupe_buffer_size=24 * 4 + 23, log_cleaner_io_buffer_load_factor=0.5)
    assert buffer_percent(keys, map_slots(small, BY_OFFSET)) == percent


def test_a_buffer_without_place_for_a_key_is_full_with_one():
    assert buffer_percent(1, map_slots(CleanerConfigs(log_cleaner_dedupe_buffer_size=1), BY_OFFSET)) == 100


@pytest.mark.parametrize("bytes_", [1, 23, 24, 26])
def test_a_round_always_makes_progress(bytes_):
    assert keys_in_budget(CleanerConfigs(log_cleaner_dedupe_buffer_size=bytes_), BY_OFFSET) == 1


@pytest.mark.parametrize(
    ("full_at", "last_keyed", "expected"),
    [
        pytest.param(None, 9, 10, id="the map never fills"),
        pytest.param(None, None, 10, id="no record has a key"),
        pytest.param(12, None, 10, id="none below the end has one, and the map fills above it"),
        pytest.param(3, 9, 4, id="full, and records follow"),
        pytest.param(8, 9, 9, id="full at the last but one"),
        pytest.param(9, 9, 10, id="full with the last record"),
        pytest.param(7, 7, 10, id="full with the last record, then a gap: the end jumps over it"),
    ],
)
def test_case_10_a_round_ends_behind_the_record_that_fills_the_map(full_at, last_keyed, expected):
    assert round_end(full_at, last_keyed, 10) == expected

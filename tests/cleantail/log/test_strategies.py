"""What a topic's strategy says of versions, whoever compares them (semantics.md 2)."""

import pyarrow as pa
import pytest

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.log.winners import latest_timestamp_ms, strategy_text, versions_of

NOW = 1_000_000
LONG_MAX = (1 << 63) - 1
OFFSET = KafkaConfigs()
STAMP = KafkaConfigs(compaction_strategy="timestamp")
LAST = KafkaConfigs(compaction_strategy="header", compaction_strategy_header="v")
FIRST = LAST.model_copy(update={"cleantail_header_occurrence": "first"})
HEADER_LIST = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def bounded(bound):
    return STAMP.model_copy(update={"message_timestamp_after_max_ms": bound})


@pytest.mark.parametrize(("bound", "expected"), [(0, NOW), (100, NOW + 100), (LONG_MAX, LONG_MAX)])
def test_the_bound_on_future_timestamps_does_not_overflow(bound, expected):
    assert latest_timestamp_ms(bounded(bound), NOW) == expected


def test_where_the_broker_s_clock_decided_no_timestamp_is_too_far_ahead():
    by_broker = bounded(100).model_copy(update={"message_timestamp_type": "LogAppendTime"})
    assert latest_timestamp_ms(by_broker, NOW) == LONG_MAX


@pytest.mark.parametrize("length", [0, 7, 9, 16])
def test_a_header_of_another_length_than_eight_bytes_is_no_version(length):
    found = versions_of(None, pa.array([[{"key": "v", "value": bytes(length)}]], HEADER_LIST), 1, LAST, NOW)
    assert (found.has.tolist(), found.unusable.tolist()) == ([False], [True])


@pytest.mark.parametrize(
    ("configs", "expected"),
    [(OFFSET, "offset"), (STAMP, "timestamp in microseconds"), (LAST, "header last v"), (FIRST, "header first v")],
)
def test_a_ledger_names_all_that_its_ranks_depend_on(configs, expected):
    assert strategy_text(configs) == expected

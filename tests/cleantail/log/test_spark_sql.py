"""The pieces of the ranking SQL that carry a rule (semantics.md 2). What Spark makes of it is tested in tests/jobs."""

import pytest

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.log.winners import (
    header_sql,
    latest_timestamp_sql,
    rank_sql,
    version_sql,
)

LONG_MAX = (1 << 63) - 1
OFFSET = KafkaConfigs()
STAMP = KafkaConfigs(compaction_strategy="timestamp")
LAST = KafkaConfigs(compaction_strategy="header", compaction_strategy_header="v")
FIRST = LAST.model_copy(update={"cleantail_header_occurrence": "first"})


def test_by_offset_nothing_but_the_offset_ranks():
    assert rank_sql(OFFSET, "9L") == "struct(`offset`)"


@pytest.mark.parametrize("configs", [STAMP, LAST])
def test_a_version_ranks_before_the_offset_and_a_missing_one_below_all(configs):
    version = version_sql(configs, "9L")
    fields = f"'has_version', ({version}) IS NOT NULL, 'version', coalesce({version}, 0L), 'offset', `offset`"
    assert rank_sql(configs, "9L") == f"named_struct({fields})"


def test_by_order_the_column_is_the_version():
    by_order = KafkaConfigs(compaction_strategy="order")
    assert version_sql(by_order, "9L") == "`order`"


def test_a_timestamp_is_a_version_up_to_the_bound_itself():
    assert version_sql(STAMP, "9L") == "CASE WHEN unix_millis(`timestamp`) <= 9L THEN unix_micros(`timestamp`) END"


@pytest.mark.parametrize(("configs", "position"), [(LAST, -1), (FIRST, 1)])
def test_of_repeated_headers_the_last_or_the_first_is_the_version(configs, position):
    """Positions of try_element_at: 1 is the first, -1 the last."""
    header = header_sql(configs)
    assert header == f"try_element_at(filter(`headers`, h -> h.key = decode(X'76', 'UTF-8')), {position})"
    assert version_sql(configs, "9L").startswith(f"CASE WHEN length({header}.value) = 8 THEN ")


def test_eight_bytes_are_a_signed_long():
    """From 2^63 on the unsigned number stands for itself less 2^64, so that 0x8000000000000000 is the lowest."""
    sql = version_sql(LAST, "9L")
    unsigned = f"CAST(conv(hex({header_sql(LAST)}.value), 16, 10) AS DECIMAL(20, 0))"
    wrapped = f"CASE WHEN {unsigned} >= 9223372036854775808BD THEN {unsigned} - 18446744073709551616BD"
    assert f"CAST({wrapped} ELSE {unsigned} END AS BIGINT)" in sql


def test_the_header_name_is_in_the_sql_as_digits_only():
    hostile = LAST.model_copy(update={"compaction_strategy_header": "x'); DROP TABLE t; --"})
    sql = rank_sql(hostile, "0L")
    assert "DROP" not in sql
    assert f"X'{b'x'.hex()}" in sql


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        pytest.param(100, "(unix_millis(current_timestamp()) + 100L)", id="the clock of the query"),
        pytest.param(LONG_MAX // 2, f"(unix_millis(current_timestamp()) + {LONG_MAX // 2}L)", id="the sum is a long"),
        pytest.param(LONG_MAX // 2 + 1, f"{LONG_MAX}L", id="the sum might not be: no bound"),
        pytest.param(LONG_MAX, f"{LONG_MAX}L", id="no bound"),
    ],
)
def test_the_bound_of_a_view_does_not_overflow(bound, expected):
    assert latest_timestamp_sql(bounded(bound)) == expected


def test_where_the_broker_s_clock_decided_no_timestamp_is_too_far_ahead():
    by_broker = bounded(100).model_copy(update={"message_timestamp_type": "LogAppendTime"})
    assert latest_timestamp_sql(by_broker) == f"{LONG_MAX}L"


def bounded(bound):
    return STAMP.model_copy(update={"message_timestamp_after_max_ms": bound})

"""Keys as bytes: what one column counts as, and that keys of several parts are equal only where their parts are."""

from __future__ import annotations

import datetime
import itertools
from decimal import Decimal

import pyarrow as pa
import pytest

from cleantail.lake.records.topic_columns import joined_parts, key_bytes, marked

AT = datetime.datetime(1970, 1, 1, 0, 0, 1, 5)


@pytest.mark.parametrize(
    ("array", "kind", "expected"),
    [
        pytest.param(pa.array([b"\x00", None]), "binary", [b"\x00", None], id="bytes"),
        pytest.param(pa.array(["ä", ""]), "string", ["ä".encode(), b""], id="text"),
        pytest.param(pa.array([-5, None], pa.int32()), "long", [b"-5", None], id="a number that was widened"),
        pytest.param(pa.array([True, False]), "boolean", [b"true", b"false"], id="truth value"),
        pytest.param(pa.array([datetime.date(2026, 1, 2)]), "date", [b"2026-01-02"], id="date"),
        pytest.param(pa.array([Decimal("1.50")], pa.decimal128(9, 2)), "decimal(9, 2)", [b"1.50"], id="decimal"),
        pytest.param(
            pa.array([Decimal("0.0000000001"), None], pa.decimal128(38, 10)),
            "decimal(38, 10)",
            [b"0.0000000001", None],
            id="decimal without an exponent",
        ),
        pytest.param(pa.array([AT, None], pa.timestamp("us")), "timestamp", [b"1000005", None], id="timestamp"),
        pytest.param(pa.array([AT], pa.timestamp("us", "UTC")), "timestamptz", [b"1000005"], id="timestamp in UTC"),
        pytest.param(pa.array([AT.replace(microsecond=5000)], pa.timestamp("ms")), "timestamp", [b"1005000"], id="ms"),
        pytest.param(pa.array([0.0, -0.0], pa.float64()), "double", [b"0", b"0"], id="one zero"),
        pytest.param(pa.array([0.5], pa.float32()), "double", [b"4602678819172646912"], id="a float that was widened"),
        pytest.param(pa.array([float("nan"), None]), "double", [b"9221120237041090560", None], id="one NaN"),
        pytest.param(
            pa.array([bytes(16)], pa.binary(16)), "uuid", [b"00000000-0000-0000-0000-000000000000"], id="UUID"
        ),
        pytest.param(pa.array([b"ab"], pa.binary(2)), "fixed[2]", [b"ab"], id="fixed"),
    ],
)
def test_a_column_counts_as_these_bytes(array, kind, expected):
    assert key_bytes(array, kind).to_pylist() == expected


def test_keys_of_several_parts_are_equal_only_where_their_parts_are():
    values = [None, b"", b"-", b"a", b":", b"1:a", b"--", b"0:", b"10:aaaaaaaaaa"]
    keys = list(itertools.product(values, repeat=3))
    made = joined_parts([pa.array(part, pa.binary()) for part in zip(*keys, strict=True)]).to_pylist()
    assert made[0] is None and None not in made[1:]
    assert len(set(made)) == len(keys)


def test_the_bytes_of_parts_stay_what_they_are():
    parts = [pa.array([b"eu", b"eu", None], pa.binary()), pa.array([b"7", None, None], pa.binary())]
    assert joined_parts(parts).to_pylist() == [b"2:eu1:7", b"2:eu-", None]


def test_a_delete_mark_is_compared_as_text_and_null_is_never_marked():
    assert marked(pa.array(["d", "c", None]), ("d",)).to_pylist() == [True, False, False]
    assert marked(pa.array([True, False, None]), ("true",)).to_pylist() == [True, False, False]
    assert marked(pa.array([1, 2, None], pa.int32()), ("1", "3")).to_pylist() == [True, False, False]

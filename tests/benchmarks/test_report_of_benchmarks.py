"""Medians, ratios and tables of the benchmarks: what a reader of the results relies on."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.harness.machine import ICEBERG, KAFKA, UNKNOWN, jar_version
from benchmarks.harness.report import Column, Table, Times, as_json, markdown, median, ratio, shown, write_results

TABLE = Table(
    "sample",
    "A sample",
    (Column("system", "text"), Column("warm, s"), Column("to the scan", "ratio")),
    (("ours | theirs", 1.234, 2.5), ("scan", 0.5, None)),
    ("a note",),
)


@pytest.mark.parametrize(
    ("seconds", "cold", "warm"),
    [
        pytest.param((9.0, 1.0, 3.0, 2.0), 9.0, 2.0, id="the first repetition is not in the median"),
        pytest.param((9.0, 1.0, 2.0), 9.0, 1.5, id="of an even number, the mean of the middle two"),
        pytest.param((9.0,), 9.0, 9.0, id="a single one is both"),
    ],
)
def test_cold_is_the_first_repetition_and_warm_the_median_of_the_others(
    seconds: tuple[float, ...], cold: float, warm: float
) -> None:
    assert (Times(seconds).cold, Times(seconds).warm) == (cold, warm)


def test_a_sum_of_times_is_taken_repetition_by_repetition() -> None:
    total = Times((5.0, 1.0, 9.0, 2.0)) + Times((5.0, 9.0, 1.0, 2.0))
    assert total.seconds == (10.0, 10.0, 10.0, 4.0)
    assert total.warm == 10.0  # the sum of the medians would be 4.0


def test_the_spread_is_of_the_warm_repetitions() -> None:
    assert Times((9.0, 3.0, 1.0, 2.0)).spread == "1.00 to 3.00"


def test_the_median_of_no_values_is_an_error() -> None:
    with pytest.raises(ValueError, match="no repetition"):
        median([])


def test_the_ratio_to_zero_is_none() -> None:
    assert ratio(3.0, 2.0) == 1.5
    assert ratio(3.0, 0.0) is None


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, "seconds", "-"),
        ("any", "text", "any"),
        (1.239, "seconds", "1.24"),
        (2.5, "ratio", "2.50x"),
        (0.00123, "percent", "0.123%"),
        (1_234_567, "count", "1,234,567"),
        (512, "bytes", "512 B"),
        (1 << 20, "bytes", "1.0 MiB"),
        (3 << 50, "bytes", "3072.0 TiB"),
        (1536, "rate", "1.5 KiB/s"),
    ],
)
def test_a_value_is_written_as_its_column_says(value: str | float | None, kind: str, text: str) -> None:
    assert shown(value, kind) == text


def test_a_page_has_the_table_its_notes_and_where_it_was_measured() -> None:
    assert markdown(TABLE, {"cores": "2", "Java": "17"}).splitlines() == [
        "# A sample",
        "",
        "| system | warm, s | to the scan |",
        "| --- | ---: | ---: |",
        r"| ours \| theirs | 1.23 | 2.50x |",
        "| scan | 0.50 | - |",
        "",
        "- a note",
        "",
        "Measured on:",
        "",
        "- cores: 2",
        "- Java: 17",
    ]


def test_the_data_has_values_as_measured_by_column() -> None:
    data = as_json(TABLE, {"cores": "2"})
    assert data["rows"][1] == {"system": "scan", "warm, s": 0.5, "to the scan": None}
    assert data["measured_on"] == {"cores": "2"}


def test_results_say_machine_and_versions_and_no_path_of_the_machine(tmp_path: Path) -> None:
    page, data = write_results(TABLE, tmp_path)
    on = json.loads(data.read_text())["measured_on"]
    assert {"cores", "processor", "memory", "system"} < on.keys()
    assert {"Python", "Java", "Spark", "Iceberg", "Kafka", "DuckDB", "Cleantail"} < on.keys()
    assert re.fullmatch(r"\d+ GiB", on["memory"])
    assert not re.search(r"/(work|home|root|tmp|usr)\b", page.read_text() + data.read_text())


def test_a_jar_tells_its_version(tmp_path: Path) -> None:
    for name in ("org.apache.iceberg_iceberg-spark-runtime-4.1_2.13-1.11.0.jar", "kafka_2.13-4.3.1.jar"):
        (tmp_path / name).touch()
    assert (jar_version(tmp_path, ICEBERG), jar_version(tmp_path, KAFKA)) == ("1.11.0", "4.3.1")
    assert jar_version(tmp_path / "none", KAFKA) == UNKNOWN

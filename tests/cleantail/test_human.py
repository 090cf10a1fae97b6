"""Numbers as people read them."""

import re
from pathlib import Path

import pytest

from cleantail.human import AsWritten, ago, be, counted, duration, instant, readable_reason, setting, size, until

ROOT = Path(__file__).resolve().parents[2]

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0 ms"), (999, "999 ms"), (1000, "1 s"), (90_000, "1.5 min"), (HOUR_MS, "1 h"), (60 * HOUR_MS, "2.5 d")],
)
def test_a_duration_has_the_largest_unit_that_is_not_below_one(milliseconds, text):
    assert duration(milliseconds) == text


@pytest.mark.parametrize(
    ("at_ms", "text"), [(0, "1 h ago"), (HOUR_MS, "now"), (HOUR_MS - 999, "now"), (3 * HOUR_MS, "in 2 h")]
)
def test_a_moment_is_seen_from_now(at_ms, text):
    assert ago(at_ms, HOUR_MS) == text


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("overdue by 7200000 ms: max.compaction.lag.ms is 86400000", "overdue by 2 h: max.compaction.lag.ms is 1d"),
        ("quarantined until 0 ms: check failed: x", "quarantined until 1970-01-01 00:00:00 UTC: check failed: x"),
        ("no tombstone is due before 3600000 ms", "no tombstone is due before 1970-01-01 01:00:00 UTC"),
        ("clean up to the log end 123456", "clean up to the log end 123456"),
        ("dirty ratio 0.5000 is above 0.3", "dirty ratio 0.5000 is above 0.3"),
    ],
)
def test_a_reason_is_told_without_milliseconds_and_offsets_stay(reason, text):
    assert readable_reason(reason) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1_023, "1023 B"),
        (1_024, "1.0 KiB"),
        (1_536, "1.5 KiB"),
        (1 << 20, "1.0 MiB"),
        (1 << 30, "1.0 GiB"),
        (1 << 40, "1024.0 GiB"),
    ],
)
def test_sizes_are_written_as_people_write_them(count, text):
    assert size(count) == text


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [
        (0, "1970-01-01 00:00:00"),
        (1_767_225_600_999, "2026-01-01 00:00:00"),
        ((1 << 63) - 1, "the year 292278994 (9223372036854775807 ms since 1970)"),
        (1_755_933_141_855_875, "the year 57613 (1755933141855875 ms since 1970)"),
        (-70_000_000_000_000, "the year -249 (-70000000000000 ms since 1970)"),
    ],
)
def test_instants_are_utc_or_have_at_least_a_year(at_ms, text):
    assert instant(at_ms) == text


@pytest.mark.parametrize(
    ("count", "words", "text"),
    [
        (0, ("record",), "0 records"),
        (1, ("record",), "1 record"),
        (2, ("record",), "2 records"),
        (1, ("try", "tries"), "1 try"),
        (3, ("try", "tries"), "3 tries"),
        (1, ("topic file",), "1 topic file"),
    ],
)
def test_a_number_has_its_noun_in_the_right_form(count, words, text):
    assert counted(count, *words) == text
    assert be(count) == ("is" if count == 1 else "are")


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (604_800_000, "7d"),
        (5_400_000, "1.5h"),
        (100_000, "100s"),
        (1_500, "1.5s"),
        (1_234, "1234ms"),
        (0, "0ms"),
        (2**63 - 1, "unlimited"),
        (AsWritten(172_800_000, "48h"), "48h"),
    ],
)
def test_a_setting_is_told_without_rounding(milliseconds, text):
    assert setting("segment.ms", milliseconds) == f"segment.ms {text}"


def test_a_time_that_no_calendar_has_is_for_ever():
    assert until(0) == "until 1970-01-01 00:00:00 UTC"
    assert until(2**63 - 1) == "for ever"


def test_no_text_of_the_code_has_a_number_before_a_fixed_plural():
    """`1 records`: such texts go through `counted`."""
    nouns = "records|tombstones|partitions|files|snapshots|attempts|rounds|commits|keys|logs|copies|topics|rewrites"
    fixed = re.compile(rf"(?<!\bof )\{{(?!.*counted)[^{{}}]*\}} (more )?({nouns}|branches|segments|reasons|lines)\b")
    for folder in ("cleantail", "spark_jobs", "plugins"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            lines = enumerate(file.read_text().splitlines(), 1)
            wrong = [f"{file.name}:{n}: {line.strip()}" for n, line in lines if fixed.search(line)]
            assert wrong == []

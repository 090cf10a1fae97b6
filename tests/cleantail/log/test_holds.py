"""What registered readers hold, in numbers and in words (semantics.md 3.9)."""

from dataclasses import replace

import pytest

from cleantail.human import LAST_MOMENT_MS
from cleantail.log.horizons import Reader, ReaderHold, hold_lines, resolve_holds, slowest, waiting_text
from cleantail.log.partition_state import Horizon
from tests.cleantail.kernel_builders import configs, log_state

CAP_MS = 1_000
NOW_MS = 5_000
LEDGER = (Horizon(10, 4_500, 3), Horizon(20, 4_800, 2), Horizon(30, 6_000, 5))
"""Two entries past their horizon, one to come."""


def holds_of(*readers, now_ms=NOW_MS, horizons=LEDGER, cap_ms=CAP_MS, **changes):
    log = log_state(horizons=horizons, log_end_offset=40)
    registered = [Reader("orders", name, partition, offset, 7) for name, partition, offset in readers]
    return resolve_holds([log], registered, configs(cleantail_readers_hold_cap_ms=cap_ms, **changes), now_ms)


@pytest.mark.parametrize(
    ("offset", "tombstones", "at_most", "until_ms"),
    [
        pytest.param(0, 5, False, 5_800, id="all that is past its horizon"),
        pytest.param(4, 5, True, 5_800, id="an entry in part counts whole"),
        pytest.param(10, 2, False, 5_800, id="from its position on"),
        pytest.param(20, 0, False, None, id="what it has read does not wait"),
        pytest.param(99, 0, False, None, id="a position beyond the end holds nothing"),
    ],
)
def test_a_reader_holds_what_is_past_its_horizon_and_not_read(offset, tombstones, at_most, until_ms):
    (hold,) = holds_of(("a", 0, offset))
    assert (hold.tombstones, hold.at_most, hold.until_ms) == (tombstones, at_most, until_ms)
    assert (hold.name, hold.partition, hold.offset, hold.at_ms) == ("a", 0, offset, 7)
    assert hold.behind == max(40 - offset, 0)


def test_an_entry_is_held_from_its_horizon_on():
    assert [(h.tombstones, h.until_ms) for h in holds_of(("a", 0, 0), now_ms=4_499)] == [(0, None)]
    assert [(h.tombstones, h.until_ms) for h in holds_of(("a", 0, 0), now_ms=4_500)] == [(3, 5_500)]


def test_the_cap_lets_an_entry_go_when_its_time_has_come():
    assert [h.tombstones for h in holds_of(("a", 0, 0), now_ms=5_499)] == [5]
    assert [h.tombstones for h in holds_of(("a", 0, 0), now_ms=5_500)] == [2]
    assert [h.tombstones for h in holds_of(("a", 0, 0), now_ms=5_800)] == [0]


def test_what_a_sweep_has_taken_up_to_the_reader_makes_the_count_exact():
    (hold,) = holds_of(("a", 0, 4), horizons=(Horizon(10, 4_500, 3, swept_to=4),))
    assert (hold.tombstones, hold.at_most) == (3, False)


def test_without_compact_in_the_policy_no_tombstone_waits():
    (hold,) = holds_of(("a", 0, 0), cleanup_policy="delete")
    assert (hold.tombstones, hold.until_ms) == (0, None)


def test_readers_of_other_logs_are_not_among_them():
    assert holds_of(("a", 3, 0)) == ()


def test_the_slowest_reader_of_a_log_is_chosen_only_if_a_tombstone_waits():
    found = holds_of(("fast", 0, 10), ("slow", 0, 0), ("as slow", 0, 0))
    assert [h.name for h in slowest(found)] == ["slow"]
    assert slowest(holds_of(("a", 0, 20))) == []


ONE = ReaderHold("idx", 0, 3, 7, 37, 1, False, 86_400_000)


@pytest.mark.parametrize(
    ("holds", "text"),
    [
        pytest.param([], "", id="nobody"),
        pytest.param(
            [ONE],
            "1 tombstone past its horizon waits for reader idx (at offset 3 of partition 0) "
            "until 1970-01-02 00:00:00 UTC",
            id="one",
        ),
        pytest.param(
            [replace(ONE, tombstones=3, at_most=True), replace(ONE, name="b", partition=1, until_ms=0)],
            "up to 4 tombstones past their horizon wait for readers idx (at offset 3 of partition 0) and "
            "b (at offset 3 of partition 1) until 1970-01-02 00:00:00 UTC at the latest",
            id="two logs",
        ),
        pytest.param(
            [replace(ONE, name=name) for name in "abcde"],
            "5 tombstones past their horizon wait for readers a (at offset 3 of partition 0), b (at offset 3 of "
            "partition 0), c (at offset 3 of partition 0) and 2 more until 1970-01-02 00:00:00 UTC at the latest",
            id="many",
        ),
        pytest.param(
            [replace(ONE, until_ms=1 << 62)],
            "1 tombstone past its horizon waits for reader idx (at offset 3 of partition 0), however long that takes "
            "(cleantail.readers.hold.cap.ms)",
            id="a cap beyond every calendar",
        ),
    ],
)
def test_what_waits_is_said_with_the_reader_its_position_and_the_end(holds, text):
    assert waiting_text(holds) == text


@pytest.mark.parametrize(
    ("hold", "text"),
    [(ONE, "1 more waits for reader"), (replace(ONE, tombstones=2, at_most=True), "up to 2 of them wait for reader")],
)
def test_waiting_tombstones_are_described_shortly_if_others_are_due(hold, text):
    assert waiting_text([hold], and_due=True).startswith(text)


@pytest.mark.parametrize(
    ("tombstones", "at_most", "until_ms", "says"),
    [
        pytest.param(0, False, None, "blocks nothing", id="none"),
        pytest.param(1, False, 10_000, "blocks 1 tombstone until 1970-01-01 00:00:10 UTC", id="one"),
        pytest.param(2, True, None, "blocks up to 2 tombstones", id="some, for ever"),
    ],
)
def test_a_line_says_what_a_reader_blocks_and_until_when(tombstones, at_most, until_ms, says):
    [line] = hold_lines([ReaderHold("idx", 0, 3, 7, 30, tombstones, at_most, until_ms)])
    assert line == f"reader idx: next offset 3 of partition 0, behind by 30; {says}"


def test_of_several_holds_the_latest_end_is_named_and_no_more_readers_than_there_are():
    holds = [
        ReaderHold(name, 0, 0, 7, 30, 1, False, until_ms) for name, until_ms in (("a", 1), ("b", 20_000), ("c", 2))
    ]
    text = waiting_text(holds)
    assert text.endswith("until 1970-01-01 00:00:20 UTC at the latest") and "more" not in text


def test_the_last_moment_of_the_calendar_is_still_named():
    assert ReaderHold("a", 0, 0, 7, 30, 1, False, LAST_MOMENT_MS).until_text
    assert not ReaderHold("a", 0, 0, 7, 30, 1, False, LAST_MOMENT_MS + 1).until_text


def test_a_ledger_entry_without_live_tombstones_holds_nothing():
    [hold] = holds_of(("a", 0, 0), horizons=(Horizon(10, 4_500, 0),))
    assert (hold.tombstones, hold.until_ms) == (0, None)

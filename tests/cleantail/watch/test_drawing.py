"""Logs as shapes."""

import pytest

from cleantail.watch.charts import SLIVER, log_bar
from tests.cleantail.kernel_builders import log_state, segment


def spans(log):
    return [(s.kind, s.start, s.end, s.bytes) for s in log_bar(log, 300).sections]


def test_a_log_is_drawn_by_its_sections_from_start_to_end():
    assert spans(log_state()) == [("clean", 0, 10, 100), ("cleanable", 10, 20, 100), ("active", 20, 30, 100)]
    assert [(s.x, s.width) for s in log_bar(log_state(), 300).sections] == [(0, 100), (100, 100), (200, 100)]
    assert log_bar(log_state(), 300).marks == (100, 200)


def test_what_waits_for_its_lag_lies_between_cleanable_and_active():
    log = log_state(first_uncleanable_offset=15, uncleanable_bytes=150)
    assert spans(log)[2:] == [("uncleanable", 15, 20, 50), ("active", 20, 30, 100)]


def test_a_log_without_an_active_segment_ends_uncleanable():
    assert spans(log_state(active_base_offset=None))[-1] == ("uncleanable", 20, 30, 100)


def test_a_log_that_was_cleaned_into_its_active_segment_has_no_section_twice():
    log = log_state(first_dirty_offset=25, first_uncleanable_offset=25)
    assert [(kind, start, end) for kind, start, end, _ in spans(log)] == [("clean", 0, 25), ("active", 25, 30)]


def test_an_empty_log_has_no_sections():
    log = log_state(log_end_offset=0, first_dirty_offset=0, first_uncleanable_offset=0, active_base_offset=None)
    assert log_bar(log, 300).sections == ()


def test_a_thin_section_can_still_be_pointed_at_and_the_bar_keeps_its_width():
    log = log_state(log_end_offset=100_000, segments=(segment(0, 10), segment(10, 20), segment(20, 100_000)))
    widths = [s.width for s in log_bar(log, 300).sections]
    assert min(widths) >= SLIVER
    assert sum(widths) == pytest.approx(300)

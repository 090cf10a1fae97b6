"""Sizes over time and bytes saved, from the summaries of snapshots."""

import pytest

from cleantail.rounds.commit_summaries import Saved, SizePoint, last_round_at_ms, saved, size_point
from tests.cleantail.kernel_builders import data_file


def test_live_bytes_are_file_bytes_by_the_share_of_records_that_is_not_deleted():
    summary = {"total-files-size": "1000", "total-records": "10", "total-position-deletes": "4"}
    point = size_point(7, "overwrite", summary | {"cleantail.operation": "compact"})
    assert (point.at_ms, point.operation, point.file_bytes, point.live_bytes) == (7, "compact", 1000, 600)


@pytest.mark.parametrize("summary", [{}, {"total-files-size": "", "total-records": "x", "added-files-size": "-1"}])
def test_a_summary_without_sizes_counts_as_0_bytes(summary):
    point = size_point(0, "append", summary)
    assert (point.file_bytes, point.live_bytes, point.reclaimed_bytes) == (0, 0, 0)


@pytest.mark.parametrize(
    ("operation", "reclaimed"),
    [pytest.param("replace", 700, id="a rewrite"), pytest.param("delete", 0, id="a removal of records")],
)
def test_only_rewrites_reclaim(operation, reclaimed):
    summary = {"removed-files-size": "900", "added-files-size": "200"}
    assert size_point(0, operation, summary).reclaimed_bytes == reclaimed


def test_files_that_are_registered_once_again_free_no_byte():
    summary = {"removed-files-size": "900", "added-files-size": "200", "cleantail.operation": "registered once"}
    assert size_point(0, "replace", summary).reclaimed_bytes == 0


def test_saved_is_what_is_hidden_and_what_was_given_back():
    files = [data_file(0, 9, deleted_records=4), data_file(10, 19)]
    points = [size_point(0, "replace", {"removed-files-size": "30"})]
    assert saved(files, points) == Saved(hidden_bytes=40, reclaimed_bytes=30)


def test_the_last_round_is_by_the_wall_clock_of_its_commit():
    points = [SizePoint(at, operation, 1, 1, 0) for at, operation in ((5, "compact"), (7, "expire"), (9, "append"))]
    assert last_round_at_ms(points) == 7
    assert last_round_at_ms(points[2:]) is None

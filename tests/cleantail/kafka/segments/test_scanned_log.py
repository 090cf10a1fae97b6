from pathlib import Path

import pytest

from cleantail.errors import SegmentError
from cleantail.kafka.segment_files import (
    LogFolder,
    SegmentFile,
    SegmentScan,
    find_logs,
    scan_requests,
    scan_segment,
    scanned_log,
    settled,
    without_overlaps,
)
from tests.segment_builders import batch, emptied, segment


def scan(base, end, epoch=0, first=None, cleaned_to=0, ended=(), begun=(), has_more=False, name=""):
    file = SegmentFile(Path(name or f"{base}.log"), base, 1000, 0, base)
    first = base if first is None else first
    return SegmentScan(file, first, end, 900, has_more, epoch, cleaned_to, frozenset(ended), dict(begun))


def log_of(scans, **more):
    return LogFolder(3, Path("t-3"), "", tuple(s.file for s in scans), **more)


def offsets(*scans, **more):
    found = scanned_log(log_of(scans, **more), scans).offsets
    return (found.start, found.last_stable, found.end)


def spans(*scans):
    return [(s.file.base_offset, to) for s, to in without_overlaps(scans)]


# ---- overlaps


def test_segments_one_after_the_other_are_read_whole():
    assert spans(scan(0, 10), scan(10, 20), scan(20, 20)) == [(0, 10), (10, 20), (20, 20)]


def test_of_two_files_of_one_epoch_the_one_that_goes_further_is_read():
    assert spans(scan(0, 10), scan(0, 15, name="again")) == [(0, 15)]
    assert spans(scan(0, 10), scan(0, 10, name="again")) == [(0, 10)]
    assert spans(scan(0, 30), scan(10, 20)) == [(0, 30)]
    assert spans(scan(0, 20), scan(10, 30)) == [(0, 10), (10, 30)]


def test_where_a_later_leader_began_the_file_of_the_earlier_one_ends():
    assert spans(scan(0, 100, epoch=0), scan(40, 90, epoch=1)) == [(0, 40), (40, 90)]
    assert spans(scan(0, 50), scan(20, 200, epoch=1), scan(40, 120)) == [(0, 20), (20, 200)]
    assert spans(scan(0, 60, epoch=2), scan(50, 90, epoch=1)) == [(0, 60)]


def test_a_file_that_is_read_in_part_is_scanned_again_as_far_as_that():
    asked = []

    def again(requests):
        asked.extend((r.file.base_offset, r.end) for r in requests)
        return [scan(0, 40, name="0-a.log")]

    first, second = scan(0, 100, begun={5: 60}, name="0-a.log"), scan(40, 90, epoch=1, name="40-b.log")
    assert [s.end_offset for s in settled([second, first], again)] == [40, 90]
    assert asked == [(0, 40)]


def test_a_brokers_own_files_and_those_with_gaps_never_overlap_but_by_damage():
    for whole in (scan(0, 1000), scan(0, 1000, cleaned_to=1000, name="0-a.log")):
        files = [whole, scan(10, 20, name="10-b.log")]
        with pytest.raises(SegmentError, match=r"its batches go to offset 999, and 10-b\.log begins at 10"):
            offsets(*settled(files, lambda _: []))


# ---- what is missing


def test_a_missing_segment_is_told_with_the_file_behind_it():
    with pytest.raises(
        SegmentError, match=r"20\.log, byte 0: offsets 10 to 19 are missing before it.*nothing was appended"
    ):
        offsets(scan(0, 10), scan(20, 30))


def test_what_the_cleaner_took_out_is_not_missing():
    assert offsets(scan(0, 10), scan(20, 30), clean_point=20) == (0, 30, 30)
    assert offsets(scan(0, 10, cleaned_to=4), scan(20, 30)) == (0, 30, 30)
    assert offsets(scan(0, 10), scan(20, 30), scan(30, 50, cleaned_to=40)) == (0, 50, 50)
    with pytest.raises(SegmentError, match="offsets 10 to 19 are missing"):
        offsets(scan(0, 10), scan(20, 30), clean_point=19)
    with pytest.raises(SegmentError, match="offsets 30 to 39 are missing"):
        offsets(scan(0, 10, cleaned_to=4), scan(20, 30), scan(40, 50))


GAPS = {
    "a batch cut out of the middle": [[batch(0), batch(2)]],
    "the first batch of the log cut out": [[batch(1), batch(2)]],
    "several single records cut out of the last segment": [[batch(0)], [batch(1), batch(5), batch(6)]],
    "a segment between two that have gaps": [[batch(0), batch(2)], [], [batch(9), batch(12)]],
    "behind a batch that was cleaned": [[emptied(batch(0, [(b"a", b"")] * 4)), batch(4), batch(7)]],
}
"""Segments of a log whose base offsets are those of what lies before them."""


def read_log(directory, segments, checkpoint=None):
    offset = 0
    for batches in segments:
        segment(directory / "t-0", offset, *batches)
        offset = 1 + max([offset - 1, *(int.from_bytes(b[:8], "big") + max(b[26], 0) for b in batches)])
    if checkpoint is not None:
        (directory / "cleaner-offset-checkpoint").write_text(checkpoint)
    [log] = find_logs(directory, "t").logs
    return scanned_log(log, settled([scan_segment(r, 1 << 20) for r in scan_requests(log)], lambda _: []))


@pytest.mark.parametrize("checkpoint", ["", "0\n1\nother 0 99\n", "0\n1\nt 1 99\n", "0\n1\nt 0 0\n"])
@pytest.mark.parametrize("segments", [pytest.param(gap, id=name) for name, gap in GAPS.items()])
def test_a_gap_above_the_clean_point_is_damage_where_the_brokers_checkpoint_is_there(tmp_path, segments, checkpoint):
    """Also a log that the checkpoint does not name: its cleaner was never there."""
    with pytest.raises(
        SegmentError, match=r"t-0/0+\d\.log, byte \d+: offsets \d+ to \d+ are missing .*has reached offset 0"
    ):
        read_log(tmp_path, segments, checkpoint)


@pytest.mark.parametrize("segments", [pytest.param(gap, id=name) for name, gap in GAPS.items() if "two" not in name])
def test_a_gap_that_the_clean_point_covers_or_no_checkpoint_speaks_of_is_the_cleaners(tmp_path, segments):
    end = read_log(tmp_path, segments).offsets.end
    assert read_log(tmp_path, segments, f"0\n1\nt 0 {end}\n").warnings == ()


def test_the_gap_is_named_by_offsets_and_byte_and_a_clean_point_one_lower_does_not_cover_it(tmp_path):
    at = len(batch(0))
    with pytest.raises(
        SegmentError, match=rf"0\.log, byte {at}: offsets 1 to 4 are missing before it: batches were cut"
    ):
        read_log(tmp_path, [[batch(0), batch(5)]], "0\n1\nt 0 4\n")


def test_a_batch_that_a_cleaner_wrote_proves_the_gaps_before_it_and_they_are_named(tmp_path):
    """A replica is copied from a leader whose cleaner has been further than its own."""
    cleaned = emptied(batch(5, [(b"a", b"")] * 4))
    found = read_log(tmp_path, [[batch(0), batch(3)], [cleaned, batch(9)]], "0\n1\nt 0 2\n")
    assert found.offsets.end == 10
    assert found.warnings == (
        "partition 0: batches up to offset 9 were cleaned, but the broker's cleaner-offset-checkpoint has 2: another "
        "broker cleaned them, or this one is cleaning them now. Missing offsets from 2 to 8 count as cleaned",
    )


def test_a_segment_whose_batches_reach_into_the_next_one_is_damaged():
    with pytest.raises(SegmentError, match=r"0\.log: its batches go to offset 10, and 10\.log begins at 10"):
        offsets(scan(0, 11), scan(10, 20))


def test_a_leader_epoch_that_goes_back_from_one_file_to_the_next_is_damage():
    with pytest.raises(SegmentError, match=r"10\.log, byte 0: leader epoch 3 after 4 in 0\.log"):
        offsets(scan(0, 10, epoch=4), scan(10, 20, epoch=3))
    assert offsets(scan(0, 10, epoch=4), scan(10, 10, epoch=-1)) == (0, 10, 10)


def test_a_log_that_ends_before_the_high_watermark_is_cut_off():
    assert offsets(scan(0, 10), scan(10, 20), high_watermark=20) == (0, 20, 20)
    with pytest.raises(SegmentError, match=r"10\.log, byte 900: the log ends at offset 19 here.*high watermark is 20"):
        offsets(scan(0, 10), scan(10, 19), high_watermark=20)


# ---- bounds


def test_the_high_watermark_is_the_end_and_what_lies_beyond_it_is_told():
    scans = (scan(0, 10), scan(10, 12, has_more=True))
    found = scanned_log(log_of(scans, high_watermark=12), scans)
    assert found.offsets.end == 12
    assert found.warnings == (
        "partition 3: 10.log continues beyond offset 12, the broker's high watermark in its checkpoint: records beyond "
        "it may not be replicated and were not read",
    )


def test_only_files_that_begin_below_the_high_watermark_are_scanned_and_the_last_is_the_active_one():
    log = log_of((scan(5, 10), scan(10, 20), scan(20, 30)), high_watermark=10)
    assert [(r.file.base_offset, r.is_active, r.end) for r in scan_requests(log)] == [(5, False, 10), (10, False, 10)]
    log = log_of((scan(5, 10), scan(10, 20)))
    assert [(r.file.base_offset, r.is_active, r.end) for r in scan_requests(log)] == [
        (5, False, None),
        (10, True, None),
    ]
    log = log_of((scan(5, 10), scan(10, 20)), high_watermark=2)
    assert [r.file.base_offset for r in scan_requests(log)] == [5]
    assert offsets(scan(5, 5), high_watermark=2) == (5, 5, 5)


def test_a_log_starts_where_its_broker_says_records_were_deleted():
    assert offsets(scan(5, 10), log_start=7) == (7, 10, 10)
    assert offsets(scan(5, 10), log_start=2) == (5, 10, 10)


def test_the_first_transaction_without_a_marker_is_the_last_stable_offset():
    assert offsets(scan(0, 10, begun={1: 4, 2: 6}), scan(10, 20, ended={1})) == (0, 6, 20)
    assert offsets(scan(0, 10, begun={1: 4}), scan(10, 20, ended={1}, begun={1: 15})) == (0, 15, 20)
    assert offsets(scan(0, 10, begun={1: 4}), scan(10, 20, begun={1: 12})) == (0, 4, 20)
    scans = (scan(0, 10, begun={1: 4}), scan(10, 20))
    assert scanned_log(log_of(scans), scans).warnings == (
        "partition 3: a transaction that began at offset 4 has no end in these segments: later records were not read",
    )

import pytest

from cleantail.errors import CleantailError, SegmentError
from cleantail.kafka.segment_files import ScanRequest, find_logs, scan_segment
from tests.segment_builders import ABORT, COMMIT, batch, emptied, marker, segment, transactional

LIMIT = 1 << 20


@pytest.fixture
def scan(tmp_path):
    """Scans a segment of these batches with the base offset 10."""

    def scanned(*batches, active=False, end=None):
        segment(tmp_path / "t-0", 10, *batches)
        [log] = find_logs(tmp_path, "t").logs
        return scan_segment(ScanRequest(log.segments[0], active, end), LIMIT)

    return scanned


def test_a_segment_says_its_offsets_and_how_far_its_batches_go(scan):
    batches = [batch(10, [(b"a", b"1"), (b"b", b"2")]), batch(12, epoch=3)]
    done = scan(*batches)
    assert (done.first_offset, done.end_offset, done.last_epoch, done.cleaned_to) == (10, 13, 3, 0)
    assert (done.end_bytes, done.has_more) == (len(b"".join(batches)), False)


def test_an_empty_segment_ends_where_it_begins(scan):
    done = scan()
    assert (done.first_offset, done.end_offset, done.end_bytes) == (10, 10, 0)


def test_a_gap_or_a_batch_with_fewer_records_than_offsets_shows_that_the_cleaner_was_there(scan):
    assert scan(batch(10), batch(15)).cleaned_to == 15
    assert scan(batch(12)).cleaned_to == 12
    assert scan(batch(10), emptied(batch(11, [(b"a", b"")] * 4)), batch(15)).cleaned_to == 15


def test_transactions_are_noted_by_producer_as_far_as_other_segments_need_them(scan):
    done = scan(
        marker(10, 1, ABORT),
        transactional(11, 2),
        transactional(12, 3),
        transactional(13, 3),
        marker(14, 2, COMMIT),
        emptied(transactional(15, 4)),
    )
    assert (done.ended, dict(done.begun)) == ({1, 2}, {3: 12})


def test_zeros_that_a_broker_preallocates_end_the_active_segment_and_no_other(scan):
    zeros = bytes(3 << 20)
    done = scan(batch(10), zeros, active=True)
    assert (done.end_offset, done.has_more) == (11, False)
    assert scan(zeros, active=True).end_offset == 10
    with pytest.raises(SegmentError, match=rf"0010\.log, byte {len(batch(10))}: no record batch begins here"):
        scan(batch(10), zeros)
    with pytest.raises(SegmentError, match="no record batch begins here"):
        scan(batch(10), zeros, b"\1", active=True)


@pytest.mark.parametrize("active", [True, False])
@pytest.mark.parametrize("left", [1, 60, 61, len(batch(11)) - 1])
def test_a_segment_that_is_cut_off_in_a_batch_is_told_with_file_and_position(scan, left, active):
    with pytest.raises(
        SegmentError, match=rf"t-0/0+10\.log, byte {len(batch(10))}: .*it is cut off; nothing was appended"
    ):
        scan(batch(10), batch(11)[:left], active=active)


@pytest.mark.parametrize("at", range(len(batch(0))))
def test_any_flipped_byte_of_a_batch_between_others_is_told_with_its_position(scan, at):
    """Also of what the checksum does not cover: offset, length, epoch and magic byte."""
    damaged = bytearray(batch(11, epoch=1))
    damaged[at] ^= 0xFF
    where = len(batch(10))
    with pytest.raises(SegmentError, match=rf"0010\.log, byte ({where}|{where + len(damaged)}): "):
        scan(batch(10, epoch=1), bytes(damaged), batch(12, epoch=1))


def test_offsets_and_epochs_never_go_back(scan):
    with pytest.raises(SegmentError, match="a batch with offset 11 instead of 12 or more"):
        scan(batch(10), batch(11), batch(11))
    with pytest.raises(SegmentError, match="a batch with offset 9 instead of 10 or more"):
        scan(batch(9))
    with pytest.raises(SegmentError, match="leader epoch 1 after 2"):
        scan(batch(10, epoch=2), batch(11, epoch=1))


def test_a_scan_stops_at_its_end_offset_and_ignores_damage_after_it(scan):
    done = scan(batch(10), transactional(11, 5), b"no batch at all", end=12)
    assert (done.end_offset, done.has_more, dict(done.begun)) == (12, True, {5: 11})
    assert scan(batch(10), end=11).has_more is False
    assert scan(batch(10), bytes(500), active=True, end=11).has_more is False
    with pytest.raises(SegmentError, match="no record batch begins here"):
        scan(batch(10), transactional(11, 5), b"no batch at all" * 9, end=13)


def test_a_batch_beyond_the_limit_is_told(scan):
    with pytest.raises(SegmentError, match="the limit is batch.max.bytes"):
        scan(batch(10, [(b"k", bytes(LIMIT))]))


def test_a_segment_file_changed_or_deleted_since_it_was_listed_is_reported(tmp_path):
    path = segment(tmp_path / "t-0", 0, batch(0))
    [log] = find_logs(tmp_path, "t").logs
    path.write_bytes(b"")
    with pytest.raises(CleantailError, match="was changed while it was read"):
        scan_segment(ScanRequest(log.segments[0]), LIMIT)
    path.unlink()
    with pytest.raises(CleantailError, match="cannot be read: No such file"):
        scan_segment(ScanRequest(log.segments[0]), LIMIT)

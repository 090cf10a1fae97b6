import pytest

from cleantail.errors import CleantailError, SegmentError
from cleantail.kafka.read_plan import COMMITTED, UNCOMMITTED, Range
from cleantail.kafka.segment_files import LogReader, find_logs, scan_requests, scan_segment, scanned_log, settled
from tests.segment_builders import ABORT, COMMIT, batch, emptied, marker, segment, transactional

LIMIT = 1 << 20
THREE = [(b"a", b""), (b"b", b""), (b"c", b"")]


@pytest.fixture
def log(tmp_path):
    """Transactions over three segments: producer 1 commits 0-2, producer 2 aborts 3-5 and 9, producer 3 is open."""
    segment(tmp_path / "t-0", 0, transactional(0, 1, THREE), transactional(3, 2, THREE))
    segment(tmp_path / "t-0", 6, marker(6, 1, COMMIT), batch(7, [(b"p", b""), (b"q", b"")]), transactional(9, 2))
    segment(
        tmp_path / "t-0", 10, transactional(10, 1), marker(11, 2, ABORT), marker(12, 1, COMMIT), transactional(13, 3)
    )

    def found():
        [folder] = find_logs(tmp_path, "t").logs
        return scanned_log(folder, [scan_segment(request, LIMIT) for request in scan_requests(folder)])

    return found


def read(log, start, end, isolation=COMMITTED):
    return [r.offset for chunk in LogReader(log, isolation, LIMIT).chunks(Range(0, start, end)) for r in chunk]


def test_a_committed_read_has_neither_markers_nor_what_was_taken_back(log):
    assert log().offsets.last_stable == 13
    assert read(log(), 0, 13) == [0, 1, 2, 7, 8, 10]
    assert read(log(), 0, 14, UNCOMMITTED) == [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 13]


@pytest.mark.parametrize("start", range(13))
@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_range_has_the_records_that_the_whole_has_there_wherever_it_is_cut(log, start, length):
    end = min(start + length, 13)
    assert read(log(), start, end) == [n for n in (0, 1, 2, 7, 8, 10) if start <= n < end]


def test_the_remains_of_a_cleaned_transaction_do_not_count_as_an_open_one(tmp_path):
    segment(tmp_path / "t-0", 0, emptied(transactional(0, 1, THREE)), batch(3))
    [folder] = find_logs(tmp_path, "t").logs
    log = scanned_log(folder, [scan_segment(request, LIMIT) for request in scan_requests(folder)])
    assert log.offsets.last_stable == 4
    assert read(log, 0, 4) == [3]


def test_what_a_later_leader_never_had_is_not_read_from_the_copies_of_the_earlier_one(tmp_path):
    two = [(b"a", b"old"), (b"b", b"old")]
    stale = transactional(6, 9, [(b"c", b"stale")])
    segment(tmp_path / "t-0", 0, batch(0, two * 2), batch(4, two), stale, name="0-first.log")
    segment(tmp_path / "t-0", 4, batch(4, two), batch(6, [(b"c", b"new")] * 2, epoch=1), name="4-second.log")
    [folder] = find_logs(tmp_path, "t").logs

    def scan(requests):
        return [scan_segment(request, LIMIT) for request in requests]

    log = scanned_log(folder, settled(scan(scan_requests(folder)), scan))
    assert (log.offsets.last_stable, log.offsets.end) == (8, 8)
    records = [r for chunk in LogReader(log, COMMITTED, LIMIT).chunks(Range(0, 0, 8)) for r in chunk]
    assert [(r.offset, r.value) for r in records] == [*((n, b"old") for n in range(6)), (6, b"new"), (7, b"new")]


def test_records_come_in_lists_of_a_bounded_size(tmp_path, monkeypatch):
    monkeypatch.setattr("cleantail.kafka.segment_files.CHUNK_RECORDS", 4)
    monkeypatch.setattr("cleantail.kafka.segment_files.CHUNK_BYTES", 1000)
    segment(tmp_path / "t-0", 0, batch(0, [(b"a", b"")] * 9), batch(9, [(b"a", bytes(600))] * 5))
    [folder] = find_logs(tmp_path, "t").logs
    log = scanned_log(folder, [scan_segment(request, LIMIT) for request in scan_requests(folder)])
    assert [len(chunk) for chunk in LogReader(log, COMMITTED, LIMIT).chunks(Range(0, 0, 14))] == [4, 4, 3, 2, 1]


def test_a_marker_that_vanished_since_the_scan_is_reported_as_a_changed_file(log, tmp_path):
    scanned = log()
    segment(tmp_path / "t-0", 10, transactional(10, 1))
    with pytest.raises(CleantailError, match="was changed while it was read|no longer has a marker"):
        read(scanned, 0, 13)


def test_damage_that_came_after_the_scan_is_told_with_file_and_position(log, tmp_path):
    scanned = log()
    file = tmp_path / "t-0" / f"{10:020}.log"
    data = bytearray(file.read_bytes())
    data[65] ^= 1
    file.write_bytes(data)  # the active segment may grow, so that its time of change says nothing
    with pytest.raises(SegmentError, match=r"0010\.log, byte 0: the batch does not match its checksum"):
        read(scanned, 10, 13)

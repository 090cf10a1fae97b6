import os

import pytest

from cleantail.errors import CleantailError
from cleantail.kafka.segment_files import find_logs, require_same_file
from tests.segment_builders import batch, segment

ID, OTHER_ID = "LWgrMmVrT0a__7a4SasuPA", "oAtiIQ95REujbuzNd_lkLQ"


@pytest.fixture
def logs(tmp_path):
    """A broker's log directory with two partitions of orders, and other folders whose names are like theirs."""
    for folder in ("orders-0", "orders-1", "orders-10x", "orders-2-delete", "orders-eu-0", "my-orders-0"):
        segment(tmp_path / folder, 0, batch(0))
    segment(tmp_path / "orders-1", 42, batch(42))
    segment(tmp_path / "orders-1", 7, batch(7))
    segment(tmp_path / "orders-1", 3, batch(3), name="00000000000000000003.log.deleted")
    segment(tmp_path / "orders-1", 3, batch(3), name="00000000000000000003.log.cleaned")
    segment(tmp_path / "orders-1", 3, name="00000000000000000003.index")
    return tmp_path


def test_the_folders_of_one_topic_are_found_and_their_segments_ascend(logs):
    found = find_logs(logs, "orders")
    assert [(log.partition, [s.base_offset for s in log.segments]) for log in found.logs] == [(0, [0]), (1, [0, 7, 42])]
    assert (found.cluster_id, found.topic_id) == ("", "")
    assert all((log.log_start, log.high_watermark, log.clean_point) == (0, None, None) for log in found.logs)


def test_ids_and_checkpoints_next_to_the_logs_are_read_with_them(logs):
    (logs / "meta.properties").write_text("#\nversion=1\ncluster.id=kQ3\n")
    (logs / "orders-1" / "partition.metadata").write_text(f"version: 0\ntopic_id: {ID}")
    for name, offset in (("replication-offset", 50), ("log-start-offset", 8), ("cleaner-offset", 42)):
        (logs / f"{name}-checkpoint").write_text(f"0\n2\norders 1 {offset}\norders-eu 0 99\n")
    found = find_logs(logs, "orders")
    assert (found.cluster_id, found.topic_id) == ("kQ3", ID)
    zero, one = found.logs
    assert (zero.log_start, zero.high_watermark, zero.clean_point) == (0, None, 0)
    assert (one.log_start, one.high_watermark, one.clean_point) == (8, 50, 42)
    assert find_logs(logs / "orders-1", "orders").logs == (one,)


def test_segments_below_an_offset_are_left_out_where_their_names_tell_their_ends(logs, tmp_path):
    log = find_logs(logs, "orders").logs[1]
    kept = [[s.base_offset for s in log.from_offset(n).segments] for n in (0, 6, 7, 41, 42, 99)]
    assert kept == [[0, 7, 42], [0, 7, 42], [7, 42], [7, 42], [42], [42]]
    copy = tmp_path / "tiered"
    for base in (0, 7):
        segment(copy / f"orders-1-{ID}", base, batch(base), name=f"{base}-{OTHER_ID}.log")
    [tiered] = find_logs(copy, "orders").logs
    assert tiered.from_offset(99) == tiered


def test_copies_in_tiered_storage_have_the_topics_id_and_ids_of_their_own(tmp_path):
    folder = tmp_path / f"orders-3-{ID}"
    segment(folder, 11, batch(11), name=f"11-{OTHER_ID}.log")
    segment(folder, 0, batch(0), name=f"00000000000000000000-{ID}.log")
    segment(folder, 0, name=f"0-{ID}.txnindex")
    found = find_logs(tmp_path, "orders")
    assert found.topic_id == ID
    assert [(log.partition, [s.base_offset for s in log.segments]) for log in found.logs] == [(3, [0, 11])]


def test_a_topic_whose_name_ends_like_a_partition_is_not_taken_for_another(tmp_path):
    segment(tmp_path / "orders-1-0", 0, batch(0))
    assert [log.partition for log in find_logs(tmp_path, "orders-1").logs] == [0]
    with pytest.raises(CleantailError, match="has no folder of topic orders: expected are folders orders-N"):
        find_logs(tmp_path, "orders")


def test_a_missing_directory_and_a_log_folder_without_segments_are_reported(tmp_path):
    with pytest.raises(CleantailError, match="nowhere is not a directory; nothing was appended"):
        find_logs(tmp_path / "nowhere", "orders")
    (tmp_path / "orders-0").mkdir()
    with pytest.raises(CleantailError, match="orders-0 has no segments"):
        find_logs(tmp_path, "orders")


def test_two_folders_of_one_partition_and_two_topics_of_one_name_are_refused(tmp_path):
    segment(tmp_path / f"orders-0-{ID}", 0, batch(0))
    segment(tmp_path / f"orders-1-{OTHER_ID}", 0, batch(0))
    with pytest.raises(CleantailError, match=f"the id {ID}, but .* the id {OTHER_ID}: two topics had the name orders"):
        find_logs(tmp_path, "orders")
    segment(tmp_path / "orders-0", 0, batch(0))
    with pytest.raises(CleantailError, match="are both of partition 0 of topic orders"):
        find_logs(tmp_path, "orders")


def test_a_cleaning_that_was_interrupted_is_left_to_the_broker(logs):
    swap = segment(logs / "orders-0", 0, batch(0), name="00000000000000000000.log.swap")
    with pytest.raises(CleantailError, match=f"{swap}: the broker was stopped while it replaced segments"):
        find_logs(logs, "orders")


def test_an_invalid_checkpoint_file_is_named_and_an_empty_one_counts_as_0(logs):
    (logs / "cleaner-offset-checkpoint").write_text("0\n1\norders one 5\n")
    with pytest.raises(CleantailError, match="cleaner-offset-checkpoint is not a checkpoint of a broker"):
        find_logs(logs, "orders")
    (logs / "cleaner-offset-checkpoint").write_text("")
    assert find_logs(logs, "orders").logs[0].clean_point == 0


def test_a_file_that_changed_is_refused_unless_a_running_broker_has_only_appended_to_it(logs):
    file = find_logs(logs / "orders-0", "orders").logs[0].segments[0]
    require_same_file(file, os.stat(file.path), may_grow=False)
    with file.path.open("ab") as more:
        more.write(batch(1))
    require_same_file(file, os.stat(file.path), may_grow=True)
    with pytest.raises(CleantailError, match="was changed while it was read: try again"):
        require_same_file(file, os.stat(file.path), may_grow=False)
    file.path.write_bytes(b"")
    with pytest.raises(CleantailError, match="was changed while it was read"):
        require_same_file(file, os.stat(file.path), may_grow=True)

"""Records without a key by the files' metadata, and what is said of them before a round."""

import pytest

from cleantail.log.log_state import KeylessRecords, held_reason, keyless_between, keyless_note
from tests.cleantail.kernel_builders import configs, data_file, resolved


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        pytest.param(data_file(0, 9, null_keys=0), (0, 0), id="none"),
        pytest.param(data_file(0, 9, null_keys=3), (3, 3), id="as many as were written"),
        pytest.param(data_file(0, 9, null_keys=3, deleted_records=1), (2, 3), id="one of them may be deleted"),
        pytest.param(data_file(0, 9, null_keys=3, deleted_records=8), (0, 2), id="no more than are left"),
        pytest.param(data_file(0, 10, null_keys=3), (0, 3), id="some may lie beyond the end"),
        pytest.param(data_file(10, 19, null_keys=3), (0, 0), id="all lie beyond the end"),
    ],
)
def test_how_many_there_are_is_known_as_far_as_files_tell(file, expected):
    found = keyless_between([file], 0, 10)
    assert (found.at_least, found.at_most) == expected


@pytest.mark.parametrize(
    ("lower", "upper", "expected"), [(0, 9, (0, 0)), (0, 10, (0, 3)), (9, 12, (0, 3)), (10, 19, (3, 3))]
)
def test_records_below_the_first_offset_do_not_count(lower, upper, expected):
    found = keyless_between([data_file(lower, upper, null_keys=3)], 10, 20)
    assert (found.at_least, found.at_most) == expected


def test_what_may_be_there_may_block_the_partition():
    note = keyless_note(KeylessRecords(0, 2), KeylessRecords(0, 0), configs())
    assert note.startswith("the next round may block this partition: up to 2 records without a key")


@pytest.mark.parametrize(
    ("found", "text"),
    [
        pytest.param(KeylessRecords(1, 1), "1 record without a key", id="one"),
        pytest.param(KeylessRecords(2, 2), "2 records without a key", id="two"),
        pytest.param(KeylessRecords(0, 2), "up to 2 records without a key", id="not known"),
    ],
)
def test_the_count_in_words(found, text):
    assert str(found) == text


@pytest.mark.parametrize(
    ("policy", "upper", "expected"),
    [
        pytest.param(
            "fail",
            0,
            ("the next round will block this partition: 1 record without a key (cleantail.keyless.policy: fail)",),
            id="cleanable",
        ),
        pytest.param(
            "fail",
            10,
            (
                "the round that reaches them will block this partition: 1 record without a key "
                "(cleantail.keyless.policy: fail)",
            ),
            id="in the active segment",
        ),
        pytest.param("drop", 0, (), id="dropped, which is no warning"),
        pytest.param("quarantine", 0, (), id="moved, which is no warning"),
    ],
)
def test_a_log_warns_of_records_without_a_key_that_will_hold_it_back(policy, upper, expected):
    files = [data_file(0, 9, null_keys=int(upper == 0)), data_file(10, 19, null_keys=int(upper == 10))]
    log = resolved(
        files,
        now_ms=1,
        segment_ms=2**40,
        segment_bytes=100,
        cleantail_keyless_policy=policy,
        cleanup_policy=frozenset({"compact"}),
    )
    assert log.warnings == expected


def test_a_log_that_is_not_compacted_warns_of_none():
    files = [data_file(0, 9, null_keys=1)]
    assert resolved(files, cleanup_policy=frozenset({"delete"})).warnings == ()
    assert configs().cleantail_keyless_policy == "fail"


def test_the_reason_of_a_blocked_log_counts_keyless_records_and_names_the_first_offset():
    assert held_reason(2, 17) == "2 records without a key, the first at offset 17; cleantail.keyless.policy is fail"

import pytest

from cleantail.kafka.segment_batches import HEADER_BYTES, header_problem, parse_header
from tests.segment_builders import batch, emptied, marker, transactional

DATA = batch(40, [(b"a", b"1"), (b"b", None), (b"c", b"")])
HEADER = parse_header(DATA[:HEADER_BYTES])


def test_a_header_says_which_offsets_the_batch_has_and_where_the_next_one_begins():
    assert (HEADER.base_offset, HEADER.next_offset, HEADER.size_bytes) == (40, 43, len(DATA))
    assert not (HEADER.is_transactional or HEADER.is_control or HEADER.has_append_time or HEADER.was_cleaned)
    assert header_problem(HEADER, len(DATA), len(DATA)) is None


def test_markers_transactions_and_what_the_cleaner_emptied_are_told_by_the_header():
    of_transaction, end = (
        parse_header(data[:HEADER_BYTES]) for data in (transactional(0, 7), marker(1, 7, b"\0\0\0\1"))
    )
    assert of_transaction.is_transactional and not of_transaction.is_control and of_transaction.producer_id == 7
    assert end.is_transactional and end.is_control
    rest = parse_header(emptied(DATA))
    assert rest.was_cleaned and (rest.base_offset, rest.next_offset) == (40, 43)


@pytest.mark.parametrize(
    ("change", "left", "limit", "said"),
    [
        pytest.param({"magic": 1}, 999, 999, "message format version 1, which Kafka 4 no longer has", id="old format"),
        pytest.param({"magic": 77}, 999, 999, "no record batch begins here", id="not a batch"),
        pytest.param({"length": 48}, 999, 999, "no record batch begins here", id="shorter than its header"),
        pytest.param({"length": -1}, 999, 999, "no record batch begins here", id="negative length"),
        pytest.param({}, len(DATA) - 1, 999, f"has {len(DATA)} bytes and the file only {len(DATA) - 1} more", id="cut"),
        pytest.param({}, 999, len(DATA) - 1, "the limit is batch.max.bytes under", id="beyond the limit"),
        pytest.param({"attributes": 5}, 999, 999, "codec 5 is unknown", id="codec"),
        pytest.param({"record_count": 4}, 999, 999, "a batch of 4 records at 3 offsets", id="too many records"),
        pytest.param(
            {"record_count": -1}, 999, 999, "a batch of -1 records at 3 offsets", id="negative number of records"
        ),
    ],
)
def test_an_impossible_batch_header_is_reported(change, left, limit, said):
    assert said in header_problem(HEADER._replace(**change), left, limit)

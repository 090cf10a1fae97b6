"""The database of a task reads all that it is handed, whether or not its result needs it."""

import pyarrow as pa
import pytest

from spark_jobs.engine.columns.key_numbers import KEY_AND_OFFSET, number_keys, with_key_number
from spark_jobs.engine.columns.task_database import task_database

BATCHES = 200


def batch(number):
    return pa.RecordBatch.from_arrays([pa.array([b"k"]), pa.array([number])], schema=KEY_AND_OFFSET)


@pytest.mark.parametrize("keys", [[], [batch(0)]], ids=["no touched key", "a touched key"])
def test_every_batch_is_read_for_what_is_counted_by_the_way(keys):
    """Without a touched key no record is in the join: retention and records without a key are counted all the same."""
    read = []

    def batches():
        for number in range(BATCHES):
            read.append(number)
            yield batch(number)

    with task_database(2, 1 << 28) as database:
        number_keys(database, keys)
        found = sum(len(rows["offset"]) for rows in with_key_number(database, KEY_AND_OFFSET, batches()))
    assert (found, read) == (BATCHES * len(keys), list(range(BATCHES)))


def test_an_error_of_the_batches_is_raised_as_it_is_also_where_the_database_asked_for_no_more():
    def batches():
        yield from map(batch, range(BATCHES))
        raise KeyError("the last one")

    with task_database(2, 1 << 28) as database:
        number_keys(database, [])
        with pytest.raises(KeyError, match="the last one"):
            list(with_key_number(database, KEY_AND_OFFSET, batches()))

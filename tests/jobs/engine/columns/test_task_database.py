"""The database of a task reads all that it is handed, whether or not its result needs it."""

from pathlib import Path

import pyarrow as pa
import pytest

from spark_jobs.engine.task_records import KEY_AND_OFFSET, KeysInDatabase, task_database

BATCHES, ENOUGH = 200, 1 << 28


def batch(number):
    return pa.RecordBatch.from_arrays([pa.array([b"k"]), pa.array([number])], schema=KEY_AND_OFFSET)


@pytest.mark.parametrize("keys", [[], [batch(0)]], ids=["no touched key", "a touched key"])
def test_the_database_reads_every_batch_even_if_no_key_was_touched(keys):
    """Without a touched key no record is in the join: retention and records without a key are counted all the same."""
    read = []

    def batches():
        for number in range(BATCHES):
            read.append(number)
            yield batch(number)

    with task_database(2, ENOUGH) as database:
        numbers = KeysInDatabase.of(database, keys)
        found = sum(len(rows["offset"]) for rows in numbers.numbered(KEY_AND_OFFSET, batches()))
    assert (found, read) == (BATCHES * len(keys), list(range(BATCHES)))


def test_an_error_in_the_last_batch_is_raised_unchanged_even_if_no_key_was_touched():
    def batches():
        yield from map(batch, range(BATCHES))
        raise KeyError("the last one")

    with task_database(2, ENOUGH) as database:
        numbers = KeysInDatabase.of(database, [])
        with pytest.raises(KeyError, match="the last one"):
            list(numbers.numbered(KEY_AND_OFFSET, batches()))


def setting(database, name):
    [(value,)] = database.execute(f"SELECT current_setting('{name}')").fetchall()
    return value


def test_the_database_opens_nothing_that_it_is_not_handed():
    with task_database(2, ENOUGH // 2) as database:
        assert (setting(database, "threads"), setting(database, "memory_limit")) == (2, "128.0 MiB")
        assert setting(database, "enable_external_access") is False


@pytest.mark.parametrize("fails", [False, True], ids=["done", "failed"])
def test_a_task_that_spills_to_disk_deletes_its_private_folder_at_the_end(fails):
    rows = "SELECT 'key' || i AS key, i AS n FROM range(2000000) t(i)"
    try:
        with task_database(1, 24 << 20) as database:
            folder = Path(setting(database, "temp_directory"))
            assert folder.stat().st_mode & 0o777 == 0o700
            database.execute(f"CREATE TEMP TABLE big AS {rows}")
            assert list(folder.iterdir())
            if fails:
                raise KeyError("defect")
    except KeyError:
        assert fails
    assert not folder.exists()

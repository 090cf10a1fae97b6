"""The database of a task reads all that it is handed, whether or not its result needs it."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from spark_jobs.engine.columns import task_database as module
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


ENOUGH = 1 << 28
"""Bytes of memory."""


def kept():
    """Returns the database that waits for the next small task of this process."""
    return module._kept.get(os.getpid())


def setting(database, name):
    [(value,)] = database.execute(f"SELECT current_setting('{name}')").fetchall()
    return value


def fill(database, rows):
    database.execute(f"CREATE TEMP TABLE big AS SELECT 'key' || i AS key, i AS n FROM range({rows}) t(i) ORDER BY key")


def test_the_next_small_task_has_the_database_of_the_last_one_and_nothing_that_was_in_it():
    with task_database(1, ENOUGH, small=True) as first:
        number_keys(first, [batch(0)])
    waiting = kept()
    with task_database(2, ENOUGH // 2, small=True) as second:
        left = second.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        assert (left, setting(second, "threads"), setting(second, "memory_limit")) == ([], 2, "128.0 MiB")
        assert setting(second, "enable_external_access") is False
    assert kept() is waiting is not None


def test_two_tasks_at_a_time_have_a_database_each():
    with task_database(1, ENOUGH, small=True) as one, task_database(1, ENOUGH, small=True) as other:
        number_keys(one, [batch(0)])
        assert other.execute("SELECT table_name FROM duckdb_tables()").fetchall() == []
        assert setting(one, "temp_directory") != setting(other, "temp_directory")


def test_the_folder_of_a_task_is_its_own_and_is_gone_with_it():
    with task_database(1, ENOUGH, small=True) as database:
        folder = Path(setting(database, "temp_directory"))
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


def test_a_database_that_went_to_disk_is_closed_and_its_files_are_gone():
    with task_database(1, 24 << 20, small=True) as database:
        folder = Path(setting(database, "temp_directory"))
        fill(database, 2_000_000)
        assert list(folder.iterdir())
    assert not folder.exists() and kept() is None


def test_a_database_in_which_a_task_failed_and_that_of_a_large_task_are_closed():
    with pytest.raises(KeyError), task_database(1, ENOUGH, small=True) as database:
        folder = Path(setting(database, "temp_directory"))
        raise KeyError("defect")
    assert not folder.exists() and kept() is None
    with task_database(1, ENOUGH) as database:
        number_keys(database, [batch(0)])
    assert kept() is None


def test_a_process_that_was_forked_opens_its_own():
    script = """
import os
from spark_jobs.engine.columns.task_database import task_database
with task_database(1, 1 << 28, small=True):
    pass
child = os.fork()
with task_database(1, 1 << 28, small=True) as database:
    assert database.execute("SELECT 7").fetchall() == [(7,)]
if child == 0:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr

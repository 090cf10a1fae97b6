"""What a Python worker of Spark has when its first task begins, and what it does not do before every task."""

from __future__ import annotations

import pytest

from spark_jobs.engine.workers.daemon import until_let_go


def asked_of_a_worker(spark, question):
    """What a task says. The function is one within another: it goes to the worker as code, not by a name."""
    [answer] = spark.sparkContext.parallelize([0], 1).map(question).collect()
    return answer


def test_no_archive_is_read_before_a_task(spark):
    def archives(_):
        import sys
        import zipimport

        finders = sys.path_importer_cache.items()
        return [place for place, finder in finders if isinstance(finder, zipimport.zipimporter)]

    assert asked_of_a_worker(spark, archives) == []


def test_what_opens_files_and_databases_is_imported_before_workers_are_forked(spark):
    def imported(_):
        import sys

        return sorted({"duckdb", "pyiceberg.io.pyarrow"} & sys.modules.keys())

    assert asked_of_a_worker(spark, imported) == ["duckdb", "pyiceberg.io.pyarrow"]


def test_a_worker_ends_quietly_on_a_broken_pipe_and_raises_other_errors():
    def worker(error, _):
        raise error

    assert until_let_go(worker)(BrokenPipeError(), True) == 1
    with pytest.raises(EOFError):
        until_let_go(worker)(EOFError(), True)

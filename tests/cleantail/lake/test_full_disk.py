"""A full disk is reported as one, whichever library raised the error."""

import errno
import os
import sqlite3

import pytest

from cleantail.lake.foreign_errors import FULL_DISK, explained


class OfJava:
    def __init__(self, text):
        self.text = text

    def toString(self):  # noqa: N802 - as Java has it
        return self.text


class PythonException(Exception):
    __module__ = "pyspark.errors.exceptions.captured"


class Py4JJavaError(Exception):
    __module__ = "py4j.protocol"

    def __init__(self, text):
        super().__init__("An error occurred")
        self.java_exception = OfJava(text)


def of_the_system():
    try:
        with open("/dev/full", "w") as file:
            file.write("x")
    except OSError as e:
        return e


TASK = "Lost task 0.0 in stage 1.0 (TID 2) (host executor 1): org.apache.spark.api.python.PythonException: Traceback"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_real_full_disk_is_reported():
    error = of_the_system()
    assert error.errno == errno.ENOSPC
    assert str(explained(error)) == FULL_DISK


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Py4JJavaError(f"{TASK}\nOSError: [Errno 28] Error writing bytes to file"), id="task"),
        pytest.param(Py4JJavaError("java.io.IOException: No space left on device"), id="jvm"),
        pytest.param(PythonException("OSError: [Errno 28] No space left on device: 'a'"), id="frame"),
        pytest.param(OSError(errno.ENOSPC, "No space left on device", "f"), id="file"),
        pytest.param(sqlite3.OperationalError("database or disk is full"), id="sqlite"),
    ],
)
def test_every_form_of_a_full_disk_error_is_reported_as_a_full_disk(error):
    full, file = explained(error), "f: No space left on device: " if isinstance(error, OSError) else ""
    assert (str(full), full.exit_code) == (f"{file}{FULL_DISK}", 4)


def test_a_file_that_a_task_could_not_open_is_named_and_a_record_is_not():
    gone = Py4JJavaError(f"{TASK}\nFileNotFoundError: [Errno 2] No such file or directory: '/w/a.puffin'\n\n\tat x")
    assert "a task of Spark: FileNotFoundError: [Errno 2] No such file or directory: '/w/a.puffin'" in str(
        explained(gone)
    )
    quoting = Py4JJavaError(f"{TASK}\nValueError: secret-key")
    assert "secret" not in str(explained(quoting))

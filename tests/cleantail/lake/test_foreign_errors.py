"""What is told of errors from outside: nothing that a record holds, and what helps to find a file, a host, a defect."""

from __future__ import annotations

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyiceberg.exceptions import BadRequestError
from pyspark.errors import AnalysisException, NumberFormatException, PythonException

from cleantail.errors import TableError
from cleantail.lake.foreign_errors import LOGIN, NOT_THERE, TIMEOUT, cause, explained, stack_of

LOST = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most "
    "recent failure: Lost task 0.0 in stage 1.0 (TID 2) (localhost executor driver): "
)
MAGIC = "Expected magic number at tail, but found [1, 0, 0, 0]"
CAST = '[CAST_INVALID_INPUT] The value \'MARKER\' of the type "STRING" cannot be cast to "BIGINT"'
WORKER = "An exception was thrown\nTraceback:\n  File \"x.py\", line 1, in f\nKeyError: 'MARKER'\n"


class OfJava:
    """As py4j hands on an exception of Java: a stand-in for the JVM, whose text is all that is asked for."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._gateway_client = self
        self._target_id = "o1"

    def toString(self) -> str:  # noqa: N802  # Java's
        return self.text

    def __str__(self) -> str:
        return self.text


class Raised(Py4JJavaError):
    def __init__(self, text: str) -> None:
        Exception.__init__(self, "An error occurred while calling o1.save")
        self.java_exception = OfJava(text)

    def __str__(self) -> str:
        return "An error occurred while calling o1.save"


@pytest.mark.parametrize(
    ("message", "known"),
    [
        ('connection to server at "127.0.0.1", port 42403 failed: timeout expired', TIMEOUT),
        ('connection to server at "127.0.0.1", port 40404 failed: timeout expired', TIMEOUT),
        ("RESTError 403 : Received unexpected JSON Payload", LOGIN),
        ("404 Client Error", NOT_THERE),
    ],
)
def test_a_port_is_not_taken_for_the_status_of_an_answer(message, known):
    assert cause(ValueError(message)) == known


@pytest.mark.parametrize(
    ("error", "names"),
    [
        (NumberFormatException(CAST), "NumberFormatException, CAST_INVALID_INPUT"),
        (PythonException(WORKER), "PythonException, KeyError"),
        (pa.lib.ArrowInvalid("Failed to parse string: 'MARKER'"), "pyarrow.lib.ArrowInvalid"),
        (pa.lib.ArrowInvalid("[MARKER] is no number"), "pyarrow.lib.ArrowInvalid"),
        (Raised(f"{LOST}org.apache.spark.SparkNumberFormatException: {CAST}"), "SparkNumberFormatException, CAST_INV"),
        (Raised(f"{LOST}java.lang.IllegalArgumentException: java.io.IOException: MARKER"), "IllegalArgumentException"),
        (Raised("org.apache.spark.SparkRuntimeException: [MARKERS] x: java.io.IOException"), "MARKERS"),
        (Raised("java.lang.NumberFormatException: For input string: MARKER"), "java.lang.NumberFormatException;"),
        (Raised(f"{LOST}java.lang.RuntimeException: MARKER"), "java.lang.RuntimeException;"),
        (Raised(f"{LOST}org.apache.spark.api.python.PythonException: {WORKER}"), "python.PythonException, KeyError;"),
        (Raised("MARKER"), "an error of Java;"),
    ],
)
def test_a_message_that_may_quote_a_record_is_not_repeated(error, names):
    text = str(explained(error))
    assert "MARKER" not in text.replace("MARKERS", "")
    assert names in text
    assert "its message may quote a record (CLEANTAIL_DEBUG=1 shows the stack)" in text


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Raised(f"{LOST}org.apache.iceberg.exceptions.NotFoundException: File does not exist: s3://b/x"), "s3://b/x"),
        (
            Raised(f"{LOST}java.lang.RuntimeException: file:/w/a.parquet is not a Parquet file. {MAGIC}"),
            "file:/w/a.par",
        ),
        (Raised(f"java.lang.RuntimeException: s3://b/a.parquet is not a Parquet file. {MAGIC}"), "s3://b/a.parquet is"),
        (Raised("java.net.ConnectException: Connection refused: store:9000"), "store:9000"),
        (Raised("java.lang.OutOfMemoryError: Java heap space"), "Java heap space"),
        (Raised("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext"), "stopped Spark"),
        (AnalysisException("[TABLE_OR_VIEW_NOT_FOUND] `x` cannot be found"), "`x` cannot be found"),
        (OSError(28, "No space left on device", "/disk/file"), "/disk/file: No space left on device"),
        (BadRequestError("IllegalArgumentException: [BUG] Expected sorted snapshot log entries."), "set the clocks"),
        (BadRequestError("[BUG] Expected sorted previous metadata log entries."), "set the clocks"),
        (Raised("org.apache.iceberg.exceptions.ValidationException: DV data sequence number (7) …"), "`cleantail mend"),
    ],
)
def test_what_is_said_of_files_hosts_and_plans_is_repeated(error, words):
    assert words in str(explained(error))


def test_a_stack_has_the_frames_and_names_of_all_that_was_raised_and_only_our_messages():
    def outer():
        try:
            {}["MARKER"]
        except KeyError as e:
            raise TableError("table x is gone") from e

    with pytest.raises(TableError, match="gone") as raised:
        outer()
    stack = stack_of(raised.value)
    assert "MARKER" not in stack.replace('{}["MARKER"]', "")  # the line of the program is no data
    assert stack.index("in outer") < stack.index("\nKeyError\n") < stack.index("TableError: table x is gone")


def test_a_stack_that_comes_round_ends():
    one, other = ValueError(), KeyError()
    one.__context__, other.__context__ = other, one
    assert stack_of(one) == "KeyError\nValueError"

"""The reason of a failed evaluation is reported without the messages of Spark and Python, which quote values."""

from types import SimpleNamespace

import pytest

from spark_jobs.quality.time_limit import error_in, error_text

CAST = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times: "
    "org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value '4711-secret' of the type \"STRING\" "
    'cannot be cast to "DOUBLE"'
)
STACK = (
    "Traceback (most recent call last):\n"
    '  File "engine.py", line 1, in resolve\n'
    f"pyspark.errors.exceptions.captured.NumberFormatException: {CAST}\n\n"
    "During handling of the above exception, another exception occurred:\n\n"
    f"great_expectations.exceptions.exceptions.MetricResolutionError: {CAST}\n"
)


def _result(info):
    return SimpleNamespace(exception_info=info)


def _raised(message, stack=""):
    return {"raised_exception": True, "exception_message": message, "exception_traceback": stack}


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        pytest.param({"raised_exception": False}, "", id="evaluated"),
        pytest.param(
            _raised(CAST, STACK), "could not be evaluated: NumberFormatException [CAST_INVALID_INPUT]", id="by Spark"
        ),
        pytest.param(
            {"('column_values.nonnull',)": _raised(CAST, STACK)},
            "could not be evaluated: NumberFormatException [CAST_INVALID_INPUT]",
            id="by metric",
        ),
        pytest.param(
            _raised('Error: The column "nope" in BatchData does not exist.'),
            "could not be evaluated: the records have no column nope",
            id="no column",
        ),
        pytest.param(_raised("it says [SECRET] 4711-secret"), "could not be evaluated: error", id="nothing is known"),
        pytest.param(
            _raised("x", "JSONDecodeError: Expecting value: [4711-secret] line 1\n"),
            "could not be evaluated: JSONDecodeError",
            id="by Python",
        ),
    ],
)
def test_a_check_error_is_reported_by_its_kind_alone(info, expected):
    assert error_in(_result(info)) == expected


def test_an_exception_is_reported_by_its_class_alone():
    assert error_text(ValueError("4711-secret")) == "could not be evaluated: ValueError"

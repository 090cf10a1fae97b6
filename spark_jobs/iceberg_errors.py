"""What Iceberg's refusals mean: another commit came first, or made a result void."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError

from cleantail.errors import ConflictError


def java_message(error: Py4JJavaError) -> str:
    """What the JVM said, without its stack."""
    exception = error.java_exception
    return f"{exception.getClass().getSimpleName()}: {str(exception.getMessage()).splitlines()[0]}"


def lost(error: Py4JJavaError) -> bool:
    """Another commit came first; the same change can be tried again on the table as it is now."""
    return str(error.java_exception.getClass().getSimpleName()) == "CommitFailedException"


def conflict(error: Py4JJavaError) -> Exception:
    """A ConflictError where Iceberg refused the commit because of what others committed, else the error itself."""
    name = str(error.java_exception.getClass().getSimpleName())
    if name == "ValidationException" or lost(error):
        return ConflictError(f"the table changed in a way that makes this result void: {java_message(error)}")
    return error

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
    return "CommitFailedException" in _kinds(error)


def conflict(error: Py4JJavaError) -> Exception:
    """A ConflictError where Iceberg refused the commit because of what others committed, else the error itself."""
    if "ValidationException" in _kinds(error) or lost(error):
        return ConflictError(f"the table changed in a way that makes this result void: {java_message(error)}")
    return error


def _kinds(error: Py4JJavaError) -> set[str]:
    """Names of the exception and its causes: Iceberg's actions wrap what a commit raises."""
    kinds, cause = set(), error.java_exception
    while cause is not None:
        kinds.add(str(cause.getClass().getSimpleName()))
        cause = cause.getCause()
    return kinds

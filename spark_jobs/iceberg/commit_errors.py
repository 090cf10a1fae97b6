"""Says what Iceberg's refusals mean: another commit came first, or made a result void."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException

from cleantail.errors import ConflictError, OvertakenError

NOT_ANCESTOR = "is not an ancestor"
"""What Iceberg says of a commit whose base is not in main's history any more."""
UNKNOWN_STATE = "CommitStateUnknownException"
"""What it raises where nobody knows whether a commit was taken."""
MUST_BE_VECTORS = "Must use DVs"
"""What it says of position deletes for a table of format version 3."""


def java_message(error: Py4JJavaError) -> str:
    """Returns what the JVM said, without its stack."""
    exception = error.java_exception
    return f"{exception.getClass().getSimpleName()}: {str(exception.getMessage()).splitlines()[0]}"


def lost(error: Py4JJavaError) -> bool:
    """Returns whether another commit was faster: then the same change can be tried again on the table as it is now."""
    kinds = _kinds(error)
    return "CommitFailedException" in kinds and UNKNOWN_STATE not in kinds


def unknown_or_conflict(error: Py4JJavaError) -> Exception:
    """Returns what Iceberg's refusal means, as conflict does, for a commit that sees by itself whether it was done
    before: where the answer to it was lost it may be tried again."""
    if UNKNOWN_STATE in _kinds(error):
        return OvertakenError(f"nobody knows whether the commit was taken: {java_message(error)}")
    return conflict(error)


def conflict(error: Py4JJavaError) -> Exception:
    """Returns what Iceberg's refusal means where it is because of what others committed, else the error itself.

    OvertakenError: another commit came first. ConflictError: what others committed has changed what this one rests on.
    """
    message, kinds = f"the table changed in a way that makes this result void: {java_message(error)}", _kinds(error)
    if lost(error):
        return OvertakenError(message)
    refused = "ValidationException" in kinds and UNKNOWN_STATE not in kinds
    return ConflictError(message) if refused else error


def overtaken(error: Py4JJavaError) -> Exception:
    """Returns what Iceberg's refusal means, as conflict does, for a commit that makes sure by itself that nothing it
    rests on has changed: where Iceberg refused it all the same, it may be tried again on the table as it is now."""
    refused = conflict(error)
    return OvertakenError(str(refused)) if isinstance(refused, ConflictError) else refused


def void(error: IllegalArgumentException) -> Exception:
    """Returns what it means where Iceberg calls the change an illegal argument: a ConflictError, or the error
    itself."""
    if NOT_ANCESTOR in str(error):
        return ConflictError(f"what the round read was rolled back, which makes its result void: {error}")
    if MUST_BE_VECTORS in str(error):
        return ConflictError(f"the table was upgraded after the round had begun, which makes its result void: {error}")
    return error


def _kinds(error: Py4JJavaError) -> set[str]:
    """Returns the class names of the exception and its causes: Iceberg's actions wrap what a commit raises."""
    kinds, cause = set(), error.java_exception
    while cause is not None:
        kinds.add(str(cause.getClass().getSimpleName()))
        cause = cause.getCause()
    return kinds

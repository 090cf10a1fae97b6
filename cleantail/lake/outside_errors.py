"""What goes wrong outside: disks, networks, Java, files that are gone. Their exceptions in words for a person."""

from __future__ import annotations

import os

from cleantail.errors import CleantailError, OutsideError

DEBUG_VARIABLE = "CLEANTAIL_DEBUG"
"""Set in the environment: errors from outside keep their stack."""
_FOREIGN = ("py4j.", "pyspark.", "pyiceberg.", "pyarrow.", "sqlalchemy.", "botocore.", "requests.", "urllib3.")
_CHARS = 500


def explained(error: Exception) -> CleantailError | None:
    """The error as one of ours, or None for what only a defect of ours can be, whose stack is worth seeing."""
    if os.environ.get(DEBUG_VARIABLE):
        return None
    if isinstance(error, OSError):
        return OutsideError(_os_text(error))
    if "JAVA_GATEWAY" in str(error):
        return OutsideError("Spark did not start: Java 17 or newer must be on PATH (or JAVA_HOME set)")
    if any(f"{kind.__module__}.".startswith(_FOREIGN) for kind in type(error).__mro__):
        return OutsideError(_first_line(error))
    return None


def _os_text(error: OSError) -> str:
    if error.filename is None:
        return f"{type(error).__name__}: {_first_line(error)}"
    return f"{error.filename}: {error.strerror or type(error).__name__}"


def _first_line(error: Exception) -> str:
    """Of a Java exception its own message, not the name of the call that met it."""
    java = getattr(error, "java_exception", None)
    text = str(java.toString()) if java is not None else str(error)
    line = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return f"{line[:_CHARS]} ({DEBUG_VARIABLE}=1 shows the stack)"

"""Readable texts for errors of disks, networks, Java and missing files.

1. Messages of Spark, Arrow and Python may quote the key or value of a record. Messages get into logs, Airflow's
   database and alerts.
2. So a message is repeated only if its exception is about files, hosts, plans or settings.
3. For any other exception only the names of the exceptions are shown. CLEANTAIL_DEBUG=1 shows the stack.
4. For a catalog that cannot be reached, the text gives the cause: refused, host, login, missing. The driver's own text
   is dropped, because it may contain the address with a password.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterator

from cleantail.errors import CleantailError, OutsideError, TableError
from cleantail.lake.position_deletes import MEND

LOGIN = (
    "the login was refused (CLEANTAIL_CATALOG_USER and CLEANTAIL_CATALOG_PASSWORD; of a REST catalog "
    "CLEANTAIL_CATALOG_TOKEN or CLEANTAIL_CATALOG_CREDENTIAL)"
)
REFUSED = "the connection was refused: nothing listens there"
UNKNOWN_HOST = "the host is unknown"
NOT_THERE = "it answers, but it has no such catalog or database"
TIMEOUT = "no answer in time"
CERTIFICATE = "its certificate is not accepted"
NO_TLS = "it does not speak TLS, which https needs: use http, or another port?"
NO_CATALOG = "a server answers, but not as an Iceberg REST catalog: is it another service, or another path?"
UNAVAILABLE = "it answers that it is unavailable"
NOT_A_DATABASE = "the file is not a SQLite database"
CATALOG_DISK_FULL = "the disk is full"

_KINDS = (
    (UNKNOWN_HOST, {"gaierror", "NameResolutionError"}),
    (REFUSED, {"ConnectionRefusedError"}),
    (CERTIFICATE, {"SSLCertVerificationError"}),
    (NO_TLS, {"SSLError"}),
    (TIMEOUT, {"ConnectTimeout", "ReadTimeout", "TimeoutError"}),
    (LOGIN, {"UnauthorizedError", "ForbiddenError", "OAuthError", "AuthorizationExpiredError"}),
    (UNAVAILABLE, {"ServiceUnavailableError", "ServerError", "TooManyRequestsError"}),
    (NOT_THERE, {"NoSuchNamespaceError", "NoSuchWarehouseError", "NoSuchTableError"}),
    (NO_CATALOG, {"JSONDecodeError", "ValidationError"}),
)
"""Names of exception classes of sockets, requests, urllib3 and PyIceberg. The first match decides."""
_TEXTS = (
    (UNKNOWN_HOST, "could not translate host name|Name or service not known|Failed to resolve|nodename nor servname"),
    (
        LOGIN,
        "authentication failed|no password supplied|no pg_hba.conf entry|role .* does not exist|Access denied for user"
        r"|\b401 |\b403 ",
    ),
    (NOT_THERE, r"database .* does not exist|Unknown database|\b404 |Not Found"),
    (REFUSED, "Connection refused"),
    (TIMEOUT, "timeout expired|timed out"),
    (CERTIFICATE, "certificate verify failed"),
    (NOT_A_DATABASE, "file is not a database|malformed"),
    (CATALOG_DISK_FULL, "No space left on device|database or disk is full"),
)
"""Texts of libpq, MySQL, SQLite and REST answers, used if no class matches."""


def cause(error: BaseException) -> str:
    """Return one of the texts above, or the names of the exceptions if no text fits."""
    chain = list(_chain(error))
    names = {kind.__name__ for each in chain for kind in type(each).__mro__}
    for text, kinds in _KINDS:
        if names & kinds:
            return text
    messages = " ".join(str(each) for each in chain)
    known_cause = next(
        (text for text, pattern in _TEXTS if re.search(pattern, messages, re.IGNORECASE | re.DOTALL)), None
    )
    return known_cause or type(error).__name__


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes.

    urllib3 keeps the cause in `reason`, SQLAlchemy in `orig`, requests in the arguments.
    """
    waiting, visited = [error], set[int]()
    while waiting:
        each = waiting.pop(0)
        if id(each) in visited:
            continue
        visited.add(id(each))
        yield each
        inner = (
            each.__cause__,
            each.__context__,
            getattr(each, "reason", None),
            getattr(each, "orig", None),
            *each.args,
        )
        waiting += [i for i in inner if isinstance(i, BaseException)]


DEBUG_VARIABLE = "CLEANTAIL_DEBUG"
"""Environment variable. If set, errors from outside keep their stack, with messages that may quote records."""
_FOREIGN = ("py4j.", "pyspark.", "pyiceberg.", "pyarrow.", "sqlalchemy.", "botocore.", "requests.", "urllib3.")
_QUOTING = ("pyspark.", "pyarrow.")
_OF_PLANS = ("AnalysisException", "IllegalArgumentException", "ParseException", "UnsupportedOperationException")
"""PySpark's exceptions that occur before a record is read."""
_OF_FILES = (
    "java.io.",
    "java.net.",
    "java.nio.file.",
    "java.sql.",
    "java.lang.NoClassDefFoundError",
    "java.lang.OutOfMemoryError",
    "javax.net.",
    "org.apache.hadoop.",
    "org.apache.iceberg.exceptions.",
    "org.postgresql.",
    "org.sqlite.",
    "software.amazon.",
)
"""Java's exceptions with messages about files, hosts and tables, even if a task of Spark raised them."""
_OF_DRIVER = (
    *_OF_FILES,
    "java.lang.Illegal",
    "java.lang.UnsupportedOperation",
    "org.apache.spark.sql.AnalysisException",
)
_JAVA = r"([a-z]\w*(?:\.\w+)*\.[A-Z][\w$]*)"
_CONDITION = r"\[([A-Z][A-Z0-9_]{2,}(?:\.[A-Z0-9_]+)*)\] "
"""Matches Spark's name of an error, at the beginning of the message."""
_OF_JAVA = re.compile(rf"{_JAVA}(?:: {_CONDITION})?")
_OF_TASK = re.compile(rf"\(TID \d+\) \([^)]*\): (?:{_JAVA}(?:: {_CONDITION})?)?")
"""Matches `Job aborted …: Lost task 0.0 in stage 1.0 (TID 2) (host executor 1): java.io.IOException: …`."""
_OF_PYTHON = re.compile(r"^(?:\w+\.)*([A-Za-z]\w*(?:Error|Exception))(?=:|$)", re.MULTILINE)
"""Matches the exception's name at the beginning of the last line of a Python worker's stack."""
_CHARS = 500
_FILE_ERROR = re.compile(
    r"^(?:FileNotFound|Permission|IsADirectory|NotADirectory|OS)Error: \[Errno \d+\] .*$", re.MULTILINE
)
"""Matches Python's message about a file, with the file's name."""
_CUT_FILE = re.compile(r"java\.lang\.RuntimeException: (\S+) is not a Parquet file\b")
"""Matches Parquet's message about a file without its last bytes."""
_FULL = re.compile(r"No space left on device|\[Errno 28\]|database or disk is full|Disk quota exceeded")
_CLOCKS = re.compile(r"Expected sorted (snapshot|previous metadata) log entries|Invalid update timestamp")
"""Matches Iceberg's messages about a commit that seems to be older than the commit before it."""
CLOCKS = "The clock of this machine or of another one is wrong by more than a minute: set the clocks, and run again"
_VECTORS = re.compile(r"DV data sequence number|Can't index multiple DVs")
"""Matches Iceberg's messages about deletion vectors of a data file that another program registered again."""
FULL_DISK = (
    "a disk is full (No space left on device): free space on the disk of CLEANTAIL_HOME, the warehouse or "
    "spark.local.dir, here or on a Spark worker, and try again"
)


def shows_stacks() -> bool:
    """Return whether the user wants the stack of every error (DEBUG_VARIABLE)."""
    return bool(os.environ.get(DEBUG_VARIABLE))


def explained(error: Exception) -> CleantailError | None:
    """Return the error as a Cleantail error. None for a defect of Cleantail, which needs the stack."""
    if shows_stacks():
        return None
    java = getattr(error, "java_exception", None)
    if _FULL.search(f"{error} {java.toString() if java is not None else ''}"):
        file = f"{_os_text(error)}: " if isinstance(error, OSError) and error.filename is not None else ""
        return OutsideError(f"{file}{FULL_DISK}")
    if isinstance(error, OSError):
        return OutsideError(_os_text(error))
    if "JAVA_GATEWAY" in str(error):
        return OutsideError(
            "Spark did not start. The JVM's lines before this one give the reason. Spark needs Java 17 or newer"
        )
    if any(f"{kind.__module__}.".startswith(_FOREIGN) for kind in type(error).__mro__):
        text = _text(error)
        if _CLOCKS.search(text):
            return OutsideError(f"{text.rstrip('.')}. {CLOCKS}")
        if _VECTORS.search(text):
            return TableError(f"{text.rstrip('.')}. {MEND}")
        return OutsideError(f"{text} ({DEBUG_VARIABLE}=1 shows the stack)")
    return None


def stack_of(error: BaseException) -> str:
    """Return the frames of an error and its causes, with the names of exceptions and without their messages.

    A message may quote a record. Only messages of Cleantail's own errors are kept. The exception that was raised first
    is printed first, as Python does.
    """
    chain: list[BaseException] = []
    last: BaseException | None = error
    while last is not None and last not in chain:
        chain.append(last)
        last = last.__cause__ or (None if last.__suppress_context__ else last.__context__)
    return "\n".join(
        f"{''.join(traceback.format_tb(one.__traceback__))}{_name(one)}"
        f"{f': {one}' if isinstance(one, CleantailError) else ''}"
        for one in reversed(chain)
    )


def _name(error: BaseException) -> str:
    kind = type(error)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _os_text(error: OSError) -> str:
    if error.filename is None:
        return f"{type(error).__name__}: {_first_line(str(error))}"
    return f"{error.filename}: {error.strerror or type(error).__name__}"


def _text(error: Exception) -> str:
    """Return the part of an error that may be shown.

    For a Java exception, returns its own message instead of the name of the Python call that received it.
    """
    java = getattr(error, "java_exception", None)
    if java is not None:
        return _java_text(str(java.toString()))
    if type(error).__name__ in _OF_PLANS or not any(k.__module__.startswith(_QUOTING) for k in type(error).__mro__):
        return _first_line(str(error)) or _name(error)
    if not type(error).__module__.startswith("pyspark."):
        return _names(_name(error))
    condition, kinds = re.match(_CONDITION, str(error)), _OF_PYTHON.findall(str(error))
    return _of_file(str(error)) or _names(_name(error), condition[1] if condition else None, *kinds[-1:])


def _of_file(text: str) -> str | None:
    """Return the message about a file that could not be read. None if the error has another reason."""
    if cut := _CUT_FILE.search(text):
        return f"{cut[1][:_CHARS]} is not a Parquet file, or its end is missing"
    found = _FILE_ERROR.search(text)
    return f"a task of Spark: {found[0][:_CHARS]}" if found else None


def _java_text(text: str) -> str:
    """Return the part of a Java exception that may be shown. `text`: class and message, as Java prints them.

    If a task of Spark failed, the exception in the task counts. Record data can only follow the exception's name.
    """
    task, alone = _OF_TASK.search(text), _OF_JAVA.match(text)
    kept = str(task[1]).startswith(_OF_FILES) if task else bool(alone and alone[1].startswith(_OF_DRIVER))
    if kept:
        return _first_line(text)
    if known := _of_file(text):
        return known
    if task:
        in_python = _OF_PYTHON.findall(text)[-1:] if str(task[1]).endswith("PythonException") else []
        return _names(text[: task.start(1) if task[1] else task.end()].strip(": "), task[1], task[2], *in_python)
    return _names(alone[1], alone[2]) if alone else _names("an error of Java")


def _names(*names: str | None) -> str:
    return f"{', '.join(name for name in names if name)[:_CHARS]}; its message may quote a record"


def _first_line(text: str) -> str:
    return next((line.strip()[:_CHARS] for line in text.splitlines() if line.strip()), "")

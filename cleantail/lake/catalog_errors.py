"""Says why a catalog cannot be reached, in words, from what its driver raised: refused, host, login, not there. Pure.

Nothing of the driver's own text is passed on: it may hold the address with a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LOGIN = (
    "the login was refused (CLEANTAIL_CATALOG_USER and CLEANTAIL_CATALOG_PASSWORD; of a REST catalog "
    "CLEANTAIL_CATALOG_TOKEN or CLEANTAIL_CATALOG_CREDENTIAL)"
)
REFUSED = "the connection was refused: nothing listens there"
UNKNOWN_HOST = "the host is not known"
NOT_THERE = "it answers, but there is no such catalog or database"
TIMEOUT = "no answer in time"
CERTIFICATE = "its certificate is not accepted"
NO_TLS = "it does not speak TLS as https needs: http, or another port?"
NO_CATALOG = "something answers, but not as an Iceberg REST catalog does: another service, or another path?"
UNAVAILABLE = "it answers that it is not available"
NOT_A_DATABASE = "the file is not a SQLite database"
FULL_DISK = "the disk is full"

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
"""Names of exception classes, of sockets, requests, urllib3 and PyIceberg: the first that occurs decides."""
_TEXTS = (
    (UNKNOWN_HOST, "could not translate host name|Name or service not known|Failed to resolve|nodename nor servname"),
    (
        LOGIN,
        "authentication failed|no password supplied|no pg_hba.conf entry|role .* does not exist|Access denied for user"
        "|401 |403 ",
    ),
    (NOT_THERE, "database .* does not exist|Unknown database|404 |Not Found"),
    (REFUSED, "Connection refused"),
    (TIMEOUT, "timeout expired|timed out"),
    (CERTIFICATE, "certificate verify failed"),
    (NOT_A_DATABASE, "file is not a database|malformed"),
    (FULL_DISK, "No space left on device|database or disk is full"),
)
"""What libpq, MySQL, SQLite and REST answers say, where no class tells."""


def cause(error: BaseException) -> str:
    """Returns one of the texts above, or the names of the exceptions where none fits."""
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
    """Yields the error and what it came of: urllib3 has that in `reason`, SQLAlchemy in `orig`, requests in the
    arguments."""
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

"""Retry policies: which actions are tried again, how often, and after which pause.

1. A change that was overtaken is tried again unchanged. Another commit came first, but the data that was read is still
   valid (OvertakenError).
2. A round whose base has changed is void (ConflictError). It is planned, compacted and checked again.
3. Pauses are random and grow with the tries, so that two writers that met do not meet again.
4. Brokers that start up, or do not have a topic yet, are queried again at even intervals for a bounded time.
5. After the last try the caller gets the error of that try.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from cleantail.errors import ConflictError, OvertakenError, UnknownCommitError

if TYPE_CHECKING:
    from tenacity import RetryCallState

T = TypeVar("T")
Note = Callable[[int, BaseException], None]
"""Receives the number of the failed try, counted from 1, and its error, if another try follows."""


@dataclass(frozen=True, slots=True)
class Retries:
    """After which errors an action is tried again, and how often at most, including the first time.

    The pause before a try is random between the bounds of `pause_s` (seconds), times the number of tries so far. No try
    begins later than `within_s` (seconds) after the first one.
    """

    error: type[Exception] | tuple[type[Exception], ...]
    tries: int
    pause_s: tuple[float, float]
    within_s: float = math.inf

    def run(self, action: Callable[[], T], note: Note | None = None) -> T:
        """Return the result of the action. Raises the error of the last try, and any other error at once. `note` is
        called before each pause."""
        from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay

        return Retrying(
            retry=retry_if_exception_type(self.error),
            stop=stop_after_attempt(self.tries) | stop_after_delay(self.within_s),
            wait=self._pause,
            before_sleep=None if note is None else lambda state: note(state.attempt_number, _error_of(state)),
            reraise=True,
        )(action)

    def _pause(self, state: RetryCallState) -> float:
        return random.uniform(*self.pause_s) * state.attempt_number


COMMITS = Retries((OvertakenError, UnknownCommitError), tries=20, pause_s=(0.02, 0.1), within_s=300)
"""Commits. If an answer leaves open whether a commit was taken, the caller checks that before the next try. A catalog
that does not answer takes a minute for each try."""
ROUNDS = Retries(ConflictError, tries=8, pause_s=(0.1, 0.5))
"""Rounds and expiries. After the last try the job exits with code 3."""


UNSURE = {
    "CommitFailedException",
    "CommitStateUnknownException",
    "ServerError",
    "ServiceUnavailableError",
    "TooManyRequestsError",
    "ConnectionError",
    "ChunkedEncodingError",
    "Timeout",
    "OperationalError",
    "InterfaceError",
}
"""Exceptions of PyIceberg, requests and SQLAlchemy after which a change of a catalog may have been made, or may
succeed if it is sent again."""
UNNAMED = "RESTError"
"""PyIceberg's exception for a status without an exception of its own, such as 409. Its subclasses have a clear
meaning."""


OVERTAKEN = "older than last sequence number"
"""Part of PyIceberg's ValueError for a snapshot that was built before another writer added one, on any branch."""


def settled(
    change: Callable[[], T],
    taken: Callable[[], T | None] = lambda: None,
    unsure: type[Exception] | tuple[type[Exception], ...] = (),
) -> T:
    """Make a change of a catalog through PyIceberg. If the answer is unclear, find out whether the change was made.

    `taken` returns the result of a change that was made in spite of its answer, else None. Without `taken` the change
    must be idempotent, such as setting a property. `unsure`: further errors after which the change is sent again.
    Raises the error of the last try.
    """

    def once() -> T:
        try:
            return change()
        except Exception as error:
            names = {kind.__name__ for kind in type(error).__mro__}
            is_unsure = isinstance(error, unsure) or UNSURE & names or type(error).__name__ == UNNAMED
            if not is_unsure and not (isinstance(error, ValueError) and OVERTAKEN in str(error)):
                raise
            if (done := taken()) is not None:
                return done
            raise _UnsureError from error

    try:
        return _UNSURE.run(once)
    except _UnsureError as unsure:
        assert unsure.__cause__ is not None
        raise unsure.__cause__ from None


class _UnsureError(Exception):
    """Its cause is the error of the catalog."""


_UNSURE = Retries(_UnsureError, tries=12, pause_s=(0.02, 0.1), within_s=300)


def repeated(action: Callable[[], list[T]], pauses_s: Sequence[float]) -> list[T]:
    """Run an action again after each of the pauses, while it leaves work undone. Return the undone work of the last
    try."""
    from tenacity import Retrying, retry_if_result, stop_after_attempt, wait_chain, wait_fixed

    return Retrying(
        retry=retry_if_result(bool),
        stop=stop_after_attempt(1 + len(pauses_s)),
        wait=wait_chain(*map(wait_fixed, pauses_s)),
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else [],
    )(action)


def answered(ask: Callable[[], T], passes: Callable[[BaseException], bool], every_s: float, within_s: float) -> T:
    """Return the answer of an outside service, such as a broker that starts up.

    Ask again every `every_s` seconds, as long as `ask` raises an error that `passes` accepts. Raise any other error at
    once, and the last error after `within_s` seconds.
    """
    from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

    return Retrying(
        retry=retry_if_exception(passes), stop=stop_after_delay(within_s), wait=wait_fixed(every_s), reraise=True
    )(ask)


def _error_of(state: RetryCallState) -> BaseException:
    error = state.outcome.exception() if state.outcome else None
    assert error is not None, "only an error is tried again"
    return error

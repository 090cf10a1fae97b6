"""Says what is tried again, how often and after which pause: the policies of everything that may lose against others.

1. Only what was overtaken is tried again in the same way: another commit came first, nothing that was read has changed
   its meaning, and the same change can be made of the table as it is now (OvertakenError).
2. A round of which the base has changed is void (ConflictError). It is compacted and checked anew, not merely repeated.
3. Pauses are random and grow with the tries, so that two writers that met do not meet again and again.
4. Brokers that come up, or know of a topic in a moment, are asked again after even pauses, for a bounded time.
5. After the last try the caller gets that try's own error.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from cleantail.errors import ConflictError, OvertakenError, UnknownCommitError

if TYPE_CHECKING:
    from tenacity import RetryCallState

T = TypeVar("T")
Note = Callable[[int, BaseException], None]
"""Gets the number of the try that failed, counted from 1, and its error, where another one follows."""


@dataclass(frozen=True, slots=True)
class Retries:
    """Says after which error an action is tried again, and how often at most; the first time counts.

    The pause before a try is between the two bounds of `pause_s`, in seconds, times the number of tries so far.
    """

    error: type[Exception] | tuple[type[Exception], ...]
    tries: int
    pause_s: tuple[float, float]

    def run(self, action: Callable[[], T], note: Note | None = None) -> T:
        """Returns what the action returns. Raises the error of the last try, and any other error at once.

        `note` is called before the pause, for a line in the log: "round r1 starts over (1 of 8): ...".
        """
        from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

        return Retrying(
            retry=retry_if_exception_type(self.error),
            stop=stop_after_attempt(self.tries),
            wait=self._pause,
            before_sleep=None if note is None else lambda state: note(state.attempt_number, _error_of(state)),
            reraise=True,
        )(action)

    def _pause(self, state: RetryCallState) -> float:
        return random.uniform(*self.pause_s) * state.attempt_number


COMMITS = Retries((OvertakenError, UnknownCommitError), tries=20, pause_s=(0.02, 0.1))
"""Commits: of one whose answer says nothing it is found out before each try whether it was taken."""
ROUNDS = Retries(ConflictError, tries=8, pause_s=(0.1, 0.5))
"""Rounds and expiries: each try plans, compacts and checks anew. After the last one the job exits with code 3."""


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
"""Exceptions of PyIceberg, requests and SQLAlchemy after which a change of a catalog may have been made, or may be made
if it is sent again."""
UNNAMED = "RESTError"
"""What PyIceberg raises for a status that has no exception of its own there, such as 409 to a change of properties. Its
subclasses are answers that say what they mean."""


def settled(change: Callable[[], T], taken: Callable[[], T | None] = lambda: None) -> T:
    """Make a change of a catalog through PyIceberg, and find out what became of it if the answer does not say so.

    `taken` returns the result of a try that was made although its answer was another, else None. Without it the change
    must be one that may be made twice, such as setting a property. Raises the last try's error.
    """

    def once() -> T:
        try:
            return change()
        except Exception as error:
            if not UNSURE & {kind.__name__ for kind in type(error).__mro__} and type(error).__name__ != UNNAMED:
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
    """Has the error of the catalog as its cause."""


_UNSURE = Retries(_UnsureError, tries=12, pause_s=(0.02, 0.1))


def repeated(action: Callable[[], list[T]], pauses_s: Sequence[float]) -> list[T]:
    """Does an action again, after each of the pauses, while it leaves something undone; returns what the last try has
    left."""
    from tenacity import Retrying, retry_if_result, stop_after_attempt, wait_chain, wait_fixed

    return Retrying(
        retry=retry_if_result(bool),
        stop=stop_after_attempt(1 + len(pauses_s)),
        wait=wait_chain(*map(wait_fixed, pauses_s)),
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else [],
    )(action)


def answered(ask: Callable[[], T], passes: Callable[[BaseException], bool], every_s: float, within_s: float) -> T:
    """Returns the answer of somebody outside, such as a broker that comes up.

    Asks again, every `every_s` seconds, while the error that `ask` raises is one that `passes`. Raises any other error
    at once, and once `within_s` seconds are over that of the last time.
    """
    from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

    return Retrying(
        retry=retry_if_exception(passes), stop=stop_after_delay(within_s), wait=wait_fixed(every_s), reraise=True
    )(ask)


def _error_of(state: RetryCallState) -> BaseException:
    error = state.outcome.exception() if state.outcome else None
    assert error is not None, "only an error is tried again"
    return error

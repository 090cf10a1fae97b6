"""What is tried again, and what is not."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import pytest
import requests
from pyiceberg.catalog.rest.response import _handle_non_200_response
from pyiceberg.exceptions import NoSuchNamespaceError, RESTError

from cleantail.errors import ConflictError, HeldError, OvertakenError
from cleantail.retries import COMMITS, ROUNDS, Retries, answered, repeated, settled


@dataclass
class Losing:
    """An action that raises the errors one after another, then returns the number of its calls."""

    errors: list[Exception]
    calls: int = 0

    def __call__(self) -> int:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.calls


@dataclass
class Sleeps:
    seconds: list[float] = field(default_factory=list)

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> Sleeps:
    slept = Sleeps()
    monkeypatch.setattr(time, "sleep", slept)
    return slept


def test_a_commit_that_was_overtaken_is_tried_again(sleeps):
    assert COMMITS.run(Losing([OvertakenError("a"), OvertakenError("b")])) == 3
    assert len(sleeps.seconds) == 2


def test_a_void_result_is_not_merely_repeated(sleeps):
    action = Losing([ConflictError("the base is gone")])
    with pytest.raises(ConflictError, match="the base is gone"):
        COMMITS.run(action)
    assert (action.calls, sleeps.seconds) == (1, [])


def test_no_try_begins_after_its_time():
    action = Losing([OvertakenError("slow")] * 9)
    with pytest.raises(OvertakenError):
        Retries(OvertakenError, tries=10, pause_s=(0.1, 0.1), within_s=0.05).run(action)
    assert action.calls == 2


@pytest.mark.parametrize("error", [OvertakenError, ConflictError], ids=["overtaken", "void"])
def test_a_round_starts_over_after_any_conflict(error, sleeps):
    assert ROUNDS.run(Losing([error("a")])) == 2


def test_a_round_that_waits_for_approval_does_not_start_over(sleeps):
    action = Losing([HeldError("ask")])
    with pytest.raises(HeldError, match="ask"):
        ROUNDS.run(action)
    assert action.calls == 1


@pytest.mark.parametrize("policy", [COMMITS, ROUNDS], ids=["commits", "rounds"])
def test_the_last_try_raises_its_own_error(policy: Retries, sleeps):
    action = Losing([OvertakenError(str(n)) for n in range(1, 100)])
    with pytest.raises(OvertakenError, match=f"^{policy.tries}$"):
        policy.run(action)
    assert action.calls == policy.tries
    assert len(sleeps.seconds) == policy.tries - 1


def test_pauses_are_random_and_grow_with_the_tries(sleeps):
    policy = Retries(OvertakenError, tries=5, pause_s=(1.0, 2.0))
    with pytest.raises(OvertakenError, match="lost"):
        policy.run(Losing([OvertakenError("lost") for _ in range(5)]))
    assert len(set(sleeps.seconds)) == 4
    assert all(n <= seconds <= 2 * n for n, seconds in enumerate(sleeps.seconds, start=1))


def test_a_note_is_made_of_each_try_that_another_one_follows(sleeps):
    notes: list[tuple[int, str]] = []
    policy = Retries(OvertakenError, tries=3, pause_s=(0.0, 0.0))
    with pytest.raises(OvertakenError, match="c"):
        policy.run(Losing([OvertakenError(t) for t in "abc"]), lambda number, e: notes.append((number, str(e))))
    assert notes == [(1, "a"), (2, "b")]


def test_an_interrupt_ends_the_tries():
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        COMMITS.run(interrupted)


@pytest.mark.parametrize(
    ("left", "last", "slept"),
    [
        pytest.param([[]], [], [], id="nothing is left"),
        pytest.param([["mail"], []], [], [5], id="nothing is left at the second try"),
        pytest.param([["mail", "chat"], ["mail"], ["mail"]], ["mail"], [5, 20], id="something is left for good"),
    ],
)
def test_what_leaves_something_undone_is_repeated_after_each_pause(left, last, slept, sleeps):
    tries = iter(left)
    assert repeated(lambda: next(tries), (5, 20)) == last
    assert (sleeps.seconds, list(tries)) == (slept, [])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Sleeps:
    """A clock that only sleeps move."""
    slept = Sleeps()
    monkeypatch.setattr(time, "sleep", slept)
    monkeypatch.setattr(time, "monotonic", lambda: sum(slept.seconds))
    return slept


def is_overtaken(error: BaseException) -> bool:
    return isinstance(error, OvertakenError)


def test_an_answer_is_asked_for_again_while_its_error_passes(clock):
    assert answered(Losing([OvertakenError("a"), OvertakenError("b")]), is_overtaken, every_s=0.5, within_s=9) == 3
    assert clock.seconds == [0.5, 0.5]


def test_an_error_that_does_not_pass_is_raised_at_once(clock):
    action = Losing([OvertakenError("a"), HeldError("no")])
    with pytest.raises(HeldError, match="no"):
        answered(action, is_overtaken, every_s=0.5, within_s=9)
    assert (action.calls, clock.seconds) == (2, [0.5])


def test_the_last_error_is_raised_once_the_time_is_over(clock):
    action = Losing([OvertakenError(str(n)) for n in range(1, 100)])
    with pytest.raises(OvertakenError, match="^5$"):
        answered(action, is_overtaken, every_s=0.5, within_s=2)
    assert clock.seconds == [0.5] * 4


def of_status(status: int) -> Exception:
    """What PyIceberg makes of an answer to a change of a namespace's properties."""
    response = requests.Response()
    response.status_code, response._content = status, b"<html>a gateway answers</html>"
    try:
        _handle_non_200_response(requests.HTTPError(response=response), {404: NoSuchNamespaceError})
    except Exception as error:
        return error
    raise AssertionError("no error")


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504])
def test_a_change_of_a_catalog_is_made_again_if_its_answer_does_not_say_what_became_of_it(sleeps, status):
    action = Losing([of_status(status), of_status(status)])
    assert settled(action) == 3
    assert settled(Losing([of_status(status)]), lambda: -1) == -1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 419, 501])
def test_a_change_that_a_catalog_refuses_is_not_made_again(sleeps, status):
    action = Losing([error := of_status(status)])
    with pytest.raises(type(error), match=r"."):
        settled(action)
    assert (action.calls, sleeps.seconds) == (1, [])


def test_a_change_whose_every_answer_is_unsure_ends_with_the_last_one(sleeps):
    action = Losing([of_status(409)] * 50)
    with pytest.raises(RESTError, match="409"):
        settled(action)
    assert action.calls == 12


def test_a_snapshot_that_was_built_before_one_on_another_branch_is_built_again(orders_table, sleeps):
    orders_table.append((0, 0, 1, b"a", b"1"))
    name, rows = orders_table.topic.table, orders_table.table.scan().to_arrow()
    stale, other = orders_table.catalog.load_table(name), orders_table.catalog.load_table(name)
    other.manage_snapshots().create_branch(other.current_snapshot().snapshot_id, "side").commit()
    stale.refresh()
    other.append(rows, branch="side")

    def append():
        stale.append(rows)
        return True

    def taken():
        stale.refresh()

    with pytest.raises(ValueError, match="older than last sequence number"):
        append()
    assert settled(append, taken) is True
    assert orders_table.catalog.load_table(name).scan().to_arrow().num_rows == 2


def test_another_error_of_values_is_not_tried_again(sleeps):
    with pytest.raises(ValueError, match="no such column"):
        settled(lambda: int("no such column"))

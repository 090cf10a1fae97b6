"""Incidents: told once, also when sending failed, and told again when over, to those who know of them."""

import json
from dataclasses import replace

import pytest

from cleantail.events import MEANING, Event
from cleantail.incidents import (
    Condition,
    Incident,
    Listener,
    after_telling,
    book_as_json,
    observed,
    parse_book,
    to_tell,
    without_settled,
)

RUN = Condition(Event.RUN_FAILED, "task compact", "compact failed", "link")
CHECK = Condition(Event.CHECK_FAILED, "partition 4 since 7", "partition 4: check failed: x", "link", 4)
HELD = Condition(Event.QUARANTINED, "partition 4 since 7", "partition 4 is in quarantine", "", 4)
MAIL, CHAT = Listener("mail", tuple(Event)), Listener("chat", tuple(Event))


def everything(_):
    return True


def nothing(_):
    return False


def told(book, listener, reached=True):
    """What the channel hears, as (event, over), and the book after it."""
    begun, ended = to_tell(book, listener)
    heard = [(i.condition.event, i.over_ms is not None) for i in (*begun, *ended)]
    return heard, after_telling(book, listener, [*begun, *ended]) if reached else book


def play(*steps, listeners=(MAIL,)):
    """What the channels hear at each step: (conditions, is it known, are they reached)."""
    book, heard = {}, []
    for now_ms, (conditions, known, reached) in enumerate(steps):
        book = observed(book, conditions, known, now_ms)
        for listener in listeners:
            now, book = told(book, listener, reached)
            heard.append([over for _, over in now])
        book = without_settled(book, listeners)
    return heard, book


def test_every_event_has_a_meaning():
    assert set(MEANING) == set(Event)


# ---- once


@pytest.mark.parametrize(
    ("steps", "heard"),
    [
        pytest.param([([RUN], everything, True)] * 3, [[False], [], []], id="however long it lasts"),
        pytest.param(
            [([RUN], everything, True), ([], everything, True), ([], everything, True)],
            [[False], [True], []],
            id="its end once too",
        ),
        pytest.param(
            [([RUN], everything, False), ([RUN], everything, True), ([RUN], everything, True)],
            [[False], [False], []],
            id="sending failed: the next run sends",
        ),
        pytest.param(
            [([RUN], everything, True), ([], everything, False), ([], everything, True), ([], everything, True)],
            [[False], [True], [True], []],
            id="sending the end failed",
        ),
        pytest.param(
            [([RUN], everything, False), ([], everything, True), ([], everything, True)],
            [[False], [True], []],
            id="over before it could be told: told by its end",
        ),
        pytest.param(
            [([RUN], everything, True), ([], nothing, True), ([RUN], everything, True)],
            [[False], [], []],
            id="a run that could not look ends nothing",
        ),
        pytest.param(
            [([RUN], everything, True), ([], everything, True), ([RUN], everything, True)],
            [[False], [True], [False]],
            id="again: a new incident",
        ),
        pytest.param(
            [([RUN], everything, True), ([], everything, False), ([RUN], everything, True), ([RUN], everything, True)],
            [[False], [True], [], []],
            id="back before its end was heard: it never ended",
        ),
        pytest.param([([], everything, True)], [[]], id="nothing"),
    ],
)
def test_a_channel_hears_of_the_begin_and_of_the_end_once(steps, heard):
    assert play(*steps)[0] == heard


def test_back_before_everybody_heard_of_the_end_it_is_new_only_to_those_who_had():
    book = observed({}, [RUN], everything, 1)
    for listener in (MAIL, CHAT):
        _, book = told(book, listener)
    book = observed(book, [], everything, 2)
    _, book = told(book, MAIL)  # chat cannot be reached
    book = observed(without_settled(book, [MAIL, CHAT]), [RUN], everything, 3)
    assert (told(book, MAIL)[0], told(book, CHAT)[0]) == ([(RUN.event, False)], [])
    assert book[RUN.key].since_ms == 3


def test_one_channel_that_fails_does_not_make_the_others_hear_twice():
    book = observed({}, [RUN], everything, 1)
    _, book = told(book, MAIL)
    _, book = told(book, CHAT, reached=False)
    book = observed(book, [RUN], everything, 2)
    assert (told(book, MAIL)[0], told(book, CHAT)[0]) == ([], [(RUN.event, False)])


def test_a_channel_that_is_new_hears_of_what_is_open():
    _, book = told(observed({}, [RUN], everything, 1), MAIL)
    assert told(book, CHAT)[0] == [(RUN.event, False)]


def test_what_is_over_and_known_to_be_is_forgotten():
    assert play(([RUN], everything, True), ([], everything, True))[1] == {}


def test_a_channel_that_is_gone_keeps_nothing_open():
    book = observed(told(observed({}, [RUN], everything, 1), CHAT)[1], [], everything, 2)
    assert without_settled(book, []) == {}
    assert told(observed({}, [RUN], everything, 1), CHAT)[1][RUN.key].told == {"chat"}
    assert without_settled(told(observed({}, [RUN], everything, 1), CHAT)[1], [MAIL])[RUN.key].told == frozenset()


def test_a_channel_hears_only_of_its_events():
    only_runs = Listener("mail", (Event.RUN_FAILED,))
    book = observed({}, [RUN, HELD], everything, 1)
    assert told(book, only_runs)[0] == [(Event.RUN_FAILED, False)]


def test_words_and_mark_of_an_open_incident_are_the_newest_and_its_time_the_first():
    book = observed({}, [replace(RUN, mark=9)], everything, 1)
    book = observed(book, [replace(RUN, text="again", mark=3)], everything, 2)
    assert book[RUN.key] == Incident(replace(RUN, text="again", mark=9), 1)


# ---- a failed check and its quarantine are one incident


def test_who_heard_of_the_check_does_not_hear_of_its_quarantine_too():
    heard, book = play(([CHECK], nothing, True), ([CHECK, HELD], everything, True), ([], everything, True))
    assert heard == [[False], [], [True]]
    assert book == {}


def test_who_wants_only_quarantines_hears_of_them():
    listener = Listener("mail", (Event.QUARANTINED,))
    heard, _ = play(([CHECK, HELD], everything, True), ([], everything, True), listeners=[listener])
    assert heard == [[False], [True]]


def test_who_heard_of_a_quarantine_does_not_hear_of_the_failed_check_of_its_next_try():
    heard, book = play(([HELD], everything, True), ([CHECK, HELD], everything, True), ([], everything, True))
    assert heard == [[False], [], [True]]
    assert book == {}


def test_a_red_check_after_a_rejection_is_another_incident():
    rejected = replace(HELD, text="partition 4 is held back: rejected by anna")
    check, held = (replace(c, subject="partition 4 since 9") for c in (CHECK, HELD))
    heard, book = play(([rejected], everything, True), ([check], nothing, True), ([check, held], everything, True))
    assert heard == [[False], [False], [True]]
    assert set(book) == {check.key, held.key}


def test_after_a_release_the_next_failed_check_is_another_incident():
    again = replace(CHECK, subject="partition 4 since 9")
    heard, _ = play(([CHECK], everything, True), ([again], everything, True))
    assert heard == [[False], [False, True]]


# ---- kept as text


def test_a_book_is_the_same_after_it_was_kept():
    _, book = told(observed({}, [RUN, CHECK, HELD], everything, 1), MAIL)
    book = observed(book, [RUN], everything, 2)
    assert parse_book(book_as_json(book)) == book


def test_equal_books_are_equal_texts():
    one, other = observed({}, [RUN, CHECK], everything, 1), observed({}, [CHECK, RUN], everything, 1)
    assert book_as_json(one) == book_as_json(other)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '"x"',
        '{"version": 2, "incidents": []}',
        '{"version": 1}',
        '{"version": 1, "incidents": [{}]}',
        '{"version": 1, "incidents": [3]}',
    ],
)
def test_what_is_no_book_is_an_error(text):
    with pytest.raises(ValueError, match="book|version|Expecting"):
        parse_book(text)


def test_an_event_of_another_version_is_an_error():
    text = book_as_json(observed({}, [RUN], everything, 1)).replace("run_failed", "sun_failed")
    with pytest.raises(ValueError, match="sun_failed"):
        parse_book(text)
    assert json.loads(text)["version"] == 1

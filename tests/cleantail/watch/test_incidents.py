"""What a look makes of the book: what begins, what lasts, and who may say that something is over."""

from dataclasses import replace

import pytest

from cleantail.config.alert_channels import MEANING, Event
from cleantail.watch.incidents import (
    Book,
    Condition,
    Incident,
    IncidentState,
    LastMessage,
    Observation,
    book_as_json,
    cause_of,
    observed,
    parse_book,
)

RUN = Condition(Event.RUN_FAILED, "task compact", "compact failed", "link")
CHECK = Condition(Event.CHECK_FAILED, "partition 4", "partition 4: check failed: x", "link", 4, occurrence="since 7")


def everything(_):
    return True


def nothing(_):
    return False


def look(*conditions, at_ms=1, known=everything, run_id=None, whole=True):
    """Of a run that began at `at_ms`, which is also its clock."""
    return Observation(conditions, known, at_ms, at_ms, run_id or f"run {at_ms}", whole)


def after(*looks, book=None):
    book = book or Book()
    for one in looks:
        book = observed(book, one)
    return book


def open_keys(book):
    return {key for key, incident in book.incidents.items() if incident.is_open}


def test_every_event_has_a_meaning():
    assert set(MEANING) == set(Event)


def test_what_is_seen_begins_with_the_run_that_saw_it():
    incident = after(look(RUN, at_ms=9)).incidents[RUN.key]
    assert incident == Incident(replace(RUN, seen_ms=9, run_id="run 9"), 9)
    assert incident.is_open


def test_an_incident_begins_when_it_was_seen_even_if_it_is_observed_later():
    assert after(look(replace(RUN, seen_ms=8), at_ms=9)).incidents[RUN.key].since_ms == 8


@pytest.mark.parametrize(
    ("known", "over_ms"),
    [pytest.param(everything, 2, id="a look that could see it"), pytest.param(nothing, None, id="one that could not")],
)
def test_only_an_observation_that_could_see_an_incident_ends_it(known, over_ms):
    book = after(look(RUN), look(at_ms=2, known=known))
    assert book.incidents[RUN.key].over_ms == over_ms


def test_what_is_over_ended_when_that_was_first_seen():
    assert after(look(RUN), look(at_ms=2), look(at_ms=3)).incidents[RUN.key].over_ms == 2


def test_only_an_observation_of_the_whole_topic_sets_looked_ms():
    part = Observation((), everything, 1, 1, "run 1")
    assert observed(Book(), part).looked_ms == 0
    assert observed(Book(), replace(part, whole=True)).looked_ms == 1


def test_an_ended_incident_begins_again_when_it_is_seen_again():
    book = after(look(RUN), look(at_ms=2), look(at_ms=3), look(RUN, at_ms=4))
    assert (book.incidents[RUN.key].since_ms, book.incidents[RUN.key].over_ms) == (4, None)


def test_last_messages_survive_the_end_and_the_next_begin_of_an_incident():
    last_messages = {"mail": LastMessage(IncidentState.OPEN)}
    begun = after(look(RUN)).incidents[RUN.key]
    book = after(look(at_ms=2), look(RUN, at_ms=3), book=Book({RUN.key: replace(begun, last_messages=last_messages)}))
    assert book.incidents[RUN.key].last_messages == last_messages


def test_words_and_mark_of_an_open_incident_are_the_newest_and_its_time_the_first():
    incident = after(look(replace(RUN, mark=9)), look(replace(RUN, text="again", mark=3), at_ms=2)).incidents[RUN.key]
    assert (incident.condition.text, incident.condition.mark, incident.since_ms) == ("again", 9, 1)


def test_a_second_quarantine_is_the_same_incident_with_a_new_begin():
    again = replace(CHECK, occurrence="since 9", link="")
    book = after(look(CHECK), look(again, at_ms=2))
    assert [(i.since_ms, i.is_open, i.condition.link) for i in book.incidents.values()] == [(2, True, "")]


def test_what_the_table_shows_keeps_the_link_to_the_task_that_saw_it():
    book = after(look(CHECK), look(replace(CHECK, link=""), at_ms=2))
    assert book.incidents[CHECK.key].condition.link == "link"


def test_a_newer_link_takes_the_place_of_the_older():
    book = after(look(CHECK), look(replace(CHECK, link="newer"), at_ms=2))
    assert book.incidents[CHECK.key].condition.link == "newer"


# ---- looks of earlier runs: a task of one may be cleared at any time


def test_an_earlier_run_does_not_end_what_a_later_one_has_seen():
    book = after(look(CHECK, at_ms=5, whole=False), look(at_ms=4))
    assert open_keys(book) == {CHECK.key}
    assert open_keys(after(look(at_ms=5), book=book)) == set()


def test_the_run_that_saw_it_may_end_it_though_it_saw_it_after_it_began():
    late = replace(RUN, seen_ms=8)
    book = after(look(late, at_ms=5))
    assert open_keys(after(look(at_ms=5), book=book)) == set()
    assert open_keys(after(look(at_ms=7), book=book)) == {RUN.key}
    assert open_keys(after(look(at_ms=8), book=book)) == set()


def test_what_an_earlier_run_saw_opens_nothing_once_a_later_one_has_looked_at_everything():
    early = replace(RUN, seen_ms=4)
    assert open_keys(after(look(at_ms=5), look(early, at_ms=4))) == set()
    assert open_keys(after(look(at_ms=5, whole=False), look(early, at_ms=4))) == {RUN.key}
    assert open_keys(after(look(at_ms=5), look(replace(RUN, seen_ms=5), at_ms=4))) == {RUN.key}
    assert open_keys(after(look(RUN), look(at_ms=5), look(early, at_ms=4))) == set()


def test_what_a_task_of_an_earlier_run_sees_itself_is_how_it_is_now():
    assert open_keys(after(look(at_ms=5), look(CHECK, at_ms=4))) == {CHECK.key}
    assert open_keys(after(look(at_ms=5), look(CHECK, at_ms=4), look(at_ms=6))) == set()


def test_an_incident_keeps_the_text_of_the_latest_run_that_could_see_it():
    again = replace(RUN, text="again", seen_ms=4)
    book = after(look(RUN), look(at_ms=5, known=nothing), look(again, at_ms=4))
    assert book.incidents[RUN.key].condition.text == "again"


def test_an_earlier_run_does_not_lower_looked_ms():
    assert after(look(at_ms=5), look(at_ms=4)).looked_ms == 5


def test_an_earlier_run_does_not_replace_the_condition_of_an_open_incident():
    again = replace(CHECK, occurrence="since 9")
    book = after(look(again, at_ms=5), look(replace(CHECK, seen_ms=4), at_ms=4))
    assert book.incidents[CHECK.key].condition.occurrence == "since 9"


def test_the_look_that_ends_an_incident_says_how_it_ended():
    waits = Condition(Event.APPROVAL, "task approve of run r", "a round waits")
    answered = replace(look(at_ms=2, whole=False), outcome="approved by Anna")
    book = after(look(waits, CHECK), replace(answered, is_known=lambda condition: condition.event is Event.APPROVAL))
    assert {i.condition.event: i.outcome for i in book.incidents.values()} == {
        Event.APPROVAL: "approved by Anna",
        Event.CHECK_FAILED: "",
    }
    assert parse_book(book_as_json(book)) == book
    again = after(look(waits, at_ms=3), book=book).incidents[waits.key]
    assert (again.is_open, again.outcome) == (True, "")


def test_a_new_cause_is_the_same_incident_since_its_beginning_and_a_look_without_one_keeps_it():
    first, second = replace(RUN, cause="a"), replace(RUN, cause="b")
    book = after(look(first), look(second, at_ms=2), look(RUN, at_ms=3))
    [incident] = book.incidents.values()
    assert (incident.since_ms, incident.condition.cause) == (1, "b")


@pytest.mark.parametrize(
    ("reason", "same"),
    [
        pytest.param("offset 12 of partition 3 is gone", True, id="numbers"),
        pytest.param("offset 12, of partition 3/5 is gone", True, id="numbers next to signs"),
        pytest.param("offset 7  of\npartition 4 is gone", True, id="spaces"),
        pytest.param("offset twelve of partition 3 is gone", False, id="words"),
        pytest.param("gone is offset 12 of partition 3", False, id="order"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_the_cause_is_the_reason_without_numbers(reason, same):
    assert (cause_of(reason) == cause_of("offset 1 of partition 0 is gone")) is same


@pytest.mark.parametrize(
    ("run_id", "since_ms", "word", "link"),
    [
        pytest.param("run 1", 1, "since 9", "link", id="a round that started over"),
        pytest.param("run 2", 2, "since 7", "", id="a later run"),
    ],
)
def test_a_check_that_fails_again_in_the_same_run_does_not_begin_again(run_id, since_ms, word, link):
    book = after(look(CHECK))
    told = replace(book.incidents[CHECK.key], last_messages={"mail": LastMessage(IncidentState.OPEN, "since 7")})
    again = replace(CHECK, occurrence="since 9", link="")
    book = after(look(again, at_ms=2, run_id=run_id), book=replace(book, incidents={CHECK.key: told}))
    [incident] = book.incidents.values()
    assert (incident.since_ms, incident.condition.occurrence, incident.condition.link) == (since_ms, "since 9", link)
    assert incident.last_messages["mail"] == LastMessage(IncidentState.OPEN, word)


def test_a_channel_that_missed_the_first_failure_of_a_run_is_told_of_the_second():
    unsure = LastMessage(IncidentState.UNSURE, by="a task")
    book = after(look(CHECK))
    told = replace(book.incidents[CHECK.key], last_messages={"mail": unsure})
    again = replace(CHECK, occurrence="since 9")
    book = after(look(again, at_ms=2, run_id="run 1"), book=replace(book, incidents={CHECK.key: told}))
    assert book.incidents[CHECK.key].last_messages["mail"] == unsure

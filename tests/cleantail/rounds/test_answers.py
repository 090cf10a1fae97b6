"""What an answer about a round means, as a table, and that it is stored next to the tables."""

from __future__ import annotations

import pytest

from cleantail.config.topic import Topic
from cleantail.errors import HeldError, TableError
from cleantail.lake.own_namespace import PROPERTY_ANSWER, read_answer, write_answer
from cleantail.rounds.approval import Answer, Rejection, answered, decided, question
from cleantail.rounds.checked_round import Verdict
from tests.cleantail.orders_table import OrdersTable
from tests.round_builders import checked_round, staged_unit

ANNA = {"id": "anna", "name": "Anna"}
TASK = ("orders", "manual__1", "approve")
CHECKED = checked_round()
FREE = checked_round(holds=())


def topic(*approvers):
    yaml = {"topic": "orders", "table": "cleantail.orders", "publish": "approve", "approvers": list(approvers)}
    return Topic.model_validate(yaml)


def yes(checked=CHECKED, user=ANNA):
    return answered(question(checked, TASK, 5), TASK, True, user, 6)


def no(user=ANNA):
    return answered(question(CHECKED, TASK, 5), TASK, False, user, 6)


@pytest.mark.parametrize(
    ("checked", "answer", "means"),
    [
        pytest.param(FREE, None, None, id="nothing waits, and nobody was asked"),
        pytest.param(CHECKED, yes(), "Anna", id="a yes"),
        pytest.param(CHECKED, no(), Rejection("Anna", 6), id="a no"),
        pytest.param(CHECKED, no(None), Rejection(None, 6), id="nobody in time"),
        pytest.param(FREE, no(), Rejection("Anna", 6), id="a no counts though it need not wait any more"),
        pytest.param(FREE, question(CHECKED, TASK, 5), None, id="asked, and it need not wait any more"),
    ],
)
def test_an_answer_means(checked, answer, means):
    assert decided(topic("anna"), checked, answer) == means


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(None, "no user was asked about it", id="no question"),
        pytest.param(yes(checked_round(round="r0")), "no user was asked about it", id="of another round"),
        pytest.param(yes(checked_round(kind="expire")), "no user was asked about it", id="of another kind"),
        pytest.param(
            yes(checked_round(units=(staged_unit(head_snapshot_id=40),))), "made or checked again", id="of other heads"
        ),
        pytest.param(yes(checked_round(verdicts=(Verdict(0, False),))), "made or checked again", id="of other logs"),
        pytest.param(question(CHECKED, TASK, 5), "no user has answered", id="no answer"),
        pytest.param(yes(user={"id": "eve", "name": "anna"}), "not among the topic's approvers", id="of somebody else"),
        pytest.param(yes(user=None), "not among the topic's approvers", id="of nobody"),
    ],
)
def test_a_round_that_waits_is_not_published_by_an_answer(answer, why):
    with pytest.raises(HeldError, match=f"round r1 .* has no valid approval: .*{why}.*Clear its approval task"):
        decided(topic("anna"), CHECKED, answer)


def test_without_named_approvers_any_user_that_airflow_allows_may_approve():
    assert decided(topic(), CHECKED, yes(user={"id": "eve", "name": ""})) == "eve"


def test_an_answer_about_another_topic_is_not_read(project):
    catalog, orders = OrdersTable(project).catalog, topic("anna")
    write_answer(catalog, orders, yes())
    [(name, text)] = [
        (n, t) for n, t in catalog.load_namespace_properties("cleantail").items() if n.startswith(PROPERTY_ANSWER)
    ]
    assert read_answer(catalog, orders, "compact") == yes()
    catalog.update_namespace_properties("cleantail", updates={name: text.replace('"orders"', '"payments"')})
    assert read_answer(catalog, orders, "compact") is None


def test_a_stored_answer_is_read(project):
    catalog, orders = OrdersTable(project).catalog, topic("anna")
    write_answer(catalog, orders, yes())
    [name] = [n for n in catalog.load_namespace_properties("cleantail") if n.startswith(PROPERTY_ANSWER)]
    text = (
        '{"approved": true, "asked_at_ms": 5, "at_ms": 6, "by": "Zo\\u00eb", "kind": "compact", "round": "r1", '
        '"shown": "ab", "task": "cd", "topic": "orders", "user": "7"}'
    )
    catalog.update_namespace_properties("cleantail", updates={name: text})
    expected = Answer("orders", "compact", "r1", "ab", "cd", 5, True, "7", "Zoë", 6)
    assert read_answer(catalog, orders, "compact") == expected


def test_an_answer_is_kept_in_the_place_of_the_question_and_for_each_topic_and_kind_of_its_own(project):
    catalog, orders = OrdersTable(project).catalog, topic("anna")
    assert read_answer(catalog, orders, "compact") is None
    write_answer(catalog, orders, question(CHECKED, TASK, 5))
    assert read_answer(catalog, orders, "compact").approved is None
    write_answer(catalog, orders, yes())
    write_answer(catalog, orders, question(checked_round(kind="expire"), TASK, 7))
    assert read_answer(catalog, orders, "compact") == yes()
    assert read_answer(catalog, orders, "expire").asked_at_ms == 7
    other = Topic.model_validate({"topic": "others", "table": "cleantail.others"})
    assert read_answer(catalog, other, "compact") is None


def test_a_property_that_is_no_answer_is_an_error_that_names_it(project):
    catalog, orders = OrdersTable(project).catalog, topic("anna")
    write_answer(catalog, orders, yes())
    [name] = [n for n in catalog.load_namespace_properties("cleantail") if n.startswith(PROPERTY_ANSWER)]
    catalog.update_namespace_properties("cleantail", updates={name: "{}"})
    with pytest.raises(TableError, match=f"{name} is not an answer about a round"):
        read_answer(catalog, orders, "compact")


def test_an_answer_fits_into_what_a_catalog_takes_as_a_property(project):
    long = checked_round(topic="t" * 249, units=tuple(staged_unit(head_snapshot_id=2**62 + n) for n in range(100)))
    catalog, task = OrdersTable(project).catalog, ("t" * 249, "manual__" + "x" * 240, "approve_expiry")
    wordy = Topic.model_validate({"topic": "t" * 249, "table": "cleantail.t"})
    write_answer(catalog, wordy, answered(question(long, task, 5), task, True, {"id": "a" * 128, "name": "b" * 128}, 6))
    [(name, text)] = [(n, t) for n, t in catalog.load_namespace_properties("cleantail").items() if "answer" in n]
    assert (len(name) <= 255, len(text) <= 1000) == (True, True)

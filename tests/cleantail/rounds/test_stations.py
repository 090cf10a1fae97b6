"""The table of stations, and what reads it."""

from __future__ import annotations

from types import SimpleNamespace

from cleantail.rounds.stations import EVALUATE, SHOWN, STATIONS, TopicOutcome, idle_tasks, why_idle
from cleantail.watch.dag_state import CHECKED_AT, SHOWN_AT

NAMES = [station.name for station in STATIONS]


def plan(**due):
    decisions = {
        name: SimpleNamespace(due=due.get(name, False), reason=f"no {name}") for name in ("reclaim", "reconcile")
    }
    return SimpleNamespace(
        units=due.get("units", ()), reason="no round", sweep=due.get("sweep"), sweep_reason="no sweep", **decisions
    )


def test_a_plan_without_work_leaves_every_station_after_evaluate_idle_with_its_reason():
    idle = idle_tasks(plan())
    after = NAMES[NAMES.index(EVALUATE) + 1 :]
    assert set(after) <= idle.keys()
    assert {idle[name] for name in after} == {"no round", "no reconcile", "no sweep", "no reclaim"}


def test_tasks_that_ask_a_person_are_idle_with_their_station():
    assert set(idle_tasks(plan(units=("u",), sweep="s", reclaim=True))) == {
        "reconcile",
        "approve_reconcile",
        "publish_reconcile",
    }
    assert idle_tasks(plan(units=("u",), sweep="s", reclaim=True, reconcile=True)) == {}


def test_every_application_runs_a_station_or_what_a_person_asks_for():
    from spark_jobs.run_station import ENTRIES

    assert [name for name in ENTRIES if name in NAMES] == [name for name in NAMES if name != EVALUATE]
    assert ENTRIES.keys() - set(NAMES) == {"rollback", "run_pack"}


def test_every_error_and_every_check_of_a_topic_is_shown_at_one_station():
    outcome = TopicOutcome("orders")
    assert SHOWN_AT.keys() == set(NAMES) - {"convert_deletes", "check_quality", "publish"}
    assert CHECKED_AT == {
        "compact": "check_quality",
        "reconcile": "reconcile",
        "expire": "expire_tombstones",
    }
    assert {station.line(outcome) for station in SHOWN.values()} == {""}


def test_a_station_without_a_reason_for_having_no_work_is_idle_all_the_same():
    nothing = plan()
    nothing.sweep_reason = ""
    assert why_idle("expire_tombstones", nothing) == ""
    assert why_idle("expire_tombstones", plan(sweep="s")) is None
    assert why_idle("ingest", nothing) is None

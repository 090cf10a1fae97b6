"""The page where a group's DAG runs topics: whose failure is whose, who sees what, and where links lead."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cleantail.config.loading import load_platform
from cleantail.config.topic import Topic
from cleantail.home.home_folder import site_of
from cleantail.rounds.pack_results import PACK_RESULT_JSON, PackResult
from cleantail.rounds.stations import TopicOutcome
from cleantail_airflow.alerts.alerting import origin_of
from cleantail_airflow.groups.group_plan import GROUP_PLAN_JSON, GroupPlan, PlannedPack
from tests.airflow_environment import BASE_URL
from tests.airflow_site import Site
from tests.cleantail.orders_table import OrdersTable
from tests.plugins.page.conftest import HOST
from tests.plugins.page.test_dag_prefix import only
from tests.plugins.page.test_page import (  # noqa: F401
    METRICS,
    browser,
    dag_row,
    no_dags,
    orders,
    quarantine_of,
    scraped,
)

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore:Using `httpx` with")]

ORDERS = Topic(topic="orders", table="cleantail.orders")
PAGES = "/cleantail/topics"
GROUP = "small"
RUN = "/dags/small/runs/"
PLAN = GroupPlan(
    1,
    "",
    packs=(
        PlannedPack("2 topics: orders, bills", ("orders", "bills")),
        PlannedPack("1 topic: salaries", ("salaries",)),
    ),
)
Outcomes = dict[int, PackResult]
NAMES = ("bills", "orders", "salaries")


@pytest.fixture
def grouped(orders: OrdersTable, site: Site) -> Iterator[OrdersTable]:  # noqa: F811
    """The topics orders, bills and salaries in one group, whose DAG is there, and a topic alone."""
    (site.config / "groups").mkdir()
    (site.config / "groups" / f"{GROUP}.yaml").write_text(
        json.dumps({"group": GROUP, "owner": "the platform team", "schedule": "@daily"})
    )
    for name in ("orders", "bills", "salaries"):
        site.topic(name, group=GROUP)
    site.topic("alone")
    dag_row(GROUP)
    dag_row("alone")
    yield orders


@pytest.fixture
def ended() -> Iterator[Callable[..., None]]:
    """Makes a run of the group that has ended, with its plan, the results of its packs and the tasks that failed."""
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.xcom import XComModel
    from airflow.providers.standard.operators.empty import EmptyOperator
    from airflow.sdk import DAG
    from airflow.utils.session import create_session

    def make(
        run_id: str,
        state: str = "failed",
        plan: GroupPlan | None = PLAN,
        results: Outcomes | None = None,
        failed: tuple[tuple[str, int], ...] = (),
        conf: dict[str, Any] | None = None,
    ) -> None:
        at = datetime.now(UTC)
        with create_session() as session:
            run = DagRun(dag_id=GROUP, run_id=run_id, run_type="manual", state=state, run_after=at, conf=conf or {})
            run.start_date = at - timedelta(minutes=5)
            run.end_date = None if state == "running" else at - timedelta(minutes=3)
            session.add(run)
            session.flush()
            values: dict[tuple[str, int, str], Any] = {}
            if plan is not None:
                values["evaluate", -1, "plan"] = GROUP_PLAN_JSON.plain(plan)
            for number, result in (results or {}).items():
                values["run_pack", number, "return_value"] = PACK_RESULT_JSON.plain(result)
            places = {(task, index) for task, index, _ in values} | set(failed)
            for task_id, index in places:
                task = EmptyOperator(task_id=task_id, dag=DAG(GROUP))
                of_task = "failed" if (task_id, index) in failed else "success"
                session.add(TaskInstance(task, run_id=run_id, dag_version_id=None, state=of_task, map_index=index))
            session.flush()
            for (task_id, index, key), value in values.items():
                where = {"dag_id": GROUP, "run_id": run_id, "dag_run_id": run.id, "task_id": task_id}
                session.add(XComModel(key=key, map_index=index, value=json.dumps(value), **where))

    yield make
    with create_session() as session:
        session.query(XComModel).delete()


def row(text: str, name: str) -> str:
    """The row of a topic in the list."""
    rows = re.findall(r"(?s)<tr data-state=.*?</tr>", text)
    return next(one for one in rows if f">{name}</a>" in one)


RED_BILLS = {
    0: PackResult.of([TopicOutcome("orders"), TopicOutcome("bills").failed_at("ingest", "line 7 is no JSON", 1)]),
    1: PackResult.of([TopicOutcome("salaries")]),
}


def test_a_station_that_failed_for_another_topic_is_not_this_topics_failure(
    browser: Any,  # noqa: F811
    grouped: OrdersTable,
    ended: Callable[..., None],
) -> None:
    ended("r1", results=RED_BILLS, failed=(("ingest", 0), ("outcome", -1)))
    text = browser("ann").get(PAGES).text
    assert 'data-state="failed"' in row(text, "bills")
    assert "it failed in the last run of group small 3 min ago in task ingest (pack 0): line 7 is no JSON" in text
    assert f'<a href="{RUN}r1/tasks/ingest/mapped/0" target="_top">Log of ingest (pack 0)</a>' in row(text, "bills")
    for name in ("orders", "salaries"):
        assert "failed" not in row(text, name).replace("check failed", "")
    page = browser("ann").get(f"{PAGES}/orders").text
    assert f'<a href="{RUN}r1" target="_top">failed</a> 3' not in page
    assert f'<a href="{RUN}r1" target="_top">failed</a>' in page
    assert ", not by this topic" in page
    assert "The last run failed" not in page
    assert "bills" not in page
    of_bills = browser("ann").get(f"{PAGES}/bills").text
    assert "It failed in the last run of group small" in of_bills
    assert "line 7 is no JSON" in of_bills


@pytest.mark.parametrize(
    ("plan", "results", "failed", "states"),
    [
        pytest.param(None, {}, (("evaluate", -1),), dict.fromkeys(NAMES, "evaluate"), id="evaluate, so all"),
        pytest.param(PLAN, {}, (("run_pack", 1),), {"salaries": "run_pack"}, id="a crash before any result"),
        pytest.param(
            PLAN,
            {0: PackResult.of([TopicOutcome("orders")])},
            (("run_pack", 0),),
            {"bills": "run_pack"},
            id="a crash after the first topic",
        ),
        pytest.param(
            GroupPlan(1, "", packs=(PlannedPack("1 topic cannot be evaluated", ("bills",), {"bills": "no such key"}),)),
            {},
            (("run_pack", 0),),
            {"bills": "run_pack"},
            id="a topic that cannot be evaluated",
        ),
    ],
)
def test_a_failed_pack_is_a_failure_of_the_topics_that_it_did_not_finish(
    grouped: OrdersTable,
    ended: Callable[..., None],
    plan: GroupPlan | None,
    results: Outcomes,
    failed: tuple[tuple[str, int], ...],
    states: dict[str, str],
) -> None:
    from cleantail_airflow.outcomes.dag_states import topics_in_groups

    ended("r1", plan=plan, results=results, failed=failed)
    found = topics_in_groups({GROUP: (GROUP, ["orders", "bills", "salaries"])})
    assert {topic: dag.failed_tasks[0].task_id for topic, dag in found.items() if dag.failed} == states
    assert all(dag.ended_red for dag in found.values())


def test_a_run_for_one_topic_says_nothing_of_the_others(grouped: OrdersTable, ended: Callable[..., None]) -> None:
    from cleantail_airflow.outcomes.dag_states import topics_in_groups

    ended("r1", results=RED_BILLS, failed=(("ingest", 0),))
    ended("r2", "success", conf={"topic": "orders"}, plan=None)
    ended("r3", "failed", conf={"topic": "salaries"}, plan=None, failed=(("rollback", -1),))
    ended("r4", "running", conf={"topic": "bills"}, plan=None)
    found = topics_in_groups({GROUP: (GROUP, ["orders", "bills", "salaries"])})
    assert {t: (d.last and d.last.run_id, d.failed, d.running) for t, d in found.items()} == {
        "orders": ("r2", False, False),
        "bills": ("r1", True, True),
        "salaries": ("r3", True, False),
    }


def test_any_number_of_topics_and_groups_takes_four_queries_and_none_for_what_is_known(
    grouped: OrdersTable, ended: Callable[..., None]
) -> None:
    from airflow.settings import engine
    from sqlalchemy import event

    from cleantail_airflow.outcomes import dag_states

    ended("r9", results=RED_BILLS, failed=(("ingest", 0),))
    dag_states._kept.clear()
    asked: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        asked.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        for most in (4, 2):
            asked.clear()
            names = ["orders", "bills", *(f"t{n}" for n in range(500))]
            found = dag_states.topics_in_groups({GROUP: (GROUP, names), "other": ("other", ["x"])})
            assert len([text for text in asked if text.startswith("SELECT")]) == most
            assert [topic for topic, dag in found.items() if dag.failed] == ["bills"]
    finally:
        event.remove(engine, "before_cursor_execute", note)


def test_a_viewer_of_one_topic_of_a_group_sees_that_one_and_no_other(
    browser: Any,  # noqa: F811
    grouped: OrdersTable,
    ended: Callable[..., None],
    site: Site,
    server: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended("r1", results=RED_BILLS, failed=(("ingest", 0),))
    docs = site_of(site.home, "orders")
    docs.mkdir(parents=True)
    (docs / "index.html").write_text("<html><head></head><body>of orders</body></html>")
    only(server, monkeypatch, "orders")  # no DAG has this id
    uma = browser("uma")
    for text in (uma.get(PAGES).text, uma.get(f"{PAGES}/orders").text, uma.get(METRICS).text):
        assert "orders" in text
        assert not re.search("bills|salaries", text)
        assert not re.search(f"/(dags|topics)/{GROUP}", text)  # they refuse this user
    assert uma.get(f"{PAGES}/orders/docs/index.html").status_code == 200
    assert uma.get(f"{PAGES}/orders/records?round=r9").status_code == 404  # there is no such round
    more = ("", "/docs/index.html", "/records?round=r9")
    assert {uma.get(f"{PAGES}/{name}{path}").status_code for name in ("bills", GROUP) for path in more} == {403}
    refused = uma.get(f"{PAGES}/bills", Accept="text/html")
    assert (refused.status_code, "<h1>Not allowed</h1>" in refused.text) == (403, True)
    assert uma.client.post(f"{PAGES}/bills/partitions/0/release", headers={"Origin": HOST}).status_code == 403
    assert uma.client.post(f"{PAGES}/orders/partitions/0/release", headers={"Origin": HOST}).status_code == 303
    assert quarantine_of(grouped) is None


def test_a_user_who_may_read_the_dag_of_a_group_sees_exactly_its_topics(
    browser: Any,  # noqa: F811
    grouped: OrdersTable,
    site: Site,
    server: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site.topic("asks", group=GROUP, publish="approve")
    site.topic("broken", group=GROUP, config={"segment.sm": 1})
    only(server, monkeypatch, GROUP)
    vic = browser("vic")
    text = vic.get(PAGES).text
    assert all(f">{name}</a>" in text for name in ("orders", "bills", "salaries", "broken"))
    assert ">alone</a>" not in text
    assert ">asks</a>" not in text  # it has a DAG of its own
    assert [vic.get(f"{PAGES}/{name}").status_code for name in ("orders", "asks", "alone")] == [200, 403, 403]
    # a file that is broken may name any group: it opens no data
    codes = [vic.get(f"{PAGES}/broken{path}").status_code for path in ("", "/docs/index.html")]
    assert codes == [200, 403]
    assert vic.client.post(f"{PAGES}/orders/partitions/0/release", headers={"Origin": HOST}).status_code == 403
    assert (
        browser("uma").client.post(f"{PAGES}/orders/partitions/0/release", headers={"Origin": HOST}).status_code == 303
    )


def test_a_release_is_in_the_audit_log_of_the_dag_that_runs_the_topic(
    browser: Any,  # noqa: F811
    grouped: OrdersTable,
) -> None:
    from airflow.models.log import Log
    from airflow.utils.session import create_session

    answer = browser("ann").client.post(f"{PAGES}/orders/partitions/0/release", headers={"Origin": HOST})
    assert (answer.status_code, answer.headers["location"]) == (303, f"{PAGES}/orders?released=0")
    with create_session() as session:
        logged = session.query(Log).filter_by(event="cleantail_release", dag_id=GROUP)
        assert json.loads(logged.first().extra)["topic"] == "orders"
        logged.delete()


def test_the_tab_of_a_groups_dag_shows_the_group(
    browser: Any,  # noqa: F811
    grouped: OrdersTable,
    site: Site,
    ended: Callable[..., None],
) -> None:
    site.topic("asks", group=GROUP, publish="approve")
    ended("r1", results=RED_BILLS, failed=(("ingest", 0),))
    text = browser("ann").get(f"{PAGES}/{GROUP}").text
    assert "<h1>Group small" in text
    assert "the platform team" in text
    names = re.findall(r'<th scope="row" data-sort="([^"]*)">', text)
    assert sorted(names) == ["asks", "bills", "orders", "salaries"]
    assert f'<a href="{PAGES}/bills">bills</a>' in text
    assert "a separate DAG" in row(text, "asks")
    assert f'<a href="{RUN}r1/tasks/ingest/mapped/0" target="_top">' in text
    found = browser("ann").get(f"{PAGES}/{GROUP}?q=bil").text
    assert re.findall(r'<th scope="row" data-sort="([^"]*)">', found) == ["bills"]


def test_a_topics_page_leads_to_its_groups_dag_and_says_its_schedule(
    browser: Any,  # noqa: F811
    grouped: OrdersTable,
) -> None:
    shown = browser("ann").get(f"{PAGES}/orders").text
    assert '<a href="/dags/small" target="_top">DAG small</a>' in shown
    assert "/dags/orders" not in shown
    assert f'<a href="{PAGES}/small">Group small</a>' in shown
    assert "the platform team" in shown
    assert "(group small)" in shown


def test_metrics_of_a_topic_are_those_of_the_dag_that_runs_it(
    browser: Any,  # noqa: F811
    grouped: OrdersTable,
    ended: Callable[..., None],
) -> None:
    ended("r1", results=RED_BILLS, failed=(("ingest", 0),))
    samples = scraped(browser("ann").get(METRICS))
    failed = {sample.labels["topic"]: sample.value for sample in samples["cleantail_last_run_failed"]}
    assert failed == {"orders": 0, "bills": 1, "salaries": 0}
    since = {sample.labels["topic"] for sample in samples["cleantail_time_since_last_run_ms"]}
    assert since == {"orders", "bills", "salaries"}


def test_messages_lead_to_the_topics_page_and_the_groups_task(site: Site) -> None:
    class Task:
        run_id, dag_id, task_id = "r1", GROUP, "check_quality"
        log_url = f"{BASE_URL}/dags/{GROUP}/runs/r1/tasks/check_quality/mapped/0"

    place = origin_of(ORDERS.on(load_platform(site.config)), {"ti": Task()})  # type: ignore[typeddict-item]
    assert place.base == BASE_URL
    assert place.page(3) == f"{BASE_URL}{PAGES}/orders#log-3"
    assert place.data_docs == f"{BASE_URL}{PAGES}/orders/docs/index.html"


def test_many_topics_are_shown_page_by_page_and_found_by_name_group_and_state(
    browser: Any,  # noqa: F811
    grouped: OrdersTable,
    site: Site,
) -> None:
    for number in range(120):
        site.topic(f"t{number:03d}", group=GROUP if number % 2 else None)
    ann = browser("ann")

    def names(query: str) -> list[str]:
        return re.findall(r'<th scope="row" data-sort="([^"]*)">', ann.get(f"{PAGES}?{query}").text)

    first, last = names("sort=name"), names("sort=name&page=3")
    assert (len(first), len(last), first[:2]) == (50, 24, ["alone", "bills"])
    assert names("sort=-name")[0] == "t119"
    assert names("page=99") == names("page=3")
    assert names("q=T11") == [f"t11{n}" for n in range(10)]
    assert names("q=t11&group=small") == [f"t11{n}" for n in range(1, 10, 2)]
    assert names("q=t11&group=(none)") == [f"t11{n}" for n in range(0, 10, 2)]
    assert names("state=quarantined") == ["orders"]
    assert names("q=%3Cb%3Enone") == []
    text = ann.get(f"{PAGES}?q=%3Cb%3Enone&group=%22%3E").text
    assert "<b>none" not in text
    assert "No topic matches." in text
    assert 'href="/cleantail/topics?group=small&amp;page=2"' in ann.get(f"{PAGES}?group=small").text
    assert ann.get(f"{PAGES}?page=0").status_code == 422

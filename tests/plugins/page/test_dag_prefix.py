"""With platform.dag_prefix rights, pages and links go by the prefixed DAG; tables, metrics and incidents by topic."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from cleantail.config.loading import load_platform
from cleantail.config.topic import Topic
from cleantail.home.home_folder import site_of
from cleantail_airflow.alerts.alerting import origin_of
from tests.airflow_environment import BASE_URL
from tests.airflow_site import Site
from tests.cleantail.orders_table import OrdersTable
from tests.plugins.page.conftest import HOST
from tests.plugins.page.test_page import (  # noqa: F401
    METRICS,
    browser,
    dag_row,
    looked_at,
    no_dags,
    orders,
    quarantine_of,
    scraped,
)
from tests.plugins.page.test_page_airflow import run_row

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore:Using `httpx` with")]
ORDERS = Topic(topic="orders", table="cleantail.orders")
PREFIX = "cleantail_"
DAG = f"{PREFIX}orders"
PAGE = f"/cleantail/topics/{DAG}"
THEIR_PAGE = "/cleantail/topics/orders"


@pytest.fixture
def prefixed(orders: OrdersTable, site: Site) -> Iterator[OrdersTable]:  # noqa: F811
    """The page of `orders`, whose DAG has a prefix, and a foreign DAG with the name of the topic."""
    (site.config / "defaults.yaml").write_text(f"platform: {{dag_prefix: {PREFIX}}}\n")
    dag_row(DAG)
    dag_row("orders", is_paused=True)
    run_row("orders", "theirs", "failed", ("compact", -1))
    run_row(DAG, "ours", "success")
    yield orders


def only(server: Any, monkeypatch: pytest.MonkeyPatch, *readable: str) -> None:
    manager = server.state.auth_manager
    real = manager.is_authorized_dag
    monkeypatch.setattr(manager, "is_authorized_dag", lambda **asked: asked["details"].id in readable and real(**asked))


def test_the_dag_has_the_prefix_and_its_tasks_the_topic(site: Site) -> None:
    (site.config / "defaults.yaml").write_text(f"platform: {{dag_prefix: {PREFIX}}}\n")
    site.topic("orders")
    bag = site.bag()
    assert (sorted(bag.dags), bag.import_errors) == ([f"{PREFIX}cleantail_doctor", DAG], {})
    assert bag.dags[DAG].get_task("evaluate").topic == "orders"
    uris = {asset.uri for asset in bag.dags[DAG].get_task("publish").outlets}
    assert uris == {"x-cleantail://orders"}


def test_a_task_finds_its_dag_by_the_prefixed_id(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.definitions.context import get_current_context  # noqa: F401  # loads the parsing context's module

    (site.config / "defaults.yaml").write_text(f"platform: {{dag_prefix: {PREFIX}}}\n")
    site.topic("orders")
    site.topic("bills")
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", DAG)
    assert sorted(site.bag().dags) == [f"{PREFIX}cleantail_doctor", DAG]


def test_pages_and_links_go_by_the_prefixed_dag(browser: Any, prefixed: OrdersTable) -> None:  # noqa: F811
    ann = browser("ann")
    everything = ann.get("/cleantail/topics").text
    assert f'<a href="{PAGE}">orders</a>' in everything
    assert "its last run failed" not in everything  # that is the other team's DAG
    assert "paused" not in re.sub(r"(?s)<p class=\"chips\".*?</p>", "", everything)
    shown = ann.get(PAGE).text
    assert "<h1>orders</h1>" in shown
    assert f'<a href="/dags/{DAG}" target="_top">DAG {DAG}</a>' in shown
    assert f'action="{PAGE}/partitions/0/release"' in shown
    assert f'href="/dags/{DAG}/runs/ours"' in shown
    assert '"/dags/orders' not in shown


@pytest.mark.parametrize("path", ["orders", "orders/docs/index.html", PREFIX, f"{PREFIX}{PREFIX}orders"])
def test_a_dag_without_the_prefix_has_no_page(browser: Any, prefixed: OrdersTable, path: str) -> None:  # noqa: F811
    assert browser("ann").get(f"/cleantail/topics/{path}").status_code == 404


def test_rights_are_those_on_the_prefixed_dag(
    browser: Any,  # noqa: F811
    prefixed: OrdersTable,
    server: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    only(server, monkeypatch, "orders")  # the other team's
    uma = browser("uma")
    assert ">orders</a>" not in uma.get("/cleantail/topics").text
    assert 'topic="orders"' not in uma.get(METRICS).text
    assert [uma.get(f"{PAGE}{more}").status_code for more in ("", "/docs/index.html")] == [403, 403]
    assert uma.client.post(f"{PAGE}/partitions/0/release", headers={"Origin": HOST}).status_code == 403
    assert uma.release().status_code == 404  # who may edit "orders" releases nothing of the topic
    assert quarantine_of(prefixed)


def test_who_may_edit_the_prefixed_dag_releases_and_the_audit_log_has_its_id(
    browser: Any,  # noqa: F811
    prefixed: OrdersTable,
    server: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airflow.models.log import Log
    from airflow.utils.session import create_session

    only(server, monkeypatch, DAG)
    answer = browser("uma").client.post(f"{PAGE}/partitions/0/release", headers={"Origin": HOST})
    assert (answer.status_code, answer.headers["location"]) == (303, f"{PAGE}?released=0")
    assert quarantine_of(prefixed) is None
    with create_session() as session:
        assert session.query(Log).filter_by(event="cleantail_release", dag_id=DAG).delete() == 1


def test_records_are_those_of_the_prefixed_dag_and_for_those_who_may_read_it(
    browser: Any,  # noqa: F811
    prefixed: OrdersTable,
    looked_at: Any,  # noqa: F811
    server: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at()
    answer = browser("vic").get(f"{PAGE}/records?round=r9")
    assert (answer.status_code, "4711" in answer.text) == (200, True)
    assert f'<a href="{PAGE}#rounds">' in answer.text
    only(server, monkeypatch, "orders")  # the other team's DAG, which is called as the topic
    codes = {path: browser("uma").get(f"{path}/records?round=r9").status_code for path in (PAGE, THEIR_PAGE)}
    assert codes == {PAGE: 403, THEIR_PAGE: 404}


def test_data_docs_are_the_topics(browser: Any, prefixed: OrdersTable, site: Site) -> None:  # noqa: F811
    docs = site_of(site.home, "orders")
    docs.mkdir(parents=True)
    (docs / "index.html").write_text("<html><head></head><body>of orders</body></html>")
    answer = browser("vic").get(f"{PAGE}/docs/index.html")
    assert (answer.status_code, "of orders" in answer.text) == (200, True)
    assert f'<a href="{PAGE}#rounds">' in answer.text


def test_metrics_are_labelled_by_topic_and_see_its_own_dag(browser: Any, prefixed: OrdersTable) -> None:  # noqa: F811
    text = browser("ann").get(METRICS).text
    assert 'cleantail_last_run_failed{topic="orders"} 0' in text
    assert 'cleantail_time_since_last_run_ms{topic="orders"}' in text
    assert DAG not in text


def test_messages_lead_to_the_page_of_the_prefixed_dag(site: Site) -> None:
    class Task:
        run_id, dag_id, task_id = "r1", DAG, "alert"
        log_url = f"{BASE_URL}/dags/{DAG}/runs/r1/tasks/alert"

    (site.config / "defaults.yaml").write_text(json.dumps({"platform": {"dag_prefix": PREFIX}}))
    place = origin_of(ORDERS.on(load_platform(site.config)), {"ti": Task()})  # type: ignore[typeddict-item]
    assert place.page(3) == f"{BASE_URL}{PAGE}#log-3"
    assert place.data_docs == f"{BASE_URL}{PAGE}/docs/index.html"
    assert place.topic == "orders"


@pytest.mark.parametrize(("readable", "shown"), [("orders", False), (DAG, True)])
def test_rights_go_by_the_prefix_also_where_something_else_of_the_defaults_is_wrong(
    browser: Any,  # noqa: F811
    prefixed: OrdersTable,
    site: Site,
    server: Any,
    monkeypatch: pytest.MonkeyPatch,
    readable: str,
    shown: bool,
) -> None:
    (site.config / "defaults.yaml").write_text(f"platform: {{dag_prefix: {PREFIX}}}\ntopik: {{}}\n")
    only(server, monkeypatch, readable)
    assert (">orders</a>" in browser("uma").get("/cleantail/topics").text) is shown

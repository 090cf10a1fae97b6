"""The page in the API server: who gets in, what may be changed, and that no text becomes markup."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cleantail.config.config_model import LONG_MAX
from cleantail.config.loading import load_topic
from cleantail.config.settings_in_force import settings_in_force
from cleantail.erasure.store import ErasureStore
from cleantail.home.home_folder import site_of
from cleantail.lake.evaluate import read_facts
from cleantail.lake.reader_positions import set_position
from cleantail.log.partition_state import Horizon, PartitionState, Quarantine
from cleantail.rounds.approval import Rejection, after_rejection
from cleantail.rounds.commit_summaries import packed
from cleantail.watch.glossary import GLOSSARY
from cleantail.watch.metadata_cache import LOCATIONS_LIVE_S
from cleantail_airflow.installation import ROOT
from cleantail_airflow.page import mount as page
from cleantail_airflow.tasks.topic_dag import settings_section
from tests.airflow_environment import BUNDLE
from tests.airflow_site import Site
from tests.cleantail.orders_table import OrdersTable
from tests.plugins.page.conftest import HOST, client_of

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore:Using `httpx` with")]

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'"
BRANCH = "failed_r_u0_4000000000"
HOSTILE_LABEL = 'critical"} 1\n# \\'
METRICS = "/cleantail/metrics"
HELD = PartitionState(checkpoint=1, quarantine=Quarantine(1, "compact", f"check failed: {HOSTILE}", 1, 2, BRANCH))
RELEASE = "/cleantail/topics/orders/partitions/0/release"
PATHS = [
    "/cleantail/topics",
    "/cleantail/loading/topics",
    "/cleantail/loading/topics/orders",
    "/cleantail/topics/orders",
    "/cleantail/topics/orders/docs/index.html",
    "/cleantail/topics/orders/records?round=r",
    "/cleantail/glossary",
    "/cleantail/static/cleantail.css",
]


@dataclass(frozen=True)
class Browser:
    """A client with the login cookie of one user, or without any."""

    client: Any

    def get(self, path: str, **headers: str) -> Any:
        return self.client.get(path, headers=headers)

    def release(self, **headers: str) -> Any:
        return self.client.post(RELEASE, headers={"Origin": HOST, **headers})


@pytest.fixture
def orders(site: Site, tmp_path: Path, server: Any) -> OrdersTable:
    """A topic whose texts are hostile, partition 0 in quarantine; the page is set to its configuration."""
    from cleantail_airflow.page.page_content import PageContent

    site.topic("orders", description=HOSTILE)
    table = OrdersTable(tmp_path).append((0, 0, 1, b"a", b"1"), (1, 0, 1, b"a", b"1"))
    table.set_properties(**{"cleantail.partition.0": HELD.as_json()})
    table.table.manage_snapshots().create_branch(table.table.current_snapshot().snapshot_id, BRANCH).commit()
    tell(table, evidence_row())
    page.FASTAPI_APPS[0]["app"].app.state.content = PageContent(site.config)  # type: ignore[attr-defined]
    return table


def evidence_row(**changes: Any) -> dict[str, Any]:
    """A row of a check whose texts are hostile."""
    check = {"partition": 0, "expectation": HOSTILE, "rule": HOSTILE, "severity": HOSTILE_LABEL, "passed": False}
    return {
        "topic": "orders",
        "partition": 0,
        "round": HOSTILE,
        "kind": "compact",
        "now_ms": 1,
        "checked_at_ms": 2,
        "base_snapshot_id": 1,
        "head_snapshot_id": 1,
        "sample": "[]",
        "first_dirty_offset": 0,
        "end_offset": 1,
        "records_in": 9,
        "records_out": 3,
        "tombstones_in": 0,
        "tombstones_out": 0,
        "deleted": json.dumps({HOSTILE: 6}),
        "passed": False,
        "outcome": "held_back",
        "note": HOSTILE,
        "freed_bytes": 0,
        "dag_id": HOSTILE,
        "run_id": HOSTILE,
        "task_id": HOSTILE,
        "began_ms": 1,
        "saved_bytes": 7,
        "checks": json.dumps([check | {"observed": f"such as {HOSTILE}", "error": False}]),
        **changes,
    }


def tell(table: OrdersTable, *rows: dict[str, Any]) -> None:
    """Adds rows to the evidence."""
    made = pa.Table.from_pylist(list(rows))
    table.catalog.create_table_if_not_exists("cleantail.cleantail_evidence", made.schema).append(made)


def checked(name: str, at_ms: int, outcome: str, **more: Any) -> list[dict[str, Any]]:
    """The rows of a round that passed: its check, and what became of it."""
    row = evidence_row(round=name, checked_at_ms=at_ms, passed=True, outcome="checked", note="", **more)
    return [row] if outcome == "checked" else [row, row | {"checked_at_ms": at_ms + 1, "outcome": outcome}]


@pytest.fixture(autouse=True)
def no_dags(airflow_db: Path) -> Iterator[None]:
    """Forget the DAGs that this test or one before it has registered in Airflow."""
    from airflow.models.dag import DagModel
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session

    def forget() -> None:
        with create_session() as session:
            for model in (TaskInstance, DagRun, DagModel):
                session.query(model).delete()

    forget()
    yield
    forget()


def dag_row(name: str, **more: Any) -> None:
    """A DAG as the DAG processor writes it down."""
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    with create_session() as session:
        session.merge(
            DagModel(dag_id=name, bundle_name=BUNDLE, fileloc="", **{"is_stale": False, "is_paused": False, **more})
        )


@pytest.fixture
def browser(server: Any, tokens: dict[str, str], orders: OrdersTable) -> Any:
    """browser("ann") has her login, browser() none."""

    def of(user: str | None = None) -> Browser:
        client = client_of(server)
        if user:
            client.cookies.set("_token", tokens[user])
        return Browser(client)

    return of


def quarantine_of(orders: OrdersTable) -> Quarantine | None:
    facts = read_facts(orders.topic)
    return facts.states[0].quarantine if facts else None


# ---- who gets in


@pytest.mark.parametrize("path", PATHS)
def test_without_a_login_nothing_is_served(server: Any, path: str) -> None:
    answer = client_of(server).get(path)
    assert (answer.status_code, answer.json()) == (401, {"detail": "Not authenticated"})


def test_every_route_is_among_those_that_ask_for_a_login() -> None:
    routes = page.FASTAPI_APPS[0]["app"].app.routes  # type: ignore[attr-defined]
    asked = {route.path: route.dependant.dependencies[0].call.__name__ for route in routes}
    assert len(asked) == len(routes) == len(PATHS) + 3  # release, examine and metrics
    assert asked.pop("/metrics") == "scraper"
    assert set(asked.values()) == {"get_user"}


def test_a_browser_without_a_login_is_sent_to_it_and_comes_back(browser: Any) -> None:
    answer = browser().get("/cleantail/topics/orders?a=1", accept="text/html")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/api/v2/auth/login?next=%2Fcleantail%2Ftopics%2Forders%3Fa%3D1"


def test_a_forged_token_is_refused(browser: Any) -> None:
    assert browser().get("/cleantail/topics", authorization="Bearer abc").status_code == 403


def test_a_viewer_reads_and_sees_no_button(browser: Any) -> None:
    vic = browser("vic")
    assert 'href="/cleantail/topics/orders"' in vic.get("/cleantail/topics").text
    text = vic.get("/cleantail/topics/orders").text
    assert "Blocked by a failed check" in text
    assert f"cleantail read orders --partition 0 --as-of {BRANCH}" in text
    assert "<form" not in text
    assert vic.get("/cleantail/static/cleantail.css").headers["content-type"].startswith("text/css")


def test_topics_whose_dag_a_user_may_not_read_are_not_there(
    browser: Any, site: Site, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.topic("salaries")
    manager = server.state.auth_manager
    real = manager.is_authorized_dag

    def without_salaries(**asked: Any) -> bool:
        return asked["details"].id != "salaries" and real(**asked)

    monkeypatch.setattr(manager, "is_authorized_dag", without_salaries)
    vic = browser("vic")
    assert "salaries" not in vic.get("/cleantail/topics").text
    assert vic.get("/cleantail/topics/salaries").status_code == 403
    assert vic.get("/cleantail/topics/salaries/docs/index.html").status_code == 403


def test_a_round_that_can_be_undone_says_where_that_goes(browser: Any, orders: OrdersTable) -> None:
    before = orders.table.current_snapshot().snapshot_id
    assert "rollback_to" not in shown_of(browser, orders)
    publish_a_round(orders, "r1")
    tell(orders, *checked("r1", 10, "withdrawn"))
    assert "rollback_to" not in shown_of(browser, orders)  # that one of the name was never published
    tell(orders, *checked("r1", 20, "published"))
    shown = shown_of(browser, orders)
    assert f"<code>rollback_to</code> <code>{before}</code> (or <code>last</code>)" in shown
    assert shown.count(f"cleantail rollback orders --to {before}") == 1


def test_a_round_that_was_undone_says_so_and_dropped_nothing(browser: Any, orders: OrdersTable) -> None:
    publish_a_round(orders, "r1")
    tell(orders, *checked("r1", 20, "published", deleted=json.dumps({"superseded": 90})))
    assert ">published</span>" in shown_of(browser, orders)
    undo = {"round": "undid r1", "kind": "rollback", "outcome": "published", "passed": True, "note": "by ann"}
    tell(orders, evidence_row(checked_at_ms=30, **undo, checks="[]", deleted="{}"))
    shown = shown_of(browser, orders)
    assert '<span class="state undone">undone</span>' in shown
    assert '<span class="counts">put back: 90 superseded</span>' in shown
    assert "undone by a rollback" in shown  # in the chart, which has no column for it
    assert 'class="drop superseded"' not in shown
    assert ">published</span>" not in shown
    assert "rollback_to" not in shown


def publish_a_round(orders: OrdersTable, name: str) -> None:
    summary = {"cleantail.operation": "compact", "cleantail.round": name, "cleantail.before": packed({}, {})}
    orders.append((0, 2, 1, b"b", b"1"), summary=summary)


def shown_of(browser: Any, orders: OrdersTable, path: str = "/cleantail/topics/orders") -> str:
    """A page that sees the table as it is now."""
    page.FASTAPI_APPS[0]["app"].app.state.content.cache.forget(orders.topic)  # type: ignore[attr-defined]
    text: str = browser("ann").get(path).text
    return text


# ---- a person's answer


@pytest.fixture
def question(server: Any) -> Iterator[Any]:
    """A task `approve` of `orders` that waits for an answer; the other topic's has one."""
    from airflow.models.dagrun import DagRun
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.providers.standard.operators.empty import EmptyOperator
    from airflow.sdk import DAG
    from airflow.utils.session import create_session

    details = []
    with create_session() as session:
        for name, answered in (("orders", None), ("other", datetime.now(UTC))):
            session.add(DagRun(dag_id=name, run_id="asks", run_type="manual", run_after=datetime.now(UTC)))
            session.flush()
            task = EmptyOperator(task_id="approve", dag=DAG(name))
            asking = TaskInstance(task, run_id="asks", dag_version_id=None, state="awaiting_input")
            session.add(asking)
            session.flush()
            details.append(HITLDetail(ti_id=asking.id, options=["Approve"], subject="?", responded_at=answered))
        session.add_all(details)
        session.flush()
        ids = [detail.ti_id for detail in details]
    yield ids[0]
    with create_session() as session:
        session.query(HITLDetail).delete()
        session.query(TaskInstance).delete()
        session.query(DagRun).filter_by(run_id="asks").delete()


WAITS = "waits for approval"


@pytest.mark.parametrize(
    ("by", "shown", "reason"),
    [
        ("ben", "Blocked by a person's answer", "rejected by ben"),
        (None, "Blocked because no person answered", "not approved in time"),
    ],
)
def test_a_round_without_an_answer_is_not_said_to_have_one(
    browser: Any, orders: OrdersTable, by: str | None, shown: str, reason: str
) -> None:
    rejected = after_rejection(PartitionState(), "compact", Rejection(by, 1), LONG_MAX)
    orders.set_properties(**{"cleantail.partition.0": rejected.as_json()})
    text = shown_of(browser, orders, "/cleantail/topics/orders")
    assert f"<strong>{shown}</strong>" in unescape(text)
    assert reason in text


def test_a_round_that_waits_for_a_person_says_so_and_where_to_answer(
    browser: Any, orders: OrdersTable, site: Site, question: Any
) -> None:
    from airflow.models.hitl import HITLDetail
    from airflow.utils.session import create_session

    site.topic("other")
    tell(orders, *checked("r1", 20, "checked", deleted=json.dumps({"superseded": 90})))
    everything = shown_of(browser, orders, "/cleantail/topics")
    assert f'data-filter="{WAITS}"' in everything
    assert everything.count(f'data-state="{WAITS}"') == 1  # the other one's was answered
    assert "task approve waits for the decision on a checked round" in everything
    shown = shown_of(browser, orders)
    assert '<a href="/required_actions?response_received=false" target="_top">Required Actions</a>' in shown
    assert "The task <code>approve</code> waits" in shown
    assert f'<span class="state awaiting_approval">{WAITS}</span>' in shown
    assert "would be dropped: 90 superseded" in shown
    assert "The topic's next run starts after the answer." in shown
    assert "to trigger a run" not in shown
    states = {s.labels["state"]: s.value for s in scraped(browser("ann").get(METRICS))["cleantail_topics"]}
    assert states[WAITS] == 1
    with create_session() as session:
        session.get(HITLDetail, question).responded_at = datetime.now(UTC)
    assert WAITS not in shown_of(browser, orders, "/cleantail/topics")
    assert_nobody_is_asked(shown_of(browser, orders))


def test_a_round_between_check_and_publish_is_not_shown_as_waiting_for_approval(
    browser: Any, orders: OrdersTable
) -> None:
    tell(orders, *checked("r1", 20, "checked"))
    assert_nobody_is_asked(shown_of(browser, orders))


def assert_nobody_is_asked(shown: str) -> None:
    assert ">not published yet</span>" in shown
    assert f">{WAITS}<" not in shown
    assert "required_actions" not in shown


def test_bytes_that_reclaims_freed_stay_saved_when_their_snapshots_have_expired(
    browser: Any, orders: OrdersTable
) -> None:
    tell(orders, evidence_row(kind="reclaim", round="", outcome="published", freed_bytes=3 << 20, partition=0))
    page.FASTAPI_APPS[0]["app"].app.state.content.cache.totals(20)  # type: ignore[attr-defined]  # a page waits less
    assert 'data-sort="3145728">3.0 MiB' in shown_of(browser, orders, "/cleantail/topics")
    assert "<dt>Freed by rewrites</dt><dd>3.0 MiB <small>" in shown_of(browser, orders)
    tell(orders, evidence_row(kind="rollback", round="undid r1", outcome="published", freed_bytes=2 << 20, partition=0))
    page.FASTAPI_APPS[0]["app"].app.state.content.cache.totals(20)  # type: ignore[attr-defined]
    assert "<dt>Freed by rewrites</dt><dd>1.0 MiB <small>" in shown_of(browser, orders)


def test_what_rounds_have_hidden_is_not_said_to_be_saved_before_a_rewrite_has_freed_it(
    browser: Any, orders: OrdersTable
) -> None:
    """By the share of records it would be 9 MiB. The rewrite of small files freed less, and the page took it back."""
    tell(orders, *checked("r1", 1_700_000_010_000, "published", saved_bytes=9 << 20))
    tell(orders, evidence_row(kind="reclaim", round="", outcome="published", freed_bytes=4 << 20, partition=0))
    page.FASTAPI_APPS[0]["app"].app.state.content.cache.totals(20)  # type: ignore[attr-defined]
    everything, shown = shown_of(browser, orders, "/cleantail/topics"), shown_of(browser, orders)
    assert 'data-sort="4194304">4.0 MiB' in everything and "9.0 MiB" not in everything
    assert "<dt>Freed by rewrites</dt><dd>4.0 MiB <small>" in shown
    assert "All published rounds have hidden about 9.0 MiB, by share of records." in shown
    assert "saved" not in (everything + shown).lower()


def test_a_round_says_how_long_it_took_who_worked_on_it_and_by_which_clock(browser: Any, orders: OrdersTable) -> None:
    task = {"dag_id": "orders", "run_id": "manual__1", "task_id": "check_quality"}
    at = {"began_ms": 1_700_000_000_000, "now_ms": 1_800_000_000_000}
    tell(orders, *checked("r1", 1_700_000_010_000, "published", **at, **task, saved_bytes=4096))
    tell(orders, *checked("r2", 1_700_000_020_000, "published", **at | {"dag_id": ""}))
    check, outcome = checked("r3", 1_700_000_030_000, "published", **at)
    tell(orders, check, outcome | {"note": "approved by Anna"})
    page.FASTAPI_APPS[0]["app"].app.state.content.cache.totals(20)  # type: ignore[attr-defined]
    shown = shown_of(browser, orders)
    assert '<a href="/dags/orders/runs/manual__1" target="_top">run manual__1</a>' in shown
    assert "; approved by Anna</span>" in shown
    assert '<a href="/dags/orders/runs/manual__1/tasks/check_quality" target="_top">log of check_quality</a>' in shown
    assert "took 10 s" in shown
    begun = "Begun 2023-11-14 22:13:20 UTC"
    assert f"{begun}, checked 2023-11-14 22:13:40 UTC (command line); published 2023-11-14 22:13:40 UTC" in shown
    assert "<b>Planned 2027-01-15 08:00:00 UTC.</b>" in shown
    ago = '<time title="2023-11-14 22:13:40 UTC">'
    assert f"<b>compact</b> checked {ago}" in shown and f", published {ago}" in shown
    assert "It hid about 4.0 KiB." in shown
    assert "All published rounds have hidden about 4.0 KiB" in shown


def test_charts_say_units_and_moments_and_have_a_title_for_those_who_cannot_see_them(
    browser: Any, orders: OrdersTable
) -> None:
    for n, name in enumerate(("r1", "r2", "r3")):
        at_ms = 1_700_000_000_000 + n * 3_600_000
        dropped = {"began_ms": at_ms - 5_000, "deleted": json.dumps({"superseded": 1500})}
        tell(orders, *checked(name, at_ms, "published", **dropped))
    shown = shown_of(browser, orders)
    for written in (">1,500</text>", ">Nov 14 22:13</text>", ">5 s</text>", "The chart needs two snapshots"):
        assert written in shown
    assert "Partition 0: records before each published round, kept and dropped, oldest left" in shown
    assert "<title>compact, checked 2023-11-14 22:13:20 UTC: 1,500 superseded</title>" in shown


def test_a_topic_whose_round_a_person_has_rejected_says_so(browser: Any, orders: OrdersTable) -> None:
    rests = PartitionState(checkpoint=1, quarantine=Quarantine(1, "compact", "rejected by ben", 1, 2))
    orders.set_properties(**{"cleantail.partition.0": rests.as_json()})
    assert 'data-state="rejected"' in shown_of(browser, orders, "/cleantail/topics")
    shown = shown_of(browser, orders)
    assert ">rejected</span>" in shown
    assert "Blocked by a person" in shown
    assert ", dropped after the answer <time" not in shown
    tell(orders, *checked("r9", 1_700_000_000_000, "rejected"))
    assert ", dropped after the answer <time" in shown_of(browser, orders)


def test_the_work_shown_for_a_partition_is_what_the_next_run_would_do(
    browser: Any, orders: OrdersTable, site: Site
) -> None:
    """Its pause is over, but nothing of it is due: no run tries it. Then only retention is."""
    past = PartitionState(checkpoint=1, quarantine=Quarantine(1, "compact", "check failed: x", 1, 2))
    orders.set_properties(**{"cleantail.partition.0": past.as_json(), "cleantail.partition.1": past.as_json()})
    site.topic("orders", config={"min.cleanable.dirty.ratio": 1})
    shown = shown_of(browser, orders)
    assert "The next run tries again." not in shown
    assert shown.count("It is tried again when it is due.") == 2
    config = {"cleanup.policy": "compact,delete", "retention.ms": 1, "segment.ms": 1, "min.cleanable.dirty.ratio": 1}
    site.topic("orders", config=config)
    shown = shown_of(browser, orders)
    assert "2 of 2 partitions are due" in shown
    assert shown.count("<strong>Apply retention</strong>: 1 segment below offset 1 is past retention.ms") == 2
    assert "The next run tries again." in shown


def test_the_whole_configuration_is_shown_with_its_origin_and_without_addresses(
    browser: Any, orders: OrdersTable, site: Site
) -> None:
    hook = {"type": "webhook", "conn_id": "cleantail_hook", "endpoint": "in/hidden"}
    site.topic("orders", publish="approve", alerts=[hook])
    (site.config / "defaults.yaml").write_text("topic: {approvers: [anna]}\n")
    shown = shown_of(browser, orders)
    for key, value, origin in (
        ("publish", "approve", "topic YAML"),
        ("alerts", "webhook by connection cleantail_hook", "topic YAML"),
        ("approvers", "anna", "defaults.yaml"),
        ("checks", "none", "built-in default"),
        ("segment.ms", "1", "topic YAML"),
    ):
        assert f"<code>{key}</code></th><td>{value}</td><td>{origin}</td>" in shown
    assert "hidden" not in shown.partition('<h2 id="settings">')[2]


def test_the_dags_docs_and_the_page_draw_the_same_table_of_settings(
    browser: Any, orders: OrdersTable, site: Site
) -> None:
    check = {"expectation": "expect_column_values_to_match_regex", "kwargs": {"column": "key", "regex": "a|`b<i>"}}
    config = {"segment.ms": 1, "max.compaction.lag.ms": 90_000_000}
    site.topic("orders", owner="sales", checks=[check], config=config)
    (site.config / "defaults.yaml").write_text("topic: {approvers: [anna], config: {segment.bytes: 5000}}\n")
    topic = load_topic(site.config / "topics" / "orders.yaml", site.config)
    rows = {(s.name, s.shown, s.readable, s.origin.value) for s in settings_in_force(topic)}
    assert len(rows) > 30
    assert rows_of_docs(settings_section(topic)) == rows
    assert rows_of_page(shown_of(browser, orders)) == rows


def rows_of_docs(markdown: str) -> set[tuple[str, ...]]:
    row = re.compile(r"\| \**([\w.]+?)\** \| (`+) ?(.*?) ?\2(?: = ([^|]*))? \| ([^|]*) \|")
    drawn = [row.fullmatch(line) for line in markdown.splitlines() if line.startswith("| ")][1:]
    return {(m[1], m[3].replace("\\|", "|"), m[4] or "", m[5]) for m in drawn if m}


def rows_of_page(shown: str) -> set[tuple[str, ...]]:
    cells = r'<code>([^<]*)</code></th><td>([^<]*?)(?: <span class="quiet">= ([^<]*)</span>)?</td><td>([^<]*)</td>'
    return {tuple(map(unescape, row)) for row in re.findall(cells, shown.partition('<h2 id="settings">')[2])}


def test_a_topics_page_leads_to_its_dag_and_says_its_schedule_in_words(
    browser: Any, orders: OrdersTable, site: Site
) -> None:
    site.topic("orders", schedule={"cron": "0 3 * * *", "assets": ["x-cleantail://other"]})
    dag_row("orders")
    shown = shown_of(browser, orders)
    assert '<a href="/dags/orders" target="_top">Open the DAG</a>' in shown
    assert "cleantail, 0 3 * * *, or after x-cleantail://other</dd>" in shown


# ---- release


def test_a_viewer_cannot_release(browser: Any, orders: OrdersTable) -> None:
    assert browser("vic").release().status_code == 403
    assert quarantine_of(orders) == HELD.quarantine


def test_a_release_without_a_login_is_refused(browser: Any, orders: OrdersTable) -> None:
    assert browser().release().status_code == 401
    assert quarantine_of(orders) == HELD.quarantine


@pytest.mark.parametrize("user", ["ann", "uma"])
def test_a_user_who_may_edit_the_dag_may_release_and_the_audit_log_has_the_name(
    browser: Any, orders: OrdersTable, user: str
) -> None:
    from airflow.models.log import Log
    from airflow.utils.session import create_session

    opened = browser(user)
    assert f'action="{RELEASE}"' in opened.get("/cleantail/topics/orders").text
    answer = opened.release()
    assert (answer.status_code, answer.headers["location"]) == (303, "/cleantail/topics/orders?released=0")
    assert quarantine_of(orders) is None
    shown = opened.get(answer.headers["location"]).text
    assert "Partition 0 is no longer blocked" in shown
    assert "Blocked by a failed check" not in shown
    with create_session() as session:
        note = session.query(Log).filter_by(event="cleantail_release", owner=user).one()
        assert (note.dag_id, json.loads(note.extra)["partition"]) == ("orders", 0)
    again = opened.release()
    assert again.status_code == 409
    assert "partition 0 of topic orders is not blocked" in again.text


def test_a_topic_whose_rounds_are_approved_is_released_by_an_approver_alone(
    browser: Any, orders: OrdersTable, site: Site
) -> None:
    site.topic("orders", publish="approve", approvers=["ann"])
    assert f'action="{RELEASE}"' not in browser("uma").get("/cleantail/topics/orders").text
    refused = browser("uma").release()
    assert refused.status_code == 403
    assert "uma requested a release, but is not among the topic&#39;s approvers (ann)" in refused.text
    assert quarantine_of(orders) == HELD.quarantine
    assert f'action="{RELEASE}"' in browser("ann").get("/cleantail/topics/orders").text
    assert browser("ann").release().status_code == 303
    assert quarantine_of(orders) is None


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Origin": "https://evil.example"}, id="another origin"),
        pytest.param({"Origin": "null"}, id="a sandboxed page"),
        pytest.param({"Sec-Fetch-Site": "cross-site"}, id="cross-site"),
        pytest.param({"Sec-Fetch-Site": "same-site"}, id="a sister host"),
        pytest.param({"Origin": HOST + ".evil.example"}, id="a longer name"),
    ],
)
def test_another_sites_page_cannot_release_in_the_users_name(
    browser: Any, orders: OrdersTable, headers: dict[str, str]
) -> None:
    assert browser("ann").release(**headers).status_code == 403
    assert quarantine_of(orders) == HELD.quarantine


def test_a_script_needs_a_token_and_not_just_the_cookie(
    browser: Any, orders: OrdersTable, tokens: dict[str, str]
) -> None:
    assert browser("ann").client.post(RELEASE).status_code == 403
    assert browser().client.post(RELEASE, headers={"Authorization": f"Bearer {tokens['ann']}"}).status_code == 303
    assert quarantine_of(orders) is None


# ---- metrics


def scraped(answer: Any) -> dict[str, list[Any]]:
    """Samples by name, as a client of Prometheus reads them."""
    from prometheus_client.parser import text_string_to_metric_families

    assert answer.status_code == 200
    found: dict[str, list[Any]] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def test_metrics_need_a_login_or_the_token_and_the_token_opens_nothing_else(
    browser: Any, tokens: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = browser()
    assert nobody.get(METRICS).status_code == 401
    assert nobody.get(METRICS, authorization="Bearer ").status_code == 401
    assert nobody.get(METRICS, authorization="Bearer abc").status_code == 403
    assert nobody.get(METRICS, authorization=f"Bearer {tokens['vic']}").status_code == 200
    monkeypatch.setenv("CLEANTAIL_METRICS_TOKEN", "s3cret-t0ken")
    assert nobody.get(METRICS, authorization="Bearer s3cret-t0ken").status_code == 200
    assert nobody.get(METRICS, authorization="Bearer s3cret-t0ke").status_code == 403
    assert nobody.get(METRICS).status_code == 401
    for path in PATHS:
        assert nobody.get(path, authorization="Bearer s3cret-t0ken").status_code == 403
    monkeypatch.setenv("CLEANTAIL_METRICS_TOKEN", " ")
    assert nobody.get(METRICS, authorization="Bearer  ").status_code in (401, 403)


def test_a_user_scrapes_the_topics_that_he_may_read_and_the_token_all(
    browser: Any, site: Site, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.topic("salaries")
    manager = server.state.auth_manager
    real = manager.is_authorized_dag
    monkeypatch.setattr(
        manager, "is_authorized_dag", lambda **asked: asked["details"].id != "salaries" and real(**asked)
    )
    monkeypatch.setenv("CLEANTAIL_METRICS_TOKEN", "s3cret-t0ken")
    assert "salaries" not in browser("vic").get(METRICS).text
    assert "salaries" in browser().get(METRICS, authorization="Bearer s3cret-t0ken").text


def test_metrics_say_what_the_page_says_and_escape_every_label(browser: Any, site: Site) -> None:
    site.broken_topic("broken")
    answer = browser("ann").get(METRICS)
    assert answer.headers["content-type"].startswith("text/plain; version=")
    found = scraped(answer)
    assert {s.labels["topic"]: s.value for s in found["cleantail_topic_up"]} == {"orders": 1, "broken": 0}
    assert {s.labels["state"]: s.value for s in found["cleantail_topics"] if s.value} == {"quarantined": 1, "broken": 1}
    (held,) = found["cleantail_uncleanable_partitions_count"]
    assert (held.labels, held.value) == ({"topic": "orders"}, 1)
    (rounds,) = found["cleantail_rounds_total"]
    log = {"topic": "orders", "partition": "0"}
    assert (rounds.labels, rounds.value) == ({**log, "kind": "compact", "outcome": "held_back"}, 1)
    (failed,) = found["cleantail_checks_failed_total"]
    assert (failed.labels, failed.value) == ({**log, "severity": HOSTILE_LABEL}, 1)


def test_the_time_since_the_last_run_is_that_of_the_dag(browser: Any, orders: OrdersTable) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    from cleantail_airflow.page.metrics_endpoint import last_runs_ms

    assert last_runs_ms(["nobody"]) == {}
    with create_session() as session:
        for hours in (5, 2):
            began = datetime.now(UTC) - timedelta(hours=hours)
            run = DagRun(dag_id="orders", run_id=f"r{hours}", run_type="manual", run_after=began, start_date=began)
            session.add(run)
    (since,) = scraped(browser("ann").get(METRICS))["cleantail_time_since_last_run_ms"]
    assert since.labels == {"topic": "orders"}
    assert 7_200_000 <= since.value < 7_260_000


def test_dead_threads_are_components_of_airflow_whose_heart_has_stopped(browser: Any, orders: OrdersTable) -> None:
    from airflow.jobs.job import Job
    from airflow.utils.session import create_session

    def dead(**beats: timedelta) -> float:
        with create_session() as session:
            session.query(Job).delete()
            for name, ago in beats.items():
                job = Job(job_type=name, state="running")
                job.latest_heartbeat = datetime.now(UTC) - ago
                session.add(job)
        (sample,) = scraped(browser("ann").get(METRICS))["cleantail_dead_thread_count"]
        assert sample.labels == {}
        return float(sample.value)

    now, long_ago = timedelta(0), timedelta(hours=1)
    assert dead() == 1  # a scheduler there must be; the others may be part of it or not be there
    assert dead(SchedulerJob=now, TriggererJob=now, DagProcessorJob=now) == 0
    assert dead(SchedulerJob=now, TriggererJob=long_ago, DagProcessorJob=now) == 1
    assert dead(SchedulerJob=long_ago, TriggererJob=long_ago, DagProcessorJob=long_ago) == 3


# ---- text is text


def test_no_text_of_data_or_configuration_becomes_markup(browser: Any, site: Site) -> None:
    (site.config / "topics" / "odd.yaml").write_text(json.dumps({"topic": "odd", "config": {"<b>x</b>": HOSTILE}}))
    for path in ("/cleantail/topics", "/cleantail/topics/orders", "/cleantail/topics/odd"):
        text = browser("ann").get(path).text
        assert "&lt;" in text
        assert "<script>" not in text
        assert "<img" not in text
        assert "<b>x</b>" not in text
    problem = browser("ann").get("/cleantail/topics/%3Cscript%3E")
    assert (problem.status_code, "<script>" in problem.text) == (404, False)


def test_pages_allow_only_their_own_files_and_no_inline_script(browser: Any) -> None:
    headers = browser("ann").get("/cleantail/topics/orders").headers
    assert "script-src 'self';" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert "frame-ancestors 'self'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


def test_pages_name_nothing_on_the_internet(browser: Any) -> None:
    for path in PATHS[:2]:
        assert "://" not in browser("ann").get(path).text.replace("http://www.w3.org", "")


# ---- the rest


def test_tombstones_that_a_reader_holds_are_not_shown_as_due(browser: Any, orders: OrdersTable) -> None:
    state = PartitionState(checkpoint=1, horizons=(Horizon(1, 5, 3),))
    orders.set_properties(**{"cleantail.partition.1": state.as_json()})
    ann, path = browser("ann"), "/cleantail/topics/orders"
    assert "3 tombstones are past their horizon" in ann.get(path).text
    set_position(orders.catalog, orders.topic, "index", 1, 0)
    (orders.platform.config_dir / "topics" / "orders.yaml").write_text(
        json.dumps({"topic": "orders", "config": {"cleantail.readers.hold.cap.ms": 9_000_000_000_000}})
    )
    assert "3 tombstones past their horizon wait for reader index (at offset 0 of partition 1)" in ann.get(path).text


def test_data_docs_are_served_without_their_scripts_and_only_those_of_the_topic(browser: Any, site: Site) -> None:
    root = site_of(site.home, "orders")
    root.mkdir(parents=True)
    (root / "index.html").write_text("<head></head><script>alert(1)</script>")
    (site.home / "secret.html").write_text("secret")
    ann, base = browser("ann"), "/cleantail/topics/orders/docs"
    answer = ann.get(f"{base}/index.html")
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert policy.endswith("form-action 'none'")
    assert "sandbox allow-same-origin;" in policy
    assert "/cleantail/static/data_docs.css" in answer.text
    up = "%2e%2e/" * 6
    for path in (f"{up}secret.html", "..%2f" * 6 + "secret.html", "absent.html"):
        assert ann.get(f"{base}/{path}").status_code == 404
    assert ann.get("/cleantail/topics/absent/docs/index.html").status_code == 404
    assert ann.get("/cleantail/static/..%2fpage.py").status_code == 404


def test_the_tab_of_a_foreign_dag_reports_that_it_is_not_a_topic(browser: Any) -> None:
    answer = browser("ann").get("/cleantail/topics/some_dag")
    assert answer.status_code == 404
    assert "some_dag is not a topic of Cleantail" in answer.text


def test_every_page_leads_to_the_words_that_it_uses(browser: Any) -> None:
    ann = browser("ann")
    for path in ("/cleantail/topics", "/cleantail/topics/orders"):
        assert (
            '<a href="/cleantail/glossary">Words</a>' in ann.get(path).text.partition("<main>")[2]
        )  # a frame hides the rest
    text = unescape(ann.get("/cleantail/glossary").text)
    assert all(meaning in text for meaning in GLOSSARY.values())


def test_a_broken_topic_and_a_topic_without_a_table_are_shown_beside_the_others(browser: Any, site: Site) -> None:
    site.broken_topic("broken")
    site.topic("fresh")
    text = browser("ann").get("/cleantail/topics").text
    assert "config.segment.sm: unknown key" in text
    assert "nothing was ingested yet" in text
    assert ">blocked</span>" in text
    assert "Nothing was ingested yet" in browser("ann").get("/cleantail/topics/fresh").text
    assert "unknown key" in browser("ann").get("/cleantail/topics/broken").text


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/cleantail/loading/topics", "/cleantail/topics"),
        ("/cleantail/loading/topics/orders", "/cleantail/topics/orders"),
        ('/cleantail/loading/topics/%22%3E"', "/cleantail/topics/%22%3E%22"),
    ],
)
def test_a_tab_is_never_blank_while_its_page_is_made(browser: Any, path: str, target: str) -> None:
    text = browser("ann").get(path).text
    assert f'<meta http-equiv="refresh" content="0; url={target}">' in text and "Reading the metadata" in text


def test_the_ui_has_a_menu_entry_and_a_tab(server: Any, tokens: dict[str, str]) -> None:
    answer = client_of(server).get("/api/v2/plugins", headers={"Authorization": f"Bearer {tokens['ann']}"}).json()
    views = next(p["external_views"] for p in answer["plugins"] if p["name"] == "cleantail")
    assert {(v["destination"], v["href"]) for v in views} == {
        ("nav", "cleantail/loading/topics"),
        ("dag", "cleantail/loading/topics/{DAG_ID}"),
    }


def test_the_plugin_imports_no_engine_and_builds_no_page() -> None:
    code = "import sys, cleantail_airflow.plugin; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT / "plugins"
    )
    modules = set(done.stdout.split())
    assert not {"pyiceberg", "pandas", "pyarrow", "pyspark", "cleantail_airflow.page.application"} & modules


# ---- records

RECORDS = "/cleantail/topics/orders/records?round=r9&kind=compact"
SALARY, IN_KEY, IN_HEADER = b"4711 <b>EUR</b>", b"Ada", b"from payroll"


@pytest.fixture
def looked_at(orders: OrdersTable) -> Any:
    """Evidence of the round r9, whose check failed at offset 7 and which would remove offset 7 for 8; the branch is
    there."""
    from cleantail.rounds.check_results import HIDDEN

    headers = [{"key": "source", "value": IN_HEADER}]
    orders.append((0, 7, 1, IN_KEY, SALARY), (0, 8, 1, IN_KEY, b"later"), headers=headers)
    head = orders.table.current_snapshot().snapshot_id
    orders.table.manage_snapshots().create_branch(head, "ct_r9_u0").commit()
    orders.append((0, 9, 1, b"other", b"not asked about"))
    failed = {
        "partition": 0,
        "expectation": "expect_x",
        "rule": "column=value",
        "severity": "critical",
        "passed": False,
    }
    some = failed | {"observed": "1 of 4 records, at offset 7", "offsets": [7]}
    hidden = failed | {"expectation": "expect_y", "observed": HIDDEN, "offsets": []}

    def told(**changes: Any) -> None:
        places = {"base_snapshot_id": head, "head_snapshot_id": head, "sample": "[[7, 8]]"}
        tell(orders, evidence_row(**{"round": "r9", "checks": json.dumps([some, hidden]), **places, **changes}))

    return told


def sections_of(shown: str) -> list[str]:
    return shown.split("<h3>")[1:]


def test_the_records_that_a_check_found_are_read_when_the_page_is_opened(browser: Any, looked_at: Any) -> None:
    looked_at()
    topic = browser("vic").get("/cleantail/topics/orders").text
    assert '/cleantail/topics/orders/records?round=r9&amp;kind=compact&amp;partition=0"' in topic
    assert "4711" not in topic and "Ada" not in topic
    answer = browser("vic").get(RECORDS)
    found, hidden = sections_of(answer.text)
    for text in ("4711 &lt;b&gt;EUR&lt;/b&gt;", "Ada", "from payroll", "source"):
        assert text in found
    assert "The check does not name single records" in hidden and "4711" not in hidden
    assert "not asked about" not in answer.text
    assert answer.headers["cache-control"] == "private, no-store"


def test_a_round_that_waits_shows_what_would_go_and_what_stays(browser: Any, looked_at: Any) -> None:
    looked_at(outcome="checked", passed=True, checks="[]")
    (going,) = sections_of(browser("vic").get(RECORDS).text)
    assert "Records that the round would drop, and the records that replace them" in going
    assert "4711 &lt;b&gt;" in going and "later" in going


@pytest.mark.parametrize("outcome", ["held_back", "checked"])
def test_when_the_branch_has_gone_no_value_is_shown_any_more(
    browser: Any, looked_at: Any, orders: OrdersTable, outcome: str
) -> None:
    """What an erasure has removed is not brought back by a look: the snapshot is still there."""
    looked_at(outcome=outcome)
    orders.catalog.load_table("cleantail.orders").manage_snapshots().remove_branch("ct_r9_u0").commit()
    shown = browser("vic").get(RECORDS).text
    assert "The branch with the checked records was deleted" in shown
    assert "Offsets 7." in shown
    assert "4711" not in shown and "Ada" not in shown


def test_records_of_a_published_round_are_those_that_are_still_there(
    browser: Any, looked_at: Any, orders: OrdersTable
) -> None:
    looked_at(outcome="published", passed=True)
    orders.catalog.load_table("cleantail.orders").manage_snapshots().remove_branch("ct_r9_u0").commit()
    shown = browser("vic").get(RECORDS).text
    assert "4711" in shown and "What would go" not in shown


def test_records_are_for_those_who_may_read_the_topic(
    browser: Any, looked_at: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

    looked_at()
    assert browser().get(RECORDS).status_code == 401
    monkeypatch.setattr(SimpleAuthManager, "is_authorized_dag", lambda *_, **__: False)
    refused = browser("vic").get(RECORDS)
    assert refused.status_code == 403 and "4711" not in refused.text


@pytest.mark.parametrize(
    ("query", "code"),
    [("round=r8", 404), ("round=r9&kind=expire", 404), ("", 422), ("round=r9&partition=x", 422)],
)
def test_only_records_that_the_evidence_names_can_be_shown(browser: Any, looked_at: Any, query: str, code: int) -> None:
    looked_at()
    answer = browser("vic").get(f"/cleantail/topics/orders/records?{query}")
    assert (answer.status_code, "4711" in answer.text) == (code, False)


def test_a_log_without_failures_has_no_records_to_show(browser: Any, looked_at: Any) -> None:
    looked_at()
    assert "The round has no records to show" in browser("vic").get(f"{RECORDS}&partition=5").text


def test_requests_to_erase_keys_are_on_the_page_and_in_the_metrics_also_of_a_broken_topic(
    browser: Any, orders: OrdersTable, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = browser("ann")
    assert 'id="erasures"' not in ann.get("/cleantail/topics/orders").text
    monkeypatch.setenv("CLEANTAIL_ERASURE_KEY", base64.b64encode(bytes(32)).decode())
    store = ErasureStore(orders.platform.with_env(os.environ))
    request = store.request("orders", [b"marker-k1"], by=HOSTILE, now_ms=1, deadline_ms=2)
    store.request("broken", [b"marker-k1"], by=HOSTILE, now_ms=1, deadline_ms=2)
    site.broken_topic("broken")
    time.sleep(LOCATIONS_LIVE_S)
    shown = ann.get("/cleantail/topics/orders").text
    assert request.id in shown and "requested, overdue" in shown and HOSTILE not in shown and "marker" not in shown
    samples = scraped(ann.get(METRICS))
    for name in ("open", "overdue"):
        found = {s.labels["topic"]: s.value for s in samples[f"cleantail_erasures_{name}"]}
        assert found == {"orders": 1, "broken": 1}

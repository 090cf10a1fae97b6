"""What the page shows of Airflow's own database, of readers, and for whom; over the real models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cleantail.lake.reader_positions import set_position
from cleantail.log.partition_state import Horizon, PartitionState, Quarantine
from differential.broker import free_port
from tests.airflow_site import Site
from tests.cleantail.orders_table import OrdersTable
from tests.plugins.page.test_page import (  # noqa: F401
    HOSTILE,
    METRICS,
    browser,
    dag_row,
    no_dags,
    orders,
    scraped,
    shown_of,
)

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore:Using `httpx` with")]

TOPICS = "/cleantail/topics"
CLEAN = PartitionState(checkpoint=1, known_sequence_number=99)
RUN = "manual__2026-11-22T15:00:00+00:00"
RUN_LINK = "/dags/orders/runs/manual__2026-11-22T15%3A00%3A00%2B00%3A00"


def run_row(name: str, run_id: str, state: str, *failed: tuple[str, int]) -> None:
    """A run, newer than those before, with the tasks of it that failed and one that did not."""
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.providers.standard.operators.empty import EmptyOperator
    from airflow.sdk import DAG
    from airflow.utils.session import create_session

    at = datetime.now(UTC)
    times = {"run_after": at, "start_date": at - timedelta(minutes=5)}
    with create_session() as session:
        run = DagRun(dag_id=name, run_id=run_id, run_type="manual", state=state, **times)
        run.end_date = None if state in ("running", "queued") else at - timedelta(minutes=3)
        session.add(run)
        session.flush()
        for task_id, map_index, of_task in [*((t, i, "failed") for t, i in failed), ("reclaim", -1, "success")]:
            task = EmptyOperator(task_id=task_id, dag=DAG(name))
            session.add(TaskInstance(task, run_id=run_id, dag_version_id=None, state=of_task, map_index=map_index))


def noted_row(name: str, run_id: str, task_id: str, note: object, map_index: int = -1) -> None:
    """The XCom that a failed task leaves."""
    from airflow.models.dagrun import DagRun
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    with create_session() as session:
        run = session.query(DagRun).filter_by(dag_id=name, run_id=run_id).one()
        of_task = {"dag_run_id": run.id, "dag_id": name, "run_id": run_id, "task_id": task_id, "map_index": map_index}
        session.add(XComModel(key="failure", value=note, **of_task))


@pytest.fixture
def clean(orders: OrdersTable) -> Iterator[OrdersTable]:  # noqa: F811
    """Partition 0 is out of quarantine and both are clean; the DAG is there and not paused."""
    for partition in (0, 1):
        orders.set_properties(**{f"cleantail.partition.{partition}": CLEAN.as_json()})
    dag_row("orders")
    yield orders


def test_a_failed_last_run_makes_the_topic_failed_and_leads_to_the_log_of_the_task(
    browser: Any,  # noqa: F811
    clean: OrdersTable,
) -> None:
    run_row("orders", "r1", "success")
    assert 'data-state="clean"' in shown_of(browser, clean, TOPICS)
    run_row("orders", RUN, "failed", ("compact", 3), ("evaluate", -1), ("outcome", -1))
    everything = shown_of(browser, clean, TOPICS)
    assert 'data-state="failed"' in everything
    assert (
        "its last run failed 3 min ago in tasks evaluate, compact (map index 3): the task was killed or lost"
        in everything
    )
    for shown in (everything, shown_of(browser, clean)):
        assert f'<a href="{RUN_LINK}/tasks/compact/mapped/3" target="_top">Log of compact (map index 3)</a>' in shown
        assert f'<a href="{RUN_LINK}/tasks/evaluate" target="_top">Log of evaluate</a>' in shown
        assert "Log of outcome" not in shown
        assert "Log of reclaim" not in shown
    run_row("orders", "r3", "success")
    assert 'data-state="clean"' in shown_of(browser, clean, TOPICS)
    assert "The last run failed" not in shown_of(browser, clean)


def test_list_and_page_have_the_first_line_of_a_failed_tasks_error(browser: Any, clean: OrdersTable) -> None:  # noqa: F811
    run_row("orders", RUN, "failed", ("compact", 0), ("compact", 3), ("evaluate", -1), ("ingest", -1), ("outcome", -1))
    noted_row("orders", RUN, "ingest", {"reason": f"nothing listens at kafka:9092 {HOSTILE}\nsecond line", "at_ms": 5})
    noted_row("orders", RUN, "compact", {"reason": "x" * 400}, map_index=3)
    noted_row("orders", RUN, "evaluate", ["of no task of ours"])
    killed = "the task was killed or lost: by a person, for lack of memory, or with its worker"
    for shown in (shown_of(browser, clean, TOPICS), shown_of(browser, clean)):
        assert "nothing listens at kafka:9092 &lt;script&gt;" in shown
        assert f"{'x' * 300}…" in shown and "x" * 301 not in shown
        assert shown.count(killed) == 1  # instance 0 of compact; not outcome, which is red with others
        assert "its note cannot be parsed" in shown
        assert "second line" not in shown and "of no task" not in shown and HOSTILE not in shown


def test_a_failure_of_task_outcome_alone_is_shown_as_such(browser: Any, clean: OrdersTable) -> None:  # noqa: F811
    run_row("orders", RUN, "failed", ("outcome", -1))
    assert re.search(r"its last run failed \d+ min ago in task outcome\. <a", shown_of(browser, clean, TOPICS))


def test_a_failed_run_without_a_failed_task_leads_to_the_run(browser: Any, clean: OrdersTable) -> None:  # noqa: F811
    run_row("orders", RUN, "failed")
    assert f'<a href="{RUN_LINK}" target="_top">Open the run</a>' in shown_of(browser, clean, TOPICS)


def test_a_run_at_work_is_shown_beside_what_the_one_before_left(browser: Any, clean: OrdersTable) -> None:  # noqa: F811
    run_row("orders", "r1", "failed", ("evaluate", -1))
    run_row("orders", RUN, "running")
    run_row("orders", "r3", "queued")
    everything, shown = shown_of(browser, clean, TOPICS), shown_of(browser, clean)
    assert 'data-state="failed"' in everything
    assert '<span class="state also running">running</span>' in everything
    assert f'<a href="{RUN_LINK}" target="_top">Running</a> for 5' in shown
    assert "Another run is in progress." in shown


def test_a_paused_dag_is_said_and_is_the_state_of_a_topic_with_due_work(
    browser: Any,  # noqa: F811
    orders: OrdersTable,  # noqa: F811
) -> None:
    orders.set_properties(**{"cleantail.partition.0": PartitionState().as_json()})
    dag_row("orders", is_paused=True)
    everything, shown = shown_of(browser, orders, TOPICS), shown_of(browser, orders)
    assert 'data-state="paused"' in everything
    assert "its DAG is paused, so due work is not done: partition" in everything
    assert "Its DAG is paused, so due work is not done." in shown
    assert '<a href="/dags/orders" target="_top">Open the DAG</a> to unpause it.' in shown
    assert "to trigger a run" not in shown


def test_a_missing_dag_and_one_with_an_import_error_are_shown(
    browser: Any,  # noqa: F811
    orders: OrdersTable,  # noqa: F811
) -> None:
    orders.set_properties(**{"cleantail.partition.0": PartitionState().as_json()})
    everything, shown = shown_of(browser, orders, TOPICS), shown_of(browser, orders)
    assert 'data-state="no DAG"' in everything
    assert "Airflow has no DAG of it, so due work is not done." in shown
    assert 'href="/dags/orders" target="_top">Open the DAG</a>' not in shown
    dag_row("orders", is_stale=True)
    assert 'data-state="no DAG"' in shown_of(browser, orders, TOPICS)
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    with create_session() as session:
        model = session.get(DagModel, "orders")
        model.is_stale, model.has_import_errors = False, True
    assert 'data-state="no DAG"' in shown_of(browser, orders, TOPICS)
    assert "Airflow cannot import the file of its DAG" in shown_of(browser, orders)


def test_topics_that_need_attention_are_listed_first(
    browser: Any,  # noqa: F811
    orders: OrdersTable,  # noqa: F811
    site: Site,
) -> None:
    site.broken_topic("zz")
    site.topic("a")
    everything = shown_of(browser, orders, TOPICS)
    order = [everything.index(f">{name}</a>") for name in ("zz", "orders", "a")]
    assert order == sorted(order)
    chips = [everything.index(f'data-filter="{state}"') for state in ("broken", "quarantined", "empty")]
    assert chips == sorted(chips)


def test_the_runs_of_a_dag_are_for_those_who_may_read_it(
    browser: Any,  # noqa: F811
    clean: OrdersTable,
    site: Site,
    server: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site.topic("salaries")
    dag_row("salaries")
    run_row("salaries", "secret_run", "failed", ("secret_task", -1))
    assert "secret_task" in browser("vic").get(TOPICS).text
    manager = server.state.auth_manager
    real = manager.is_authorized_dag
    monkeypatch.setattr(
        manager, "is_authorized_dag", lambda **asked: asked["details"].id != "salaries" and real(**asked)
    )
    vic = browser("vic")
    assert "secret" not in vic.get(TOPICS).text
    assert vic.get("/cleantail/topics/salaries").status_code == 403
    assert "salaries" not in vic.get(METRICS).text


def test_whether_the_last_run_failed_is_a_metric(browser: Any, clean: OrdersTable) -> None:  # noqa: F811
    ann = browser("ann")
    assert "cleantail_last_run_failed" not in scraped(ann.get(METRICS))
    for run_id, state, value in (("r1", "failed", 1), ("r2", "success", 0), ("r3", "running", 0)):
        run_row("orders", run_id, state)
        (sample,) = scraped(ann.get(METRICS))["cleantail_last_run_failed"]
        assert (sample.labels, sample.value) == ({"topic": "orders"}, value)


def test_all_dags_are_read_with_two_queries(airflow_db: Any) -> None:
    from airflow.settings import engine
    from sqlalchemy import event

    from cleantail_airflow.outcomes.dag_states import dag_states

    for number in range(30):
        dag_row(f"topic{number}")
        run_row(f"topic{number}", "r1", "failed", ("evaluate", -1))
    asked: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        asked.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        found = dag_states([f"topic{number}" for number in range(30)])
    finally:
        event.remove(engine, "before_cursor_execute", note)
    assert len([text for text in asked if text.startswith("SELECT")]) == 2
    assert [dag.failed_tasks[0].task_id for dag in found.values()] == ["evaluate"] * 30


def test_a_run_that_is_cleared_and_ends_well_is_no_longer_failed(airflow_db: Any) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    from cleantail_airflow.outcomes.dag_states import dag_states

    dag_row("orders")
    run_row("orders", "r1", "failed", ("evaluate", -1))
    assert dag_states(["orders"])["orders"].failed
    with create_session() as session:
        session.query(DagRun).one().state = "running"
    state = dag_states(["orders"])["orders"]
    assert (state.last, state.failed, state.running) == (None, False, True)
    assert dag_states([]) == {}


# ---- readers


def test_a_topic_whose_tombstones_a_reader_holds_waits_and_says_for_whom_and_until_when(
    browser: Any,  # noqa: F811
    clean: OrdersTable,
) -> None:
    horizon_ms = int(datetime.now(UTC).timestamp() * 1000) - 60_000
    state = replace(CLEAN, horizons=(Horizon(1, horizon_ms, 1),))
    clean.set_properties(**{"cleantail.partition.1": state.as_json()})
    assert 'data-state="due"' in shown_of(browser, clean, TOPICS)
    set_position(clean.catalog, clean.topic, "<b>idx", 1, 0)
    everything, shown = shown_of(browser, clean, TOPICS), shown_of(browser, clean)
    assert 'data-state="waiting"' in everything
    until = datetime.fromtimestamp(horizon_ms // 1000 + 7 * 86_400, UTC).strftime("%Y-%m-%d %H:%M:%S")
    words = f"1 tombstone past its horizon waits for reader &lt;b&gt;idx (at offset 0 of partition 1) until {until} UTC"
    assert words in everything
    assert words in shown
    assert '<h2 id="readers">Readers</h2>' in shown
    assert f"1 tombstone, until {until} UTC at the latest" in shown
    assert ">due <time" not in everything
    set_position(clean.catalog, clean.topic, "<b>idx", 1, 1)
    assert 'data-state="due"' in browser("ann").get(TOPICS).text  # a position moves without a commit to the table


def test_a_topic_without_readers_says_so(browser: Any, clean: OrdersTable) -> None:  # noqa: F811
    assert "No reader is registered, so no tombstone waits for one." in shown_of(browser, clean)


def test_an_unreadable_reader_position_is_shown_because_a_run_would_fail(
    browser: Any,  # noqa: F811
    clean: OrdersTable,
) -> None:
    clean.catalog.update_namespace_properties("cleantail", updates={"cleantail.reader.x": '{"topic": "orders"}'})
    everything = shown_of(browser, clean, TOPICS)
    assert 'data-state="unreadable"' in everything
    assert "cleantail.reader.x is not a reader" in everything


# ---- the way in and out


def test_a_page_that_was_opened_alone_leads_into_airflow(browser: Any, clean: OrdersTable) -> None:  # noqa: F811
    for path in (TOPICS, "/cleantail/topics/orders", "/cleantail/topics/no_topic"):
        assert '<a href="/" target="_top">Airflow</a>' in browser("ann").get(path).text
    shown = browser("ann").get("/cleantail/topics/orders").text
    assert '<a href="/dags/orders" target="_top">DAG orders</a>' in shown


def test_an_empty_topic_says_how_records_get_in(browser: Any, orders: OrdersTable, site: Site) -> None:  # noqa: F811
    site.topic("fresh")
    site.topic("landed", source={"path": "landing/*.gz"})
    fresh = browser("ann").get("/cleantail/topics/fresh").text
    assert (
        "Nothing was ingested yet: cleantail ingest fresh --file FILE, or a source.path, source.kafka or source.table in its YAML."
        in fresh
    )
    assert "to trigger a run" not in fresh
    assert "the next run takes the files that match" in browser("ann").get("/cleantail/topics/landed").text
    assert "cleantail ingest fresh --file FILE" in browser("ann").get(TOPICS).text


def test_a_rejected_log_is_not_shown_as_due_work(browser: Any, clean: OrdersTable) -> None:  # noqa: F811
    rests = Quarantine(1, "compact", "rejected by ben", 1, 1 << 45)
    clean.set_properties(**{"cleantail.partition.0": replace(CLEAN, checkpoint=0, quarantine=rests).as_json()})
    everything = shown_of(browser, clean, TOPICS)
    assert 'data-state="rejected"' in everything
    assert "no compaction is due" in shown_of(browser, clean)


def without_catalog(site: Site) -> None:
    """The catalog is a REST server at whose address nothing listens."""
    address = f"http://127.0.0.1:{free_port()}"
    (site.config / "defaults.yaml").write_text(f"platform: {{catalog: {{type: rest, uri: '{address}'}}}}\n")


def test_without_the_catalog_the_list_has_what_yaml_and_airflow_know(
    browser: Any,  # noqa: F811
    clean: OrdersTable,  # noqa: F811
    site: Site,
) -> None:
    site.broken_topic("broken")
    run_row("orders", RUN, "failed", ("compact", 3))
    without_catalog(site)
    text = browser("ann").get("/cleantail/topics").text
    assert "<strong>The catalog cannot be reached</strong>, so no table can be read:" in text
    assert 'data-state="unreadable"' in text and 'data-state="broken"' in text and "unknown key" in text
    assert "its last run failed 3 min ago in task compact (map index 3)" in text and "/tasks/compact/mapped/3" in text
    assert '<span class="state also failed">failed</span>' in text


def test_without_the_catalog_a_topics_page_has_its_dag_its_source_and_its_settings(
    browser: Any,  # noqa: F811
    clean: OrdersTable,  # noqa: F811
    site: Site,
) -> None:
    dag_row("orders", is_paused=True)
    without_catalog(site)
    shown = shown_of(browser, clean)
    assert "The table cannot be read" in shown and "nothing listens there" in shown
    assert "Its DAG is paused" in shown and "segment.ms" in shown and "Files that you ingest by hand" in shown
    for claim in ("is due", "Nothing was ingested yet", "No snapshot yet", "No round was", "Freed by rewrites"):
        assert claim not in shown


def test_without_the_catalog_metrics_say_that_every_topic_is_down(
    browser: Any,  # noqa: F811
    clean: OrdersTable,  # noqa: F811
    site: Site,
) -> None:
    run_row("orders", RUN, "failed", ("compact", 3))
    without_catalog(site)
    found = scraped(browser("ann").get(METRICS))
    assert [(s.labels["topic"], s.value) for s in found["cleantail_topic_up"]] == [("orders", 0)]
    assert {s.labels["state"]: s.value for s in found["cleantail_topics"] if s.value} == {"unreadable": 1}
    assert found["cleantail_last_run_failed"][0].value == 1 and "cleantail_dead_thread_count" in found
    assert "cleantail_log_records" not in found

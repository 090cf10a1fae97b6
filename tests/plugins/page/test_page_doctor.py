"""What the page shows of the installation: the last examination, and what to set without a configuration."""

from __future__ import annotations

from typing import Any

import pytest

from cleantail.doctor import OK, WRONG, Finding
from cleantail_airflow.installation import NO_CONFIG, WITHOUT_CONFIG
from cleantail_airflow.page import mount
from cleantail_airflow.page.page_content import PageContent
from tests.airflow_site import Site
from tests.dags.test_dag_files import stored
from tests.plugins.page.conftest import HOST
from tests.plugins.page.test_page import browser, dag_row, no_dags, orders  # noqa: F401

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore:Using `httpx` with")]

TOPICS, EXAMINE, BUTTON = "/cleantail/topics", "/cleantail/examine", 'action="/cleantail/examine"'
HOSTILE = "<script>alert(1)</script>"
FINDINGS = [
    Finding("java", "", OK, "version 17"),
    Finding("kafka", "orders", WRONG, f"nothing listens {HOSTILE}", "start the brokers", 4),
]


def examined(findings: object) -> None:
    """A run of the DAG, as Airflow writes it down."""
    from airflow.models.dagrun import DagRun
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    from tests.plugins.page.test_page_airflow import run_row

    dag_row("cleantail_doctor")
    run_row("cleantail_doctor", "r1", "failed", ("doctor", -1))
    with create_session() as session:
        run = session.query(DagRun).filter_by(dag_id="cleantail_doctor", run_id="r1").one()
        of_task = {"dag_run_id": run.id, "dag_id": run.dag_id, "run_id": "r1", "task_id": "doctor"}
        session.add(XComModel(key="return_value", value=findings, map_index=-1, **of_task))


def test_the_last_examination_is_shown_with_what_is_wrong_first(browser: Any) -> None:  # noqa: F811
    assert "Installation:" not in browser("ann").get(TOPICS).text
    dag_row("cleantail_doctor")
    assert "Installation: not examined yet" in browser("ann").get(TOPICS).text
    examined([finding.as_json() for finding in FINDINGS])
    shown = browser("ann").get(TOPICS).text
    assert "<strong>1 of 2 checks found something wrong</strong>" in shown
    assert 0 < shown.index("kafka orders") < shown.index("Next: start the brokers") < shown.index('"row">java')
    assert 'href="/dags/cleantail_doctor"' in shown
    assert HOSTILE not in shown
    assert "Installation:" not in browser("ann").get(f"{TOPICS}/orders").text


def triggered() -> list[tuple[str, str]]:
    """Who triggered the runs of the DAG, and their states."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    with create_session() as session:
        runs = session.query(DagRun).filter_by(dag_id="cleantail_doctor", run_type="manual")
        return [(run.triggering_user_name, str(run.state)) for run in runs]


def test_the_button_triggers_the_dag_of_the_repository(browser: Any, site: Site) -> None:  # noqa: F811
    assert browser("ann").client.post(EXAMINE, headers={"Origin": HOST}).status_code == 404
    bag = site.bag()
    assert "cleantail_doctor" in stored(bag)[1]
    assert BUTTON not in browser("vic").get(TOPICS).text
    assert browser("vic").client.post(EXAMINE, headers={"Origin": HOST}).status_code == 403
    assert browser().client.post(EXAMINE, headers={"Origin": HOST}).status_code == 401
    assert browser("ann").client.post(EXAMINE, headers={"Origin": "https://evil.example"}).status_code == 403
    assert triggered() == []

    assert BUTTON in browser("ann").get(TOPICS).text
    for _ in range(2):  # the second time a run is active
        answer = browser("ann").client.post(EXAMINE, headers={"Origin": HOST})
        assert (answer.status_code, answer.headers["location"]) == (303, f"{TOPICS}#installation")
    assert triggered() == [("ann", "queued")]
    shown = browser("ann").get(TOPICS).text
    assert BUTTON not in shown
    assert ">Queued</a>" in shown


def test_a_result_of_another_version_is_not_shown_and_breaks_nothing(browser: Any) -> None:  # noqa: F811
    examined([{"another": "shape"}])
    answer = browser("ann").get(TOPICS)
    assert (answer.status_code, "Installation: not examined yet" in answer.text) == (200, True)


@pytest.mark.parametrize("path", [TOPICS, f"{TOPICS}/orders"])
def test_without_a_configuration_page_and_tab_say_what_to_set_and_where(browser: Any, path: str) -> None:  # noqa: F811
    mount.FASTAPI_APPS[0]["app"].app.state.content = PageContent(NO_CONFIG)  # type: ignore[attr-defined]
    answer = browser("ann").get(path)
    assert (answer.status_code, WITHOUT_CONFIG in answer.text) == (200, True)
    assert (
        "Set CLEANTAIL_CONFIG in its environment to the directory that your DAG file passes to topic_dags"
        in answer.text
    )
    assert str(NO_CONFIG) not in answer.text

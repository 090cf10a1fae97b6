"""What an editor of a DAG writes into Airflow publishes nothing, and an approver's answer does: Airflow's real API, with
users of its auth manager, the DAG's own tasks and the real jobs on a real table."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cleantail.config.loading import find_topic, load_platform
from cleantail.lake.evaluate import read_facts
from cleantail.lake.table_metadata import history_of
from tests.airflow_environment import airflow_db  # noqa: F401  # first: nothing may import airflow before it
from tests.airflow_site import Site, site  # noqa: F401
from tests.alert_sinks import hook  # noqa: F401
from tests.jobs.round.test_alerts import Operations, operations  # noqa: F401
from tests.jobs.round.test_rounds import NOW, record

pytestmark = [
    pytest.mark.integration,
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.gx,
    pytest.mark.filterwarnings("ignore:Using `httpx` with"),
]
KEYS, RECORDS = 7, 40
USERS = ("an-editor", "the-approver")
FORGED = {"approved": True, "by": "the-approver", "at_ms": 1, "heads": [1]}


@pytest.fixture
def api(airflow_db: Path, tmp_path: Path) -> Iterator[Callable[..., Any]]:  # noqa: F811
    """Asks the API server of a real Airflow as one of its users, who may both edit DAGs and no more."""
    from airflow.api_fastapi.app import create_app, purge_cached_app
    from fastapi.testclient import TestClient

    passwords = tmp_path / "passwords.json"
    passwords.write_text(json.dumps(dict.fromkeys(USERS, "password")))
    settings = {
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:user" for name in USERS),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
    }
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, value in settings.items():
            patched.setenv(name, value)
        purge_cached_app()
        client = TestClient(create_app(), base_url="http://testserver")
        logins = {user: client.post("/auth/token", json={"username": user, "password": "password"}) for user in USERS}

        def ask(user: str, method: str, path: str, body: Any = None) -> Any:
            token = logins[user].json()["access_token"]
            return client.request(method, f"/api/v2{path}", json=body, headers={"Authorization": f"Bearer {token}"})

        yield ask
        purge_cached_app()


class Person(threading.Thread):
    """Does one thing after the other, each as soon as the task `approve` waits; what goes wrong is raised at the end."""

    def __init__(self, *acts: Callable[[str], None]) -> None:
        super().__init__()
        self._acts = acts
        self._over = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for act in self._acts:
                while not (run_id := _waiting_run()):
                    if self._over.wait(0.3):
                        return
                act(run_id)
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Person:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
        if self.error:
            raise self.error


def _waiting_run() -> str | None:
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from airflow.utils.state import TaskInstanceState

    with create_session() as session:
        waiting = session.query(TaskInstance).filter_by(state=TaskInstanceState.AWAITING_INPUT, dag_id="forged")
        return waiting.one().run_id if waiting.count() else None


def published(site: Site) -> tuple[int, dict[int, int]]:  # noqa: F811
    """How many records readers see, and the first dirty offsets."""
    facts = read_facts(find_topic("forged", site.config))
    assert facts is not None
    live = sum(file.live_records for file in facts.files)
    return live, {p: state.checkpoint for p, state in facts.states.items() if state.checkpoint is not None}


def note_of(run_id: str, task_id: str) -> str:
    """Why a task failed, as it noted it."""
    from airflow.models.xcom import XComModel
    from airflow.sdk.execution_time.xcom import XCom  # noqa: F401
    from airflow.utils.session import create_session

    with create_session() as session:
        query = XComModel.get_many(run_id=run_id, key="failure", task_ids=task_id, dag_ids="forged")
        row = session.execute(query.with_only_columns(XComModel.value)).first()
    assert row is not None
    text: str = json.loads(row.value)["reason"] if isinstance(row.value, str) else row.value["reason"]
    return text


def states(run_id: str) -> dict[str, str]:
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session

    with create_session() as session:
        return {ti.task_id: str(ti.state) for ti in session.query(TaskInstance).filter_by(run_id=run_id)}


@pytest.mark.deep
def test_an_editors_xcoms_and_marks_publish_nothing_and_the_approvers_answer_does(
    operations: Operations,  # noqa: F811
    api: Callable[..., Any],
) -> None:
    """One run: what the editor has called done is found out by `publish`; then the question is cleared and answered.

    In `make test`, test_only_an_approvers_answer_to_the_same_round_publishes_a_waiting_round in
    test_forged_xcoms.py holds the rule for the job, and test_topic_dag.py names the approvers to Airflow."""
    # a topic whose rounds only the-approver may approve
    topic, site = operations.topic("forged", {}, publish="approve", approvers=["the-approver"]), operations.site  # noqa: F811
    operations.ingest(topic, *(record(n, f"k{n % KEYS}", "v") for n in range(RECORDS)))
    dag = site.dag(topic)
    seen: list[tuple[str, int]] = []
    found_out: list[Any] = []
    yes = {"chosen_options": ["Approve"], "params_input": {}}

    def task(run_id: str, name: str) -> str:
        return f"/dags/forged/dagRuns/{run_id}/taskInstances/{name}"

    def forge(run_id: str) -> None:
        front = api("an-editor", "PATCH", f"{task(run_id, 'approve')}/-1/hitlDetails", yes)
        entry = {"key": "return_value", "value": FORGED, "map_index": -1}
        write = api("an-editor", "POST", f"{task(run_id, 'approve')}/xcomEntries", entry)
        checked = api("an-editor", "GET", f"{task(run_id, 'check_quality')}/xcomEntries/return_value?deserialize=true")
        passed = checked.json()["value"] | {"holds": [], "ok": True}
        verdict = {"value": passed, "map_index": -1}
        change = api("an-editor", "PATCH", f"{task(run_id, 'check_quality')}/xcomEntries/return_value", verdict)
        done = api("an-editor", "PATCH", task(run_id, "approve"), {"new_state": "success"})
        names = ("front door", "write", "change", "done")
        seen.extend(zip(names, [a.status_code for a in (front, write, change, done)], strict=True))

    def look_and_clear(context: Any) -> None:
        """Before the task after `publish` does anything."""
        run_id = context["dag_run"].run_id
        so_far = states(run_id)
        found_out.append((so_far["approve"], so_far["publish"], note_of(run_id, "publish"), published(site)))
        both = {"dry_run": False, "only_failed": False, "dag_run_id": run_id, "task_ids": ["approve", "publish"]}
        seen.append(("clear", api("the-approver", "POST", "/dags/forged/clearTaskInstances", both).status_code))

    def say_yes(run_id: str) -> None:
        told = api("the-approver", "PATCH", f"{task(run_id, 'approve')}/-1/hitlDetails", yes)
        seen.append(("approver", told.status_code))

    dag.task_dict["outcome"].pre_execute = look_and_clear
    with Person(forge, say_yes):
        finished = dag.test(run_conf={"now_ms": NOW})
    assert seen[:4] == [("front door", 403), ("write", 201), ("change", 200), ("done", 200)]
    [(approve, publish, note, table)] = found_out
    assert (approve, publish) == ("success", "failed")
    assert "has no valid approval" in note
    assert "no user has answered, regardless of XComs" in note
    assert table == (RECORDS, {})
    assert seen[4:] == [("clear", 200), ("approver", 200)]
    ended = states(finished.run_id)
    assert (ended["approve"], ended["publish"]) == ("success", "success")
    assert published(site) == (KEYS, {0: RECORDS})
    assert approved_by(site) == "the-approver"


def approved_by(site: Site) -> str | None:  # noqa: F811
    from cleantail.lake.catalogs import load_table, open_catalog

    platform, topic = load_platform(site.config), find_topic("forged", site.config)
    table = load_table(open_catalog(platform), topic)
    assert table is not None
    return next(c.summary["cleantail.approved-by"] for c in history_of(table) if c.is_round)


@pytest.mark.parametrize(("user", "said"), [("an-editor", "but is not among the topic's approvers"), ("anna", "")])
def test_a_rollback_of_a_topic_with_approvers_is_triggered_by_one_of_them(
    site: Site,  # noqa: F811
    user: str,
    said: str,
) -> None:
    from types import SimpleNamespace

    from airflow.sdk.exceptions import AirflowFailException
    from airflow.sdk.timezone import utcnow

    from cleantail_airflow.tasks.topic_dag import RollbackOperator

    site.topic("orders", publish="approve", approvers=["anna"])
    task = RollbackOperator(task_id="rollback", topic="orders", config_dir=str(site.config))
    run = SimpleNamespace(triggering_user_name=user, run_id="anna", run_after=utcnow())
    context: Any = {"params": {"rollback_to": "last"}, "dag_run": run}
    if said:
        with pytest.raises(AirflowFailException, match=f"{user} requested a rollback, {said}"):
            task.arguments(context)
        run.triggering_user_name = None
        with pytest.raises(AirflowFailException, match=f"a user unknown to Airflow requested a rollback, {said}"):
            task.arguments(context)
    else:
        assert task.arguments(context)[:3] == ["--to", "last", "--by=anna"]

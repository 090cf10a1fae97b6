"""Which Airflow task wrote a row of the evidence, and where its run and its log are."""

from cleantail.rounds.evidence_row import RoundWork, TaskRun, clocks_differ, columns_of, task_run_of, together, work_of

HERE = {
    "AIRFLOW_CTX_DAG_ID": "orders",
    "AIRFLOW_CTX_DAG_RUN_ID": "manual__2026-01-01T00:00:00+00:00",
    "AIRFLOW_CTX_TASK_ID": "publish",
}


def test_a_task_is_known_by_the_variables_that_airflow_sets_and_leads_to_its_log():
    found = task_run_of(columns_of(HERE))
    assert found == TaskRun("orders", "manual__2026-01-01T00:00:00+00:00", "publish")
    assert found.run_path == "/dags/orders/runs/manual__2026-01-01T00%3A00%3A00%2B00%3A00"
    assert found.log_path == f"{found.run_path}/tasks/publish"


def test_names_cannot_lead_elsewhere():
    assert TaskRun("../x", "a/b", "t?u").log_path == "/dags/..%2Fx/runs/a%2Fb/tasks/t%3Fu"


def test_the_command_line_and_rows_of_earlier_versions_are_of_no_task():
    assert set(columns_of({}).values()) == {None}
    assert task_run_of(columns_of({})) is None
    assert task_run_of({}) is None


def test_the_work_on_the_logs_of_a_round_is_one_work():
    row = {"began_ms": 5, "saved_bytes": 7, **columns_of(HERE)}
    first, second = work_of(row).ended({"checked_at_ms": 20}), RoundWork(3, 4)
    whole = together([first, second])
    assert (whole.began_ms, whole.saved_bytes, whole.ended_at_ms) == (3, 11, 20)
    assert whole.checked_by == task_run_of(row)
    assert together([RoundWork()]) == RoundWork()


def test_minutes_between_two_clocks_say_nothing():
    assert not clocks_differ(1_700_000_000_000, 1_700_000_300_000)
    assert clocks_differ(1_800_000_000_000, 1_700_000_000_000)

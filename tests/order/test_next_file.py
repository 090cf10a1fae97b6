"""Each process of a test run takes the files of the systems that it has started, and none is left over."""

from __future__ import annotations

import itertools

import pytest

from tests.order.next_file import AIRFLOW, KAFKA, NEEDS, NONE, SPARK, WORTH_S, next_file, system_of

FILES = {
    "tests/jobs/round/source_table/test_table_source.py": 180.0,
    "tests/jobs/round/test_reconciliation.py": 150.0,
    "tests/dags/test_dag_runs.py": 110.0,
    "tests/jobs/round/test_rounds.py": 90.0,
    "tests/jobs/restore/test_restore.py": 80.0,
    "tests/plugins/page/test_page.py": 30.0,
    "tests/cleantail/config/test_config.py": 10.0,
    "tests/order/test_file_names.py": 0.0,
}


def test_a_file_needs_what_its_folder_and_its_fixtures_say():
    assert [system_of(file) for file in FILES] == [SPARK, KAFKA, AIRFLOW, SPARK, KAFKA, AIRFLOW, NONE, NONE]


def test_each_process_begins_with_another_system_and_goes_on_with_it():
    assert next_file(FILES, (), ()) == "tests/jobs/round/source_table/test_table_source.py"
    assert next_file(FILES, (), [NEEDS[SPARK]]) == "tests/jobs/round/test_reconciliation.py"
    assert next_file(FILES, (), [NEEDS[SPARK], NEEDS[KAFKA]]) == "tests/dags/test_dag_runs.py"
    left = {file: seconds for file, seconds in FILES.items() if system_of(file) != AIRFLOW}
    assert next_file(left, NEEDS[KAFKA], [NEEDS[SPARK], NEEDS[AIRFLOW]]) == "tests/jobs/round/test_reconciliation.py"
    assert next_file(left, NEEDS[AIRFLOW], [NEEDS[SPARK], NEEDS[KAFKA]]) == "tests/cleantail/config/test_config.py"


def test_a_system_is_started_once_more_only_where_much_of_it_is_left():
    others = [NEEDS[SPARK], NEEDS[KAFKA]]  # Spark runs in both
    much = {"tests/jobs/round/test_rounds.py": 3 * WORTH_S + 1}
    little = {"tests/jobs/round/test_rounds.py": 3 * WORTH_S}
    assert next_file(much, NEEDS[AIRFLOW], others) == "tests/jobs/round/test_rounds.py"
    assert next_file(little, NEEDS[AIRFLOW], others) is None
    assert next_file(little, NEEDS[AIRFLOW], ()) == "tests/jobs/round/test_rounds.py"  # nobody else would


@pytest.mark.parametrize("processes", [1, 2, 3, 4, 9])
def test_no_file_is_left_over_and_none_is_taken_twice(processes):
    left, started, taken = dict(FILES), [set[str]() for _ in range(processes)], []
    ended = set[int]()
    for process in itertools.cycle(range(processes)):
        if len(ended) == processes:
            break
        others = [started[other] for other in range(processes) if other != process and other not in ended]
        file = None if process in ended else next_file(left, started[process], others)
        if file is None:
            ended.add(process)
            continue
        taken.append(file)
        del left[file]
        started[process] |= NEEDS[system_of(file)]
    assert sorted(taken) == sorted(FILES)

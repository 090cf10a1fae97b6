"""A driver whose executors are lost, or that never got one, ends after a configured time.

tests/jobs/test_cluster.py does it with a real cluster.
"""

from __future__ import annotations

import pytest

from spark_jobs.iceberg.executor_watch import Watch

MASTER = "spark://host:7077"


@pytest.mark.parametrize(
    ("seen", "ends_at"),
    [
        pytest.param([(0, 1, 2), (500, 1, 2)], None, id="it has executors"),
        pytest.param([(0, 0, 0), (500, 0, 0)], None, id="nothing to do"),
        pytest.param([(0, 1, 0), (9, 1, 0), (10, 1, 0)], 10, id="no executor from the beginning"),
        pytest.param([(0, 1, 2), (100, 1, 0), (105, 1, 2), (109, 1, 0), (118, 1, 0)], None, id="others in between"),
        pytest.param([(0, 1, 2), (100, 1, 0), (105, 0, 0), (109, 1, 0), (118, 1, 0)], None, id="no job in between"),
        pytest.param([(0, 1, 2), (100, 1, 0), (111, 1, 0)], 111, id="lost"),
    ],
)
def test_an_application_ends_once_its_jobs_have_had_no_executor_for_too_long(seen, ends_at):
    watch = Watch(10_000, MASTER)
    errors = {now: watch.error(jobs, executors, now) for now, jobs, executors in seen}
    assert [now for now, error in errors.items() if error] == ([ends_at] if ends_at else [])


def test_the_error_names_master_jobs_time_and_what_happened():
    never, lost = Watch(1_000, MASTER), Watch(1_000, MASTER)
    lost.error(1, 2, 0)
    for watch in (never, lost):
        assert watch.error(2, 0, 1) is None
    assert str(never.error(2, 0, 3)).startswith(
        f"the application got no executor from {MASTER}: 2 jobs waited for cleantail.executors.lost.ms 1s"
    )
    assert "lost all of its executors" in str(lost.error(2, 0, 3))

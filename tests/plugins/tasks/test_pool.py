"""The pool of Spark applications is there whenever Airflow runs, as large as defaults.yaml says."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleantail_airflow import installation
from cleantail_airflow.tasks import spark_pool
from tests.airflow_site import Site

pytestmark = pytest.mark.airflow


def slots() -> int | None:
    from airflow.models.pool import Pool

    found = Pool.get_pool(spark_pool.POOL)
    return None if found is None else found.slots


def test_the_slots_are_the_cleaner_threads(site: Site, airflow_db: Path) -> None:
    (site.config / "defaults.yaml").write_text("platform: {cleaner: {log.cleaner.threads: 3}}\n")
    spark_pool.ensure_pool()
    assert slots() == 3


def test_a_pool_that_was_removed_is_back_when_a_scheduler_starts(site: Site, airflow_db: Path) -> None:
    from airflow.jobs.job import Job
    from airflow.models.pool import Pool

    spark_pool.ensure_pool()
    Pool.delete_pool(spark_pool.POOL)
    assert slots() is None
    Job()
    assert slots() == 1


def test_a_task_that_starts_does_not_touch_the_database(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    monkeypatch.setattr(spark_pool, "ensure_pool", lambda: opened.append(True))
    spark_pool.on_starting(object())
    assert opened == []


def test_a_broken_configuration_still_gives_a_pool(site: Site, airflow_db: Path) -> None:
    (site.config / "defaults.yaml").write_text("platfrom: {}\n")
    spark_pool.ensure_pool()
    assert slots() == 1


def test_a_scheduler_without_a_configuration_does_not_change_the_slots(
    site: Site, airflow_db: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from airflow.models.pool import Pool

    monkeypatch.delenv("CLEANTAIL_CONFIG")
    monkeypatch.setattr(installation, "in_checkout", lambda: False)
    Pool.delete_pool(spark_pool.POOL)
    spark_pool.ensure_pool()
    assert slots() == 1
    assert "CLEANTAIL_CONFIG of the scheduler names no configuration" in caplog.text
    Pool.create_or_update_pool(spark_pool.POOL, slots=5, description="", include_deferred=False)
    spark_pool.ensure_pool()
    assert slots() == 5

"""Old logs of the embedded Airflow are deleted, and nothing else of its home."""

from __future__ import annotations

import os
import time

from embedded_airflow import supervisor
from embedded_airflow.supervisor import DAY_S, delete_old_logs

NOW_S = time.time()


def made(path, days):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    for each in (path, path.parent):
        os.utime(each, (NOW_S - days * DAY_S,) * 2)
    return path


def test_files_of_31_days_and_their_folders_go_and_younger_ones_stay(tmp_path):
    logs = tmp_path / "logs"
    old, young = made(logs / "dag_id=a" / "run_id=1" / "1.log", 31), made(logs / "dag_id=a" / "run_id=2" / "1.log", 29)
    others = [made(tmp_path / "airflow.db", 99), made(tmp_path / "secret", 99)]
    outside = made(tmp_path / "elsewhere" / "kept.log", 99)
    (logs / "link").symlink_to(outside.parent)
    assert delete_old_logs(tmp_path, NOW_S) == 1
    assert not old.parent.exists() and young.exists() and outside.exists() and all(file.exists() for file in others)


def test_an_empty_folder_that_a_task_may_just_have_made_stays(tmp_path):
    folder = tmp_path / "logs" / "dag_id=a"
    folder.mkdir(parents=True)
    assert delete_old_logs(tmp_path, NOW_S) == 0
    assert folder.exists()


def test_the_log_of_the_processes_is_emptied_beyond_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "MOST_BYTES", 10)
    log = tmp_path / "airflow.log"
    with log.open("a") as writer:
        writer.write("0123456789")
        writer.flush()
        delete_old_logs(tmp_path, NOW_S)
        assert log.stat().st_size == 10
        writer.write("more")
        writer.flush()
        delete_old_logs(tmp_path, NOW_S)
        assert log.stat().st_size == 0
        writer.write("after")
    assert log.read_text() == "after"


def test_a_home_without_logs_is_no_error(tmp_path):
    assert delete_old_logs(tmp_path, NOW_S) == 0

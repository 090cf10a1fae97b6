"""A session that starts beside the imports of a job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cleantail.config.loading import load_platform
from cleantail.errors import CleantailError
from spark_jobs.iceberg import session as sessions
from spark_jobs.iceberg.jvm import local_files
from spark_jobs.iceberg.jvm.local_files import set_permissions_without_processes
from spark_jobs.iceberg.session import begin_session

LINUX = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks Linux for the processes of a process")


def test_the_session_is_the_one_that_runs_and_the_active_one_of_whoever_waits_for_it(spark, workshop):
    session = begin_session(workshop.platform(), "any")
    assert session() is spark
    assert spark._jvm.org.apache.spark.sql.classic.SparkSession.getActiveSession().isDefined()


@LINUX
def test_the_jvm_of_a_pack_writes_a_local_file_without_a_process_for_it_and_without_a_file_of_checksums(
    spark, tmp_path: Path
) -> None:
    set_permissions_without_processes(spark)
    hadoop, jvm = spark._jvm.org.apache.hadoop.fs, spark._jvm.java.lang.ProcessHandle.current().pid()
    files = hadoop.Path(f"file:{tmp_path}").getFileSystem(spark._jsc.hadoopConfiguration())
    one, before = hadoop.Path(f"file:{tmp_path}/one"), ended_children(jvm)
    files.create(one, False).close()
    files.setPermission(one, hadoop.permission.FsPermission("640"))
    assert ended_children(jvm) == before
    (file,) = tmp_path.iterdir()
    assert (file.name, file.stat().st_mode & 0o777) == ("one", 0o640)


@LINUX
def test_a_folder_keeps_the_bits_that_java_does_not_know_and_a_linked_one_is_listed(spark, tmp_path: Path) -> None:
    set_permissions_without_processes(spark)
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    (tmp_path / "folder").chmod(0o2775)
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    hadoop = spark._jvm.org.apache.hadoop.fs
    files = hadoop.Path(f"file:{tmp_path}").getFileSystem(spark._jsc.hadoopConfiguration())
    files.setPermission(hadoop.Path(f"file:{tmp_path}/folder"), hadoop.permission.FsPermission("755"))
    assert (tmp_path / "folder").stat().st_mode & 0o7777 == 0o2755
    (listed,) = files.listStatus(hadoop.Path(f"file:{tmp_path}/link"))
    assert listed.getPath().getName() == "inside"


@pytest.mark.parametrize(
    ("name", "other"), [("COMPILER", "org.codehaus.janino.Nothing"), ("SOURCE", "no Java"), ("NAME", "cleantail.None")]
)
def test_without_the_compiler_or_what_it_makes_files_are_written_as_ever(
    spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, other: str
) -> None:
    hadoop, conf = spark._jvm.org.apache.hadoop.fs, spark._jsc.hadoopConfiguration()
    hadoop.FileSystem.getLocal(conf).close()  # the next one to ask gets that of the class path
    own = hadoop.FileSystem.getLocal(conf).getClass().getName()
    with monkeypatch.context() as patch:
        patch.setattr(local_files, name, other)
        set_permissions_without_processes(spark)
    files = hadoop.FileSystem.getLocal(conf)
    assert files.getClass().getName() == own != local_files.NAME
    assert conf.get(local_files.SETTING) is None
    files.create(hadoop.Path(f"file:{tmp_path}/one"), False).close()
    assert [file.name for file in tmp_path.iterdir()] == ["one"]
    set_permissions_without_processes(spark)
    assert hadoop.FileSystem.getLocal(conf).getClass().getName() == local_files.NAME


def ended_children(pid: int) -> int:
    """Returns what grows with every child of the process that ends: the page faults of them all (proc(5): cminflt)."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[8])


def test_what_keeps_a_session_from_starting_is_raised_where_it_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "topics").mkdir()
    monkeypatch.setattr(sessions, "jars", lambda platform: [])
    session = begin_session(load_platform(tmp_path, os.environ | {"CLEANTAIL_HOME": str(tmp_path)}), "any")
    for _ in range(2):
        with pytest.raises(CleantailError, match="no Spark jars in"):
            session()


BEGUN = """
import os, sys, time
from pathlib import Path
from cleantail.config.loading import load_platform
from cleantail.home.process import run_process
from spark_jobs.iceberg.session import begin_session

def children(pid):
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for thread in threads for child in (thread / "children").read_text().split()]

def workers():
    jvms = children(os.getpid())
    named = (Path(f"/proc/{pid}/cmdline").read_text() for jvm in jvms for pid in children(jvm))
    return sum("workers.daemon" in name for name in named)

def main(argv):
    session = begin_session(load_platform(Path(argv[0])), "begun", workers=argv[1] == "True")
    session()
    patience_s = 30 if argv[1] == "True" else 2  # for what is to come, however busy the machine is, and what is not
    seen, end = 0, time.monotonic() + patience_s
    while not seen and time.monotonic() < end:
        seen = workers()
        time.sleep(0.05)
    print(seen)
    return 0

run_process(main)
"""


@pytest.mark.integration
@LINUX
def test_workers_start_with_the_session_where_tasks_need_them(home: Path, tmp_path: Path) -> None:
    (tmp_path / "topics").mkdir()
    (tmp_path / "defaults.yaml").write_text('{"platform": {"spark": {"master": "local[1]"}}}')
    for workers in (True, False):
        command = [sys.executable, "-c", BEGUN, str(tmp_path), str(workers)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert (run.returncode, run.stdout.strip(), run.stderr) == (0, str(int(workers)), "")

"""Nothing of a record is readable by another user of the machine while a job runs: this looks as another user."""

from __future__ import annotations

import os
import stat
import time
import uuid
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir

import pytest
from pyspark import StorageLevel

from spark_jobs.iceberg.session import private_folders
from tests.unprivileged import as_nobody

pytestmark = pytest.mark.integration


def readable(places, since_s):
    """Yields the files below these folders that another user can read, and that were written since then."""
    for place in places:
        for folder, _, names in os.walk(place):
            for name in names:
                path = Path(folder, name)
                with suppress(OSError):
                    status = path.lstat()
                    if status.st_mtime >= since_s and stat.S_ISREG(status.st_mode):
                        yield path, path.read_bytes()


def shown_to_others(marker, since_s, *places):
    with as_nobody():
        return [str(path) for path, text in readable([gettempdir(), *places], since_s) if marker.encode() in text]


def test_what_is_shuffled_cached_or_sent_to_tasks_is_readable_by_no_other_user(spark, home):
    marker, since_s = f"salary-of-anna-{uuid.uuid4().hex}", time.time() - 1
    context, level = spark.sparkContext, StorageLevel.DISK_ONLY
    context._conf.set("spark.shuffle.compress", "false")
    parts = context.parallelize([(number % 3, f"{marker}-{number}") for number in range(200)], 2)
    shuffled = parts.groupByKey(2).mapValues(list).persist(level)
    sent = context.broadcast([marker] * 10)
    cached = spark.createDataFrame([(marker, number) for number in range(20)], "a string, b int").persist(level)
    assert (shuffled.count(), cached.count(), len(sent.value)) == (3, 20, 10)
    assert context.parallelize([0], 1).map(lambda _: len(sent.value)).collect() == [10]
    here = [Path(folder) for folder in context.getConf().get("spark.local.dir").split(",")]
    assert all(stat.S_IMODE(folder.stat().st_mode) == 0o700 for folder in here)
    assert any(file.is_file() for folder in here for file in folder.rglob("*")), "nothing was written to look for"
    assert shown_to_others(marker, since_s, home) == []
    cached.unpersist()
    shuffled.unpersist()


def test_sockets_of_pythons_workers_are_reached_by_no_other_user(spark):
    folder = spark.sparkContext.getConf().get("spark.python.unix.domain.socket.dir")
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700 and len(folder) < 60
    assert spark.sparkContext.parallelize(range(4), 2).map(lambda n: n + 1).sum() == 10


@pytest.mark.parametrize(
    ("variable", "setting"),
    [
        pytest.param(None, "{0}/a", id="by-the-setting"),
        pytest.param("{0}/a,{0}/b", None, id="by-the-environment"),
        pytest.param("{0}/a", "{0}/b", id="the-environment-wins"),
    ],
)
def test_a_folder_that_the_platform_names_for_sparks_files_has_private_ones_in_it(
    tmp_path, monkeypatch, variable, setting
):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    if variable:
        monkeypatch.setenv("SPARK_LOCAL_DIRS", variable.format(tmp_path))
    settings = private_folders({"spark.local.dir": setting.format(tmp_path)} if setting else {})
    made = settings["spark.local.dir"].split(",")
    assert [str(Path(folder).parent) for folder in made] == (variable or setting).format(tmp_path).split(",")
    assert [stat.S_IMODE(os.stat(folder).st_mode) for folder in made] == [0o700] * len(made)
    assert os.environ.get("SPARK_LOCAL_DIRS", settings["spark.local.dir"]) == settings["spark.local.dir"]


def test_cluster_hosts_get_no_setting_for_a_socket_folder_of_the_drivers_host(tmp_path):
    settings = {"spark.local.dir": str(tmp_path), "spark.master": "spark://host:7077"}
    assert [*private_folders(settings)] == ["spark.local.dir"]

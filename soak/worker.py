"""The process of a machine: it runs commands of `cleantail`, one after another, in one warm Spark application.

Reads a JSON list of arguments per line, and answers with exit code, stdout and stderr. The first argument may also
be one of OWN. `watch` prints the page, the metrics and the alerts of a topic at a time (Unix ms). `dag` runs a topic's
DAG in the machine's own Airflow. `clock` moves the clock. The others are acts of another engine, which is plain Spark
on the same catalog.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sqlite3
import subprocess
import sys
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

CLOCK = time.time_ns


def main() -> None:
    from cleantail_cli import main as cleantail

    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of Java must not mix with the answers
    for line in sys.stdin:
        argv: list[str] = json.loads(line)
        out, err, code = io.StringIO(), io.StringIO(), 99
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                own = OWN.get(argv[0])
                code = own(*argv[1:]) if own else cleantail(argv)
            except SystemExit as e:
                code = e.code if isinstance(e.code, int) else 2
            except BaseException:
                traceback.print_exc(file=err)
        print(json.dumps([code, out.getvalue(), err.getvalue()]), file=answers)


def _outside(action: Callable[[Any, str], None], what: str) -> int:
    """Run an act of another engine. Return 9 after an error."""
    from cleantail.config.loading import load_platform
    from spark_jobs.iceberg.session import start_session

    session = start_session(load_platform(Path(os.environ["CLEANTAIL_CONFIG"])), "another engine")
    try:
        action(session, what)
    except Exception as e:
        print(str(e)[:2000], file=sys.stderr)
        return 9
    return 0


def _dag(dag: str, conf: str, _: str, config: str) -> int:
    """Run `airflow dags test`, and print the warnings and errors of its log. Return 0 if the run is green, else 4.

    Return 9 if Airflow has several versions of the DAG, because its YAML does not change between runs.
    """
    from embedded_airflow.home import environment, make_secrets

    known = {**os.environ, "CLEANTAIL_CONFIG": config}
    env = {**known, **environment(8080, known)}
    home = Path(env["AIRFLOW_HOME"])
    make_secrets(home)
    commands = [["dags", "reserialize"], ["dags", "test", dag, "--conf", conf]]
    if not (home / "airflow.db").exists():
        commands.insert(0, ["db", "migrate"])
    done = [
        subprocess.run([sys.executable, "-m", "airflow", *command], env=env, capture_output=True, text=True)
        for command in commands
    ]
    print("".join(line for line in done[-1].stdout.splitlines(True) if "[info " not in line), done[-1].stderr)
    with contextlib.closing(sqlite3.connect(home / "airflow.db")) as database:
        versions = database.execute("SELECT count(*) FROM dag_version WHERE dag_id = ?", [dag]).fetchone()[0]
    print(f"{versions} versions of the DAG")
    return 4 if any(each.returncode for each in done) else 9 * (versions != 1)


def _set_clock(ahead_s: str) -> int:
    """Move the clock of this process's Python. Java's clock does not move."""
    time.time_ns = lambda: CLOCK() + int(ahead_s) * 1_000_000_000
    time.time = lambda: time.time_ns() / 1e9
    return 0


def _watch(name: str, at_ms: str) -> int:
    from cleantail.config.topic import Topic
    from cleantail.watch.alarms import log_alarms
    from cleantail.watch.log_metrics import log_samples, total_samples
    from cleantail_airflow.page.page_content import PageContent
    from cleantail_airflow.page.page_values import row_of

    now_ms = int(at_ms)
    content = PageContent(Path(os.environ["CLEANTAIL_CONFIG"]))
    topic = content.configured.topics[name][1]
    assert isinstance(topic, Topic)
    table = content.summaries([topic], 60.0)[name]
    assert table is not None
    logs = table.states(topic, now_ms)
    samples = [*log_samples(name, logs, topic.config, now_ms), *total_samples(content.totals(60.0) or Counter())]
    said = {
        "state": row_of(name, topic, table, now_ms).state.value,
        "alarms": [str(alarm) for alarm in log_alarms(logs, table.readers, topic.config, now_ms)],
        "metrics": [[each.metric.name, *each.labels[1:], each.value] for each in samples if each.labels[0] == name],
    }
    print(json.dumps(said))
    return 0


def _register_twice(session: Any, table: str) -> None:
    """Append the oldest data file of a table again, like a sink whose commit was taken but reported as failed."""
    iceberg = session._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, table)
    tasks, files = iceberg.newScan().includeColumnStats().planFiles().iterator(), list[Any]()
    while tasks.hasNext():
        files.append(tasks.next().file())
    if files:
        oldest = min(files, key=lambda file: file.dataSequenceNumber())
        iceberg.newFastAppend().appendFile(oldest).commit()


def _add_vectors_again(session: Any, table: str) -> None:
    """Append the deletion vectors of a table again, like a writer that does not remove a file's present vector."""
    iceberg = session._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, table)
    tasks = iceberg.newScan().planFiles().iterator()
    delta = iceberg.newRowDelta().validateFromSnapshot(iceberg.currentSnapshot().snapshotId())
    while tasks.hasNext():
        for vector in tasks.next().deletes():
            delta.addDeletes(vector)
    delta.commit()


def _upsert(session: Any, upsert: str) -> None:
    """Delete keys by their values, as a sink in upsert mode does, and append. `upsert`: table, keys and statement."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table, keys, statement = json.loads(upsert)
    jvm = session._jvm
    iceberg = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, table)
    ids = session.sparkContext._gateway.new_array(jvm.int, 1)
    ids[0] = iceberg.schema().findField("key").fieldId()
    kind = pa.field("key", pa.binary(), metadata={b"PARQUET:field_id": str(ids[0]).encode()})
    path = Path(f"{iceberg.location().removeprefix('file:')}/data/{uuid.uuid4()}.parquet")
    pq.write_table(pa.table([[key.encode() for key in keys]], schema=pa.schema([kind])), path)
    builder = jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(iceberg.spec()).ofEqualityDeletes(ids)
    builder = builder.withFormat(jvm.org.apache.iceberg.FileFormat.PARQUET).withPath(f"file:{path}")
    builder = builder.withFileSizeInBytes(path.stat().st_size).withRecordCount(len(keys))
    iceberg.newRowDelta().addDeletes(builder.build()).commit()
    session.sql(statement).collect()


def _roll_back_a_round(session: Any, table: str) -> None:
    """Undo the last commit by Iceberg's own procedure, if it is a round of Cleantail: no appended record is lost."""
    last = f"SELECT parent_id, summary FROM cleantail.{table}.snapshots ORDER BY committed_at DESC LIMIT 1"
    for parent, summary in session.sql(last).collect():
        if parent is not None and summary.get("cleantail.operation") in ("compact", "expire"):
            session.sql(f"CALL cleantail.system.rollback_to_snapshot('{table}', {parent})").collect()


OWN: dict[str, Callable[..., int]] = {
    "watch": _watch,
    "clock": _set_clock,
    "dag": _dag,
    "sql": partial(_outside, lambda session, statement: session.sql(statement).collect()),
    "register twice": partial(_outside, _register_twice),
    "vectors twice": partial(_outside, _add_vectors_again),
    "write by value": partial(_outside, _upsert),
    "roll back a round": partial(_outside, _roll_back_a_round),
}

if __name__ == "__main__":
    main()

"""A table of format 1 with many snapshots, marks without a time and large metadata shrinks by plain runs."""

from __future__ import annotations

import json
import os
import time
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pytest

from cleantail.lake.catalogs import open_catalog
from cleantail.log.partition_state import PROPERTY_FORGOTTEN, PROPERTY_INGESTED, UNTIMED
from cleantail.rounds.pack_results import PACK_REQUEST_JSON, PackRequest
from spark_jobs import run_station
from spark_jobs.round.intake.denylist import Denylist
from spark_jobs.round.intake.record_batches import ARROW_SCHEMA
from spark_jobs.round.intake.record_files import LogWriter, data_files, file_target, log_path

EVERY_MS, DAY_MS = 900_000, 86_400_000
AGED_MS = 10 * DAY_MS
"""Age of the newest of the many runs."""


def landed(workshop, topic, offsets, ts):
    folder = workshop.platform().home / "landing" / topic
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    lines = [{"partition": 0, "offset": n, "ts": ts, "key": f"k{n % 3}", "payload": f"v{n}"} for n in offsets]
    (folder / f"{offsets[0]}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def run(workshop, topic, now_ms):
    """A plain run of the topic in a pack."""
    file = workshop.config / "result.json"
    request = PACK_REQUEST_JSON.text(PackRequest((topic,), now_ms))
    arguments = ["--config", str(workshop.config), "--request", request, "--result", str(file)]
    assert run_station.main(["run_pack", *arguments]) == 0, file.read_text()
    return json.loads(file.read_text())["topics"][0]


def grown(table, runs):
    """Add the commits of so many runs: a file and its mark, a branch that was dropped, and a publication, each with a
    summary of its round. One transaction makes all of them. The metadata are large (LARGE_METADATA): appends have merged
    manifests only if there were 20."""
    iceberg = table.load()
    target = file_target(table, iceberg, Denylist(None))
    prefix, written = log_path(iceberg).format(0), []
    for n in range(runs):
        writer = LogWriter({}, target, 0, f"{prefix}-{n}")
        record = {"partition": 0, "offset": 10 + n, "timestamp": 1, "key": b"k", "value": b"v", "headers": []}
        rows = [{name: record.get(name, 0) for name in ARROW_SCHEMA.names}]
        writer.add(pa.RecordBatch.from_pylist(rows, ARROW_SCHEMA))
        written.append(writer.close())
    transaction = iceberg.newTransaction()
    for n, file in enumerate(data_files(table, written)):
        transaction.newAppend().appendFile(file).set("cleantail.operation", "ingest").commit()
        branch = f"ct_{n}_0_u0"
        transaction.newFastAppend().toBranch(branch).set("cleantail.unit", "x" * 900).commit()
        transaction.newFastAppend().set("cleantail.before", "x" * 900).commit()
        transaction.manageSnapshots().removeBranch(branch).commit()
    change = transaction.updateProperties().set("write.metadata.previous-versions-max", "100")
    change.remove("write.metadata.compression-codec")
    for n in range(runs):
        change.set(f"{PROPERTY_INGESTED}{sha256(str(n).encode()).hexdigest()}", UNTIMED)
    change.commit()
    transaction.commitTransaction()


def location(workshop, table):
    return Path(open_catalog(workshop.platform()).load_table(table.topic.table).metadata_location.removeprefix("file:"))


def dated(workshop, table, now_ms, runs):
    """Date the snapshots a quarter of an hour apart, and all files, so that the newest are AGED_MS old."""
    file = location(workshop, table)
    metadata = json.loads(file.read_text())
    count = len(metadata["snapshots"])
    times = {
        s["snapshot-id"]: now_ms - AGED_MS - (count - n) * EVERY_MS // 3 for n, s in enumerate(metadata["snapshots"])
    }
    for entry in (*metadata["snapshots"], *metadata["snapshot-log"]):
        entry["timestamp-ms"] = times[entry["snapshot-id"]]
    for entry in metadata["metadata-log"]:
        entry["timestamp-ms"] = min(times.values())
    metadata["last-updated-ms"] = max(times.values())
    file.write_text(json.dumps(metadata))
    old_s = (now_ms - AGED_MS - 2 * runs * EVERY_MS) / 1000
    for path in file.parents[1].rglob("*"):
        os.utime(path, (old_s, old_s))


def sizes(workshop, table):
    """Bytes of the metadata file, number of properties, snapshots, and of files below the table's folder."""
    loaded, file = open_catalog(workshop.platform()).load_table(table.topic.table), location(workshop, table)
    below = [path for path in file.parents[1].rglob("*") if path.is_file() and not path.name.endswith(".crc")]
    return file.stat().st_size, len(loaded.properties), len(loaded.metadata.snapshots), len(below)


COMPACTED = {"min.cleanable.dirty.ratio": 0.01}
RETAINED = COMPACTED | {"cleanup.policy": "compact,delete", "retention.ms": "9d"}
"""The records of the many runs are older."""


@pytest.mark.parametrize(
    ("runs", "config"), [(30, COMPACTED), (30, RETAINED), pytest.param(500, COMPACTED, marks=pytest.mark.deep)]
)
def test_a_table_of_many_runs_shrinks_by_plain_runs(workshop, table_of, runs, config):
    (workshop.config / "defaults.yaml").write_text("platform: {allow_clock: true}")
    name = f"aged-table-{runs}-{len(config)}"
    topic = workshop.topic(name, config, source={"path": f"landing/{name}/*.jsonl"})
    table, now_ms = table_of(topic), int(time.time() * 1000)
    landed(workshop, topic, range(3), now_ms - 2 * AGED_MS)
    run(workshop, topic, now_ms - 2 * AGED_MS)
    grown(table, runs)
    dated(workshop, table, now_ms, runs)
    before = sizes(workshop, table)
    assert before[0] > 4_000 * runs and before[1] > runs and before[2] > 3 * runs and before[3] > 4 * runs

    landed(workshop, topic, range(1_000, 1_003), now_ms)
    first = run(workshop, topic, now_ms)  # compacts, rewrites and expires
    assert first["compacted"]["published"] == [0] and first["reclaimed"]["expired_snapshots"] > 3 * runs
    landed(workshop, topic, range(1_020, 1_023), now_ms)
    run(workshop, topic, now_ms + 8 * DAY_MS)  # the marks have no time: they end a week after the first run
    metadata_bytes, properties, snapshots, files = sizes(workshop, table)
    assert (metadata_bytes < 10_000, properties < 40, snapshots < 15, files < 100) == (True,) * 4, sizes(
        workshop, table
    )
    there = open_catalog(workshop.platform()).load_table(table.topic.table).properties
    assert len([name for name in there if name.startswith(PROPERTY_INGESTED)]) <= 2
    assert PROPERTY_FORGOTTEN in there
    newest = [(1_020, "k0"), (1_021, "k1"), (1_022, "k2")]
    kept = [] if config == RETAINED else [(9 + runs, "k")]
    assert [(r["offset"], r["key"]) for r in workshop.read(topic)] == [*kept, *newest]

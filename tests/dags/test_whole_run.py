"""One run of a topic's DAG with the real jobs on real Spark, from landing files to the published table; it is looked at
from all sides: the table, Airflow, alerts, metrics, what lies about, and what Airflow's own provider for OpenLineage sends.

The provider is no part of the tested environment. It is put into a folder of its own, by the hashes of constraints.txt,
for the one process of the run; where that cannot be, the run is the same and what it sends is not looked at.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.message import Message as Mail
from pathlib import Path
from typing import Any

import pytest

from cleantail.config.loading import find_topic, load_platform
from cleantail.config.platform import Platform
from cleantail.lake.evaluate import read_facts
from cleantail.lake.table_metadata import TableFacts
from cleantail_airflow.station_lineage import is_wanted
from tests.airflow_environment import ROOT
from tests.alert_sinks import mail_server
from tests.cleantail.home.test_driver_environment import NEEDED, SECRETS
from tests.dags.whole_run import IN_HEADER, IN_KEY, IN_VALUE, KEYS, RECORDS, TOO_LONG
from tests.statsd_sink import UdpSink

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.spark, pytest.mark.gx]
MARKS = (IN_KEY, IN_VALUE, IN_HEADER)
NEEDED_HERE = ("CLEANTAIL_CATALOG_PASSWORD", "CLEANTAIL_S3_SECRET_ACCESS_KEY")
PACKAGES = (
    "apache-airflow-providers-openlineage",
    "httpcore2",
    "httpx2",
    "openlineage-integration-common",
    "openlineage-python",
    "openlineage-sql",
    "truststore",
)
"""What the extra `lineage` needs and the tested environment does not have."""
Event = dict[str, Any]


@dataclass(frozen=True)
class WholeRun:
    """What a run has left."""

    folder: Path
    processes: dict[str, set[str]]
    """Command line, as `ps` shows it -> names in the environment, of all processes of the run."""
    output: str
    mails: list[Mail]
    metrics: dict[str, str]

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def airflow(self, name: str) -> Any:
        """What Airflow's database has, as tests/dags/whole_run.py wrote it."""
        return json.loads((self.folder / "airflow.json").read_text())[name]

    def platform(self) -> Platform:
        return load_platform(self.folder / "config", {"CLEANTAIL_HOME": str(self.home)})

    def facts(self) -> TableFacts:
        facts = read_facts(find_topic("orders", self.folder / "config").on(self.platform()))
        assert facts is not None
        return facts

    def alerts(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.home / "alerts" / name).read_text().splitlines()]


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Path | str:
    """The folder of Airflow's provider for OpenLineage, or why there is none."""
    folder, uv = tmp_path_factory.mktemp("provider"), Path(sys.executable).with_name("uv")
    if not uv.exists():
        return "there is no uv in this environment to install Airflow's provider for OpenLineage with"
    pinned = folder / "requirements.txt"
    pins = re.split(r"\n(?=\S)", (ROOT / "constraints.txt").read_text())
    pinned.write_text("\n".join(pin for pin in pins if pin.partition("==")[0] in PACKAGES))
    command = [str(uv), "pip", "install", "--quiet", "--python", sys.executable]
    command += ["--target", str(folder / "packages"), "--no-deps", "--require-hashes", "-r", str(pinned)]
    made = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if "Failed to fetch" in made.stderr:
        return "Airflow's provider for OpenLineage cannot be installed here: the package index is out of reach"
    assert made.returncode == 0, made.stderr
    return folder / "packages"


@pytest.fixture(scope="module")
def run(provider: Path | str, tmp_path_factory: pytest.TempPathFactory) -> WholeRun:
    folder, statsd = tmp_path_factory.mktemp("run"), UdpSink()
    path = [str(provider)] * isinstance(provider, Path) + [str(ROOT)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    env |= {name: value for name, value in SECRETS.items() if not name.startswith("AIRFLOW__")}
    env |= {name: NEEDED[name] for name in NEEDED_HERE}
    env |= {
        "PYTHONPATH": os.pathsep.join(path),
        "AIRFLOW__METRICS__STATSD_ON": "True",
        "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
        "AIRFLOW__METRICS__STATSD_PORT": str(statsd.socket.getsockname()[1]),
    }
    command = [sys.executable, "-m", "tests.dags.whole_run", str(folder)]
    with mail_server() as (mailbox, connection), processes() as seen:
        env["AIRFLOW_CONN_SMTP_DEFAULT"] = json.dumps(connection)
        made = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[-3000:]
    metrics = dict(line.split(":", 1) for line in statsd.cleantail())
    statsd.socket.close()
    output = (folder / "printed").read_text() + made.stdout + made.stderr
    return WholeRun(folder, seen, output, mailbox.mails, metrics)


@pytest.fixture(scope="module")
def events(provider: Path | str, run: WholeRun) -> dict[str, Event]:
    """Station -> the event at its end."""
    if isinstance(provider, str):
        pytest.skip(provider)
    sent = [json.loads(line) for line in (run.folder / "events").read_text().splitlines()]
    return {event["job"]["name"].removeprefix("orders."): event for event in sent if event["eventType"] != "START"}


def _children(pid: int) -> Iterator[int]:
    """And theirs."""
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, file.read_text().split()):
                yield child
                yield from _children(child)


@contextmanager
def processes() -> Iterator[dict[str, set[str]]]:
    """Command line -> names in the environment, of all processes that this one starts while the block runs."""
    seen: dict[str, set[str]] = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            for pid in _children(os.getpid()):
                with suppress(OSError):
                    # in this order: of a process that becomes another one meanwhile, the environment may be the new one
                    line, environment = (
                        Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
                        for name in ("cmdline", "environ")
                    )
                    if environment:
                        names = {entry.partition("=")[0] for entry in environment.split("\0") if entry}
                        seen[line.replace("\0", " ")] = names

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def test_partitions_that_pass_are_published_and_failed_ones_blocked_with_an_alert(run: WholeRun) -> None:
    assert run.airflow("states") == {
        "ingest": "success",
        "evaluate": "success",
        "compact": "success",
        "check_quality": "failed",
        "publish": "success",
        "expire_tombstones": "skipped",
        "reclaim": "skipped",
        "rollback": "skipped",
        "outcome": "failed",
        "alert": "success",
    }
    facts = run.facts()
    live = {p: sum(f.live_records for f in facts.files_of(p)) for p in facts.partitions}
    assert live == {0: KEYS, 1: RECORDS}
    assert facts.states[0].checkpoint == RECORDS
    assert facts.states[1].checkpoint is None
    assert facts.last_compaction is not None
    assert facts.last_compaction.messages_read == 2 * RECORDS
    held = facts.states[1].quarantine
    assert held is not None and held.branch in facts.branches
    (alert,) = run.alerts("all.jsonl")
    assert [failure["partition"] for failure in alert["failures"]] == [1]
    assert [mail["Subject"] for mail in run.mails] == ["[cleantail] orders: check failed, partition 1 blocked"]
    assert [kind for kind, _ in run.airflow("incidents")] == ["check_failed", "partition_quarantined"]
    assert run.airflow("published") == [{"0": RECORDS}]
    assert "ended with exit code 1" in run.output


def test_the_round_is_published_by_the_application_of_its_check(run: WholeRun) -> None:
    applications = {name for name in ("compact", "check_quality", "publish") if _was_started(run, name)}
    assert applications == {"compact", "check_quality"}
    assert "no Spark application was started" in run.airflow("rows")["rendered_task_instance_fields"]


def _was_started(run: WholeRun, job: str) -> bool:
    return any(f"spark_jobs/run_station.py {job} " in line for line in run.processes)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(r"java .*\bdeploy\.SparkSubmit ", id="JVM"),
        pytest.param(r"^\S*python\S* \S*/spark_jobs/run_station\.py ", id="Python"),
        pytest.param(r"^\S*python\S* -m spark_jobs\.engine\.workers\.daemon ", id="workers"),
    ],
)
def test_a_driver_its_python_and_its_workers_have_no_name_of_a_secret_of_airflow(run: WholeRun, kind: str) -> None:
    found = [names for line, names in run.processes.items() if re.search(kind, line)]
    assert found, "\n".join(run.processes)
    for names in found:
        kept = {name for name in names if name.upper().lstrip("_").startswith("AIRFLOW")}
        assert {"AIRFLOW_CTX_DAG_ID", "AIRFLOW_CTX_TASK_ID"} <= kept
        assert all(name.startswith("AIRFLOW_CTX_") for name in kept)  # the variables that name the task are not secrets
        assert "CLEANTAIL_METRICS_TOKEN" not in names
        assert {*NEEDED_HERE, "CLEANTAIL_HOME", "PATH"} <= names


def test_the_run_sends_its_metrics(run: WholeRun) -> None:
    sent = run.metrics
    assert sent["max-dirty-percent.orders"] == "100.0|g"
    assert sent["rounds.orders.0.compact.published"] == sent["rounds.orders.1.compact.held_back"] == "1|c"
    assert sent["checks-failed.orders.1.critical"] == "1|c"
    assert sent["records-dropped.orders.0.superseded"] == f"{RECORDS - KEYS}|c"
    assert float(sent["max-clean-time-secs.orders"].removesuffix("|g")) > 0
    assert not [name for name in sent if name.startswith("records-dropped.orders.1")]


def marked(texts: dict[str, str]) -> dict[str, list[str]]:
    """Those of the texts that hold a key, a value or a header of a record."""
    return {name: found for name, text in texts.items() if (found := [mark for mark in MARKS if mark in text])}


def files_of_ours(home: Path) -> dict[str, str]:
    """What is below CLEANTAIL_HOME but for the topic's own records: its table, and the files that landed."""
    ours = [f for f in home.rglob("*") if f.is_file() and f.relative_to(home).parts[0] not in ("landing", "warehouse")]
    return {str(file.relative_to(home)): file.read_bytes().decode(errors="replace") for file in ours}


def evidence_of(run: WholeRun) -> list[str]:
    """The rows of the evidence, whose files are compressed."""
    from cleantail.lake.catalogs import open_catalog

    evidence = open_catalog(run.platform()).load_table("cleantail.cleantail_evidence")
    return [str(row) for row in evidence.scan().to_arrow().to_pylist()]


def test_no_log_database_or_alert_contains_a_record(run: WholeRun) -> None:
    """The logs, what `ps` showed, Airflow's database, the evidence, Great Expectations' stores, Data Docs and alerts."""
    files = files_of_ours(run.home)
    del files["alerts/with-values.jsonl"]
    assert [name for name in files if name.startswith("data_docs/orders/gx/uncommitted/validations/records")]
    # The JVM that spark-submit turns into: the script itself has ended before the processes are listed.
    assert any("org.apache.spark.deploy.SparkSubmit" in line for line in run.processes)
    texts = {"logs": run.output, "ps": "\n".join(run.processes), "evidence": "\n".join(evidence_of(run))}
    texts |= {f"mail {i}": str(mail) for i, mail in enumerate(run.mails)}
    assert marked({**texts, **run.airflow("rows"), **files}) == {}


def test_an_alert_that_may_quote_says_which_record_it_was(run: WholeRun) -> None:
    quoting = run.alerts("with-values.jsonl")[0]
    (failure,) = quoting["failures"]
    assert (failure["offsets"], failure["observed"]) == ([0], "1 of 8 records, at offset 0")
    headers = f'headers "h": "{IN_HEADER}"'
    assert failure["examples"] == [f'offset 0: key "{TOO_LONG}", value "{IN_VALUE}0", {headers}']
    assert failure["examples"][0] in quoting["text"]


def told(datasets: list[Event]) -> list[tuple[str, str | None]]:
    """The last part of each dataset's name, and its snapshot."""
    return [(d["name"].rsplit("/")[-1], d["facets"].get("version", {}).get("datasetVersion")) for d in datasets]


def test_each_station_reports_what_it_read_and_wrote_at_which_snapshot(events: dict[str, Event]) -> None:
    (landed,) = events["ingest"]["inputs"]
    assert (landed["namespace"], Path(landed["name"]).name) == ("file", "a.jsonl")
    ((_, first),) = told(events["ingest"]["outputs"])
    assert events["ingest"]["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 2 * RECORDS
    assert told(events["evaluate"]["inputs"]) == [("orders", first)]
    assert told(events["compact"]["inputs"]) == [("orders", first)]
    ((_, branch),) = told(events["compact"]["outputs"])
    assert told(events["check_quality"]["inputs"]) == [("orders", branch)]
    assert [name for name, _ in told(events["check_quality"]["outputs"])] == ["cleantail_evidence"]
    assert told(events["publish"]["inputs"]) == [("orders", branch)]
    (table, published), (evidence, _) = told(events["publish"]["outputs"])
    assert (table, evidence) == ("orders", "cleantail_evidence")
    assert len({first, branch, published}) == 3 and published


def test_a_red_check_fails_with_every_check_that_it_made(events: dict[str, Event]) -> None:
    event = events["check_quality"]
    assert event["eventType"] == "FAIL"
    assertions = event["inputs"][0]["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert len(assertions) > 5
    failed = [(a["assertion"], a["column"], a["severity"], a["description"]) for a in assertions if not a["success"]]
    assert failed == [
        ("expect_column_value_lengths_to_be_between", "key", "error", "failed in partitions 1"),
        ("expect_column_most_common_value_to_be_in_set", "value", "warn", "failed in partitions 0, 1"),
    ]


def test_columns_come_from_those_of_the_same_name(events: dict[str, Event]) -> None:
    output = events["publish"]["outputs"][0]
    fields = output["facets"]["columnLineage"]["fields"]
    assert {"partition", "offset", "key", "value"} <= fields.keys()
    (origin,) = fields["value"]["inputFields"]
    assert (origin["namespace"], origin["name"], origin["field"]) == ("file", output["name"], "value")
    assert output["facets"]["symlinks"]["identifiers"][0]["name"] == "cleantail.orders"


def test_no_event_has_a_key_or_a_value_of_a_record(events: dict[str, Event]) -> None:
    assert marked({station: json.dumps(event) for station, event in events.items()}) == {}


def test_lineage_is_off_without_the_openlineage_provider() -> None:
    assert not is_wanted()

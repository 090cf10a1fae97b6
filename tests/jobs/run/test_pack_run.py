"""A pack of topics in one application: a failed topic does not affect the others, and published rounds stay."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JNetworkError

from cleantail.config.topic_table import EVIDENCE
from cleantail.errors import HeldError, OutsideError
from cleantail.home.home_folder import exclusive
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.spark_settings import SMALL_RUN
from cleantail.log.partition_state import states_of_properties
from cleantail.rounds.pack_results import BEGUN, PACK_REQUEST_JSON, PackOutcomes, PackRequest, read_outcomes
from cleantail.rounds.stations import STATIONS
from spark_jobs import run_station
from spark_jobs.engine.deleted_versions import ledger_table
from spark_jobs.iceberg.java_calls import texts
from spark_jobs.iceberg.session import is_gone, start_session
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.quality.time_limit import IN_PACKS_MS, are_cores_lost
from spark_jobs.round import evidence
from spark_jobs.run import pack_run, topic_batch, topic_run
from tests.jobs.round.test_rounds import NOW, record

LETTERS = {"expectation": "expect_column_values_to_match_regex", "kwargs": {"column": "key", "regex": "^[a-z]+$"}}
ENDLESS = {"expectation": LETTERS["expectation"], "kwargs": {"column": "value", "regex": r"(.*)*\1b"}}
DIGITS = [record(i, "1", f"v{i}") for i in range(3)]
TWICE = [record(i, "k", f"v{i}") for i in range(3)]
OUTCOMES = "packs/of-this-run.jsonl"


@pytest.fixture
def made(workshop):
    """Make a topic with these records. Returns its name."""

    def make(name, records=TWICE, **more):
        topic = workshop.topic(name, **more)
        workshop.ok("ingest", topic, "--file", workshop.file(f"{name}.jsonl", records))
        return topic

    return make


@pytest.fixture
def landed(workshop):
    """Make a topic whose records are still in its landing folder. Returns its name."""

    def make(name, records=TWICE, **more):
        folder = workshop.platform().home / "landing" / name
        folder.mkdir(parents=True)
        (folder / "a.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records))
        return workshop.topic(name, source={"path": f"landing/{name}/*.jsonl"}, **more)

    return make


@pytest.fixture
def run(workshop):
    """Run the job over topics, in this process. Returns its exit code, its reason, and topic -> result."""

    def run_topics(*topics, outcomes=OUTCOMES, now_ms=None, **more):
        file = workshop.config / "result.json"
        request = PackRequest(topics, now_ms or int(time.time() * 1000), outcomes=outcomes, **more)
        arguments = ["--config", str(workshop.config), "--request", PACK_REQUEST_JSON.text(request)]
        code = run_station.main(["run_pack", *arguments, "--result", str(file)])
        document = json.loads(file.read_text())
        return code, document["reason"], {outcome["topic"]: outcome for outcome in document["topics"]}

    return run_topics


def offsets(workshop, topic):
    return [found["offset"] for found in workshop.read(topic)]


def published(outcome):
    return outcome["compacted"] and outcome["compacted"]["published"]


def test_a_pack_takes_each_topic_through_its_stations_and_the_next_one_only_gives_back_space(workshop, landed, run):
    topics = [landed("pack-one"), landed("pack-two", [*TWICE, record(3, "a", "x")])]
    code, reason, outcomes = run(*topics)
    assert (code, reason) == (0, "0 topics of 2 failed")
    assert [outcomes[topic]["ingested"]["records"] for topic in topics] == [3, 4]
    assert [published(outcomes[topic]) for topic in topics] == [[0], [0]]
    assert [offsets(workshop, topic) for topic in topics] == [[2], [2, 3]]
    assert len([row for row in workshop.evidence(topics[0]) if row["outcome"] == "published"]) == 1
    code, _, outcomes = run(*topics, outcomes="packs/of-the-next-run.jsonl")
    assert code == 0
    for file, last in (("of-this-run", "compact"), ("of-the-next-run", "reclaim")):
        lines = map(json.loads, (workshop.platform().home / f"packs/{file}.jsonl").read_text().splitlines())
        begun = [*dict.fromkeys(line["station"] for line in lines if line["topic"] == topics[0] and line["station"])]
        assert begun == [station.name for station in STATIONS if station.name in begun]
        assert {"ingest", "evaluate", last} <= {*begun}
    assert all(o["compacted"] is None and o["reclaimed"]["rewritten_files"] == 1 for o in outcomes.values())


@pytest.mark.parametrize(
    ("behind_ms", "in_a_run"),
    [
        pytest.param(None, False, id="1970"),
        pytest.param(7_200_000, False, id="two hours, by hand"),
        pytest.param(600_000, True, id="ten minutes before its run began"),
    ],
)
def test_a_pack_refuses_a_clock_from_before_its_run(workshop, made, behind_ms, in_a_run):
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": {"allow_clock": False}}))
    topic = made(f"pack-behind-{behind_ms}", [*TWICE, record(3, "b", None)])
    now_ms = 1_000_000 if behind_ms is None else int(time.time() * 1000) - behind_ms
    began = ["--began", str(int(time.time() * 1000))] if in_a_run else []
    result = workshop.config / "result.json"
    arguments = ["--config", str(workshop.config), "--request", PACK_REQUEST_JSON.text(PackRequest((topic,), now_ms))]
    assert run_station.main(["run_pack", *arguments, *began, "--result", str(result)]) == HeldError.exit_code
    assert "before the run began" in json.loads(result.read_text())["error"]
    assert offsets(workshop, topic) == [0, 1, 2, 3] and not workshop.evidence(topic)


def test_a_failed_topic_does_not_block_the_other_topics_of_its_pack(workshop, made, landed, run):
    """A failed check, an invalid line, a broken YAML and a missing topic, all before the topic without a problem."""
    red, well = made("pack-red", DIGITS, checks=[LETTERS]), made("pack-well")
    bad = landed("pack-bad-line", [{"no": "record"}])
    broken = workshop.topic("pack-broken", {"segment.ms": -1})
    code, reason, outcomes = run(red, bad, broken, "pack-nowhere", well)
    assert code == 1
    assert reason == "4 topics of 5 failed: pack-red, pack-bad-line, pack-broken, pack-nowhere"
    held = outcomes[red]["compacted"]
    assert (held["held_back"], held["published"], outcomes[red]["error"]) == ([0], [], "")
    assert held["heads"].keys() == {"0"}
    assert (outcomes[bad]["station"], outcomes[bad]["may_retry"]) == ("ingest", False)
    assert "a.jsonl:1" in outcomes[bad]["error"] and not workshop.evidence(bad)
    assert "segment.ms" in outcomes[broken]["error"] and "no topic" in outcomes["pack-nowhere"]["error"]
    assert outcomes[well]["ok"] and published(outcomes[well]) == [0]
    assert (offsets(workshop, red), offsets(workshop, well)) == ([0, 1, 2], [2])


def test_the_same_run_tried_again_still_knows_the_red_check_of_its_first_try(workshop, made, run):
    """The second try finds the log in quarantine. Without the outcome of the first try the run would succeed. A released
    log is published, even by the run that blocked it."""
    red, now_ms = made("pack-red-again", DIGITS, checks=[LETTERS]), int(time.time() * 1000)
    run(red, now_ms=now_ms)
    code, _, outcomes = run(red, now_ms=now_ms)
    assert (code, outcomes[red]["compacted"]["held_back"]) == (1, [0])
    workshop.topic(red)
    workshop.ok("release", red, "0")
    code, _, outcomes = run(red, now_ms=now_ms)
    assert (code, published(outcomes[red]), outcomes[red]["compacted"]["held_back"]) == (0, [0], [])
    assert offsets(workshop, red) == [2]


def test_a_topic_that_may_wait_for_a_person_is_passed_over(workshop, made, run):
    asked = made("pack-asked", publish="approve")
    code, _, outcomes = run(asked)
    assert (code, outcomes[asked]["reason"][:30]) == (0, "its rounds may wait for approv")
    assert offsets(workshop, asked) == [0, 1, 2]


def test_only_what_was_asked_for_is_done(workshop, made, run):
    two = [{**record(i, "k", "v"), "partition": p} for p in (0, 1) for i in range(3)]
    topic = made("pack-asked-for", two, config={"min.cleanable.dirty.ratio": 1.0})
    assert run(topic)[2][topic]["reason"] == "nothing is due"
    outcome = run(topic, force=True, partition=1, outcomes="packs/forced.jsonl")[2][topic]
    assert published(outcome) == [1]


def test_a_pack_goes_on_after_a_defect_and_quotes_nothing_of_it(workshop, made, run, monkeypatch):
    first, second = made("pack-defect"), made("pack-after")
    real = topic_run.compact_round

    def compact(running, plan, checked):
        if plan.topic == first:
            raise ValueError("a value of a record")
        return real(running, plan, checked)

    monkeypatch.setattr(topic_run, "compact_round", compact)
    code, _, outcomes = run(first, second)
    assert (code, outcomes[first]["error"]) == (1, "a defect of Cleantail: ValueError")
    assert offsets(workshop, second) == [2]
    assert "a value of a record" not in (workshop.platform().home / OUTCOMES).read_text()


def test_topics_are_worked_on_side_by_side_and_each_gets_its_part_of_the_cores(workshop, made, run, monkeypatch):
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": {"spark": {"master": "local[2]"}}}))
    names, met, masters = [made(f"pack-beside-{n}") for n in range(2)], threading.Barrier(2, timeout=60), set()
    real = topic_run.compact_round

    def compact(running, plan, checked):
        masters.add(running.table.platform.spark.master)
        met.wait()  # raises where no other topic is at its round at the same time
        return real(running, plan, checked)

    monkeypatch.setattr(topic_run, "compact_round", compact)
    code, _, outcomes = run(*names)
    assert (code, [published(outcomes[name]) for name in names]) == (0, [[0]] * 2)
    assert masters == {"local[1]"}


def test_a_pack_ends_where_its_jvm_is_gone_though_later_calls_are_only_refused(workshop, made, run, monkeypatch):
    """Otherwise each topic would be reported as failed, as if its table or disk were the cause."""
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": {"spark": {"master": "local[2]"}}}))
    first, second, met = made("pack-refused"), made("pack-refused-beside"), threading.Barrier(2, timeout=60)

    def refused(*_):
        met.wait()  # both topics make their rounds at the same time
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(topic_run, "compact_round", refused)
    monkeypatch.setattr(topic_batch, "is_gone", lambda _: True)
    file = workshop.config / "result.json"
    request = PackRequest((first, second), int(time.time() * 1000), outcomes="packs/refused.jsonl")
    arguments = ["--config", str(workshop.config), "--request", PACK_REQUEST_JSON.text(request)]
    assert run_station.main(["run_pack", *arguments, "--result", str(file)]) == OutsideError.exit_code
    told = json.loads(file.read_text())["error"]  # of topics that run at the same time, the first one
    assert re.search("Spark's JVM ended during the work on topic pack-refused(-beside)?", told)
    kept = read_outcomes(workshop.platform().home, "packs/refused.jsonl")
    assert {topic: outcome.error for topic, outcome in kept.items()} == {first: BEGUN, second: BEGUN}


def test_the_next_try_drops_the_branches_of_a_dead_one_and_reports_its_appended_records(
    workshop, landed, run, monkeypatch
):
    """By its age alone the branch would stay for a day, and longer if nothing is due."""
    topic, now_ms = landed("pack-staged"), int(time.time() * 1000)

    def dies(*_):
        raise Py4JNetworkError("gone")

    monkeypatch.setattr(topic_run, "compact_round", dies)
    request = PackRequest((topic,), now_ms, outcomes="packs/staged.jsonl")
    arguments = ["--config", str(workshop.config), "--request", PACK_REQUEST_JSON.text(request)]
    assert run_station.main(["run_pack", *arguments]) != 0
    spark = start_session(workshop.platform(), "any")
    table = TopicTable.of(spark, workshop.find(topic))
    assert len(table.load().refs()) == 2
    time.sleep(1)  # so that the name of the next try's branch has another second
    monkeypatch.undo()
    code, _, outcomes = run(topic, outcomes="packs/staged.jsonl", now_ms=now_ms)
    assert (code, outcomes[topic]["ingested"]["records"], published(outcomes[topic])) == (0, 3, [0])
    assert [str(name) for name in table.load().refs().keySet()] == ["main"]
    assert offsets(workshop, topic) == [2]


def test_a_jvm_counts_as_gone_only_if_it_refuses_connections(workshop, made):
    assert not is_gone(start_session(workshop.platform(), "any"))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=unused.getsockname()[1]))
    assert is_gone(SimpleNamespace(_jvm=gateway.jvm))


def test_the_next_try_reports_a_publication_made_right_before_the_application_died(workshop, landed, run, monkeypatch):
    """Nothing is due in the next try. Otherwise no event of the asset would report the publication."""
    topic = landed("pack-untold")
    real, request = topic_run.compact_round, PackRequest((topic,), int(time.time() * 1000), outcomes=OUTCOMES)

    def dies_after(running, plan, checked):
        real(running, plan, checked)
        raise Py4JNetworkError("gone")

    monkeypatch.setattr(topic_run, "compact_round", dies_after)
    arguments = ["--config", str(workshop.config), "--request", PACK_REQUEST_JSON.text(request)]
    assert run_station.main(["run_pack", *arguments]) != 0
    assert offsets(workshop, topic) == [2]
    monkeypatch.undo()
    file = workshop.config / "again.json"
    assert run_station.main(["run_pack", *arguments, "--result", str(file)]) == 0
    [outcome] = json.loads(file.read_text())["topics"]
    told = outcome["compacted"]
    assert (told["published"], told["checkpoints"], outcome["ingested"]["records"]) == ([0], {"0": 3}, 3)
    rows = [row for row in workshop.evidence(topic) if row["outcome"] == "published"]
    assert (told["round"], len(rows)) == (rows[0]["round"], 1)


def test_a_topic_whose_own_checks_killed_the_application_is_retried_last_and_alone(workshop, made, run, monkeypatch):
    """All rounds of a batch are checked at once. Otherwise each further try would die of the same topic, with all others."""
    names = [made("pack-checked-0", checks=[LETTERS]), made("pack-checked-1")]
    real = topic_batch.with_verdicts

    def dies(measured, platform, of_rules):
        if measured.table.topic.topic == names[0]:
            raise KeyboardInterrupt
        return real(measured, platform, of_rules)

    monkeypatch.setattr(topic_batch, "with_verdicts", dies)
    with pytest.raises(KeyboardInterrupt):
        run(*names)
    home = workshop.platform().home
    assert PackOutcomes(home, OUTCOMES).batches(names, 20) == [[names[1]], [names[0]]]
    monkeypatch.undo()
    code, _, outcomes = run(*names)
    assert (code, [published(outcomes[name]) for name in names]) == (0, [[0]] * 2)


LATE = {"none": [], "late": [record(2, "k", "late")], "gone": [record(2, "m", None)]}


@pytest.mark.parametrize("late", LATE)
def test_a_run_of_a_small_topic_makes_few_commits(workshop, table_of, landed, run, late):
    """Two commits of its table, for the ingestion and the publication, and one of the evidence. Spark compares a late
    record with the table's, and finds a late tombstone, in files that no commit has yet."""
    topic = landed(f"pack-commits-{late}", [record(0, "k", "u"), record(5, "k", "v")], config=UNRECLAIMED)
    run(topic, outcomes=f"packs/commits-{late}-0.jsonl")
    file = workshop.platform().home / "landing" / topic / "b.jsonl"
    records = [record(10, "k", "w"), record(11, "k", "x"), *LATE[late]]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in records))
    before = versions(workshop, table_of, topic)
    code, _, outcomes = run(topic, outcomes=f"packs/commits-{late}-1.jsonl")
    assert (code, published(outcomes[topic]), outcomes[topic]["reclaimed"]) == (0, [0], None)
    assert made_since(before, workshop, table_of, topic) == [1, 2]
    horizons = states_of_properties(texts(table_of(topic).load().properties()), topic)[0].horizons
    assert [horizon.tombstones for horizon in horizons if horizon.end_offset == 3] == [1] * (late == "gone")


def test_an_expiry_that_remembers_tombstones_makes_one_commit(workshop, table_of, made):
    """Spark reads the removed records from files that no commit has yet."""
    config = {**UNRECLAIMED, "delete.retention.ms": 60_000, "cleantail.tombstone.lateness.ms": "7d"}
    topic = made("pack-commits-due", [record(0, "k", "u"), record(1, "k", None), record(2, "a", "x")], config=config)
    workshop.ok("compact", topic, "--now", NOW)
    assert offsets(workshop, topic) == [1, 2]
    before = versions(workshop, table_of, topic)
    workshop.ok("compact", topic, "--now", NOW + 60_000)
    assert offsets(workshop, topic) == [2]
    assert made_since(before, workshop, table_of, topic) == [1, 1]
    table = table_of(topic)
    assert [row["offset"] for row in table.spark.table(ledger_table(table)).collect()] == [1]


UNRECLAIMED = {"cleantail.reclaim.deleted.ratio": 1.0}
"""Configs with which no file is rewritten."""


def versions(workshop, table_of, topic):
    """Return the numbers of the metadata files of evidence and topic table. Each commit adds one."""
    names = f"{workshop.platform().catalog.namespace}.{EVIDENCE}", table_of(topic).topic.table
    locations = [open_catalog(workshop.platform()).load_table(name).metadata_location for name in names]
    return [int(location.rpartition("/")[2].partition("-")[0]) for location in locations]


def made_since(before, workshop, table_of, topic):
    now = versions(workshop, table_of, topic)
    return [new - old for new, old in zip(now, before, strict=True)]


def test_the_next_try_writes_the_evidence_of_a_publication_that_a_dead_one_left_out(workshop, made, run, monkeypatch):
    name = made("pack-unsaid", [*DIGITS, record(3, "a", "x", partition=1)], checks=[LETTERS])
    now_ms = int(time.time() * 1000)

    def dies(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(evidence, "_append", dies)
    with pytest.raises(KeyboardInterrupt):
        run(name, now_ms=now_ms)
    monkeypatch.undo()
    assert workshop.evidence(name) == []
    code, _, outcomes = run(name, now_ms=now_ms)
    assert (code, published(outcomes[name])) == (1, [1])
    assert not [*(workshop.platform().home / evidence.KEPT_FOLDER).iterdir()]
    assert [row["outcome"] for row in workshop.evidence(name)].count("published") == 1


def test_an_ingestion_by_another_process_blocks_its_topic_and_no_other(workshop, landed, run, monkeypatch):
    monkeypatch.setattr(topic_run, "LOCK_S", 0.3)
    names = [landed(f"pack-locked-{n}") for n in range(2)]
    with exclusive(workshop.platform().home, f"ingest-{names[0]}"):
        code, _, outcomes = run(*names)
    locked, free = (outcomes[name] for name in names)
    assert (code, published(free), locked["station"], locked["may_retry"]) == (1, [0], "ingest", True)
    assert f"another process holds the lock ingest-{names[0]}" in locked["error"]


def first_try(workshop, *names, now_ms):
    """Return stderr of an application with one core, and five seconds for the checks of a topic. That is enough for a task
    to begin matching, even on a slow machine. It is a separate process, because only its end stops the matching
    threads."""
    spark = {"master": "local[1]", "conf": SMALL_RUN}
    settings = {"limits": {"checks.max.ms": 5_000}, "spark": spark, "allow_clock": True}
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": settings}))
    request = PackRequest(names, now_ms, outcomes=OUTCOMES)
    command = [
        sys.executable,
        run_station.__file__,
        "run_pack",
        "--config",
        workshop.config,
        "--request",
        PACK_REQUEST_JSON.text(request),
    ]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=240)
    assert done.returncode == OutsideError.exit_code, done.stderr
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": {"allow_clock": True}}))
    return done.stderr


def quarantine(workshop, topic, now_ms):
    [log] = workshop.json("status", topic, "--now", now_ms)["topics"][topic]
    return log["state"].get("quarantine")


@pytest.mark.deep
@pytest.mark.integration
def test_a_check_that_is_given_up_lets_the_next_try_go_on_and_its_log_rests(workshop, made, run, spark):
    """Neither the retention of the log nor the checks of the next topic wait for the lost core. Otherwise they would be
    blocked."""
    old, new = (record(n, "k", "a" * 60 + "!", ts=NOW - age) for n, age in enumerate((60_000, 1_000)))
    policy = {"cleanup.policy": "compact,delete", "retention.ms": 5_000}
    names = (
        made("pack-endless", [old], checks=[ENDLESS], config=policy),
        made("pack-beside-endless-0", checks=[LETTERS]),
        made("pack-beside-endless-1"),
    )
    workshop.ok("ingest", names[0], "--file", workshop.file("new.jsonl", [new]))
    told = first_try(workshop, *names, now_ms=NOW)
    assert "a stopped check keeps its cores" in told and "2 topics are left" in told
    assert "took longer than 5000 ms; the limit is checks.max.ms" in quarantine(workshop, names[0], NOW)["reason"]
    assert quarantine(workshop, names[1], NOW) is None
    code, _, outcomes = run(*names, now_ms=NOW)
    assert (code, outcomes[names[0]]["compacted"]["held_back"]) == (1, [0])
    assert [published(outcomes[name]) for name in names[1:]] == [[0]] * 2
    assert not are_cores_lost(spark)


@pytest.mark.deep
@pytest.mark.integration
def test_a_check_that_is_given_up_at_an_expiry_ends_the_application_as_well(workshop, made, run):
    values = [record(0, "k", "a" * 60 + "!"), record(1, "gone", None)]
    names = [made("pack-endless-expiry", values, config={"delete.retention.ms": 1_000})]
    workshop.ok("compact", names[0], "--now", NOW)
    file = workshop.config / "topics" / f"{names[0]}.yaml"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"checks": [ENDLESS]}))
    names += [workshop.topic(f"pack-nothing-{n}") for n in range(19)]
    names += [made("pack-after-expiry", checks=[LETTERS])]
    told = first_try(workshop, *names, now_ms=NOW + 60_000)
    assert "a check of pack-endless-expiry was stopped" in told
    code, _, outcomes = run(*names, now_ms=NOW + 60_000)
    assert (code, outcomes[names[0]]["expired"]["held_back"]) == (1, [0])
    assert published(outcomes[names[-1]]) == [0]


def test_own_checks_have_less_time_where_other_topics_wait(workshop):
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": {"limits": {"checks.max.ms": 9}}}))
    assert pack_run._for_several(workshop.platform()).limits.checks_max_ms == 9
    (workshop.config / "defaults.yaml").unlink()
    assert pack_run._for_several(workshop.platform()).limits.checks_max_ms == IN_PACKS_MS


@pytest.mark.deep
def test_the_evidence_has_a_publication_of_an_application_that_died_at_a_later_station(
    workshop, made, run, monkeypatch
):
    """test_the_next_try_reports_a_publication_made_right_before_the_application_died holds the rule."""
    topic, now_ms = made("pack-died-later"), int(time.time() * 1000)

    def dies(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(TopicTable, "drop_stale_branches", dies)
    with pytest.raises(KeyboardInterrupt):
        run(topic, now_ms=now_ms)
    monkeypatch.undo()
    code, _, outcomes = run(topic, now_ms=now_ms)
    assert (code, published(outcomes[topic])) == (0, [0])
    assert [row["outcome"] for row in workshop.evidence(topic)].count("published") == 1

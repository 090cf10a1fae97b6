"""Erased keys are gone from every byte below warehouse and home, and a certificate says so. The rest stays as it was."""

from __future__ import annotations

import base64
import io
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cleantail.erasure.certificate import page, public_pem, require_chain, signing_key, verified
from cleantail.erasure.store import ErasureStore
from cleantail.home.home_folder import make_folder
from spark_jobs.iceberg import commits
from spark_jobs.iceberg.java_calls import each
from spark_jobs.iceberg.tables import branch_name
from spark_jobs.round import erase as erasing
from spark_jobs.round import erasure_steps
from spark_jobs.round.run import Run
from tests.jobs.round.test_rounds import NOW, record
from tests.jobs.upsert_sink import DELETE, UpsertSink
from tests.markers import CUT, traces

GONE, KEPT = "marker-of-an-erased-key", "key-that-stays"
VALUE = "marker-of-an-erased-value"
SECRETS = {
    "CLEANTAIL_ERASURE_KEY": base64.b64encode(bytes(range(32))).decode(),
    "CLEANTAIL_CERTIFICATE_KEY": base64.b64encode(bytes(range(32, 64))).decode(),
}


Answer = tuple[int, str, str]
"""Exit code, standard output and standard error."""


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in SECRETS.items():
        monkeypatch.setenv(name, text)


def holding(workshop, topic: str, *markers: str, full: bool = False) -> dict[str, list[str]]:
    """File -> markers, of every file of the topic's tables and of the rest of the home that has one.

    Other topics of the session have the same keys. Bounds in manifests are cut short, so that their beginning counts;
    `full`: only the whole marker does."""
    tables = str(workshop.find(topic).table).rpartition(".")[2]

    def of_others(file: Path) -> bool:
        return "warehouse" in file.parts and not any(p.startswith((tables, "cleantail_")) for p in file.parts)

    files = (f for f in Path(workshop.platform().home).rglob("*") if f.is_file() and not of_others(f))
    return traces(files, *markers, forms=lambda marker: [(marker if full else marker[:CUT]).encode()])


def lines(topic: str) -> list[dict[str, Any]]:
    """Two logs: each has an erased key with several versions, and others."""
    made = []
    for p in (0, 1):
        made += [record(0, f"{GONE}-{p}", f"{VALUE}-a", partition=p), record(1, f"{KEPT}-{p}", "one", partition=p)]
        made += [record(2, f"{GONE}-{p}", f"{VALUE}-b", partition=p), record(3, f"{KEPT}-x{p}", "two", partition=p)]
        made += [record(4, f"{KEPT}-{p}", "three", partition=p), record(5, f"{GONE}-{p}", None, partition=p)]
    return made


def erase(workshop, monkeypatch: pytest.MonkeyPatch, topic: str, *keys: str, more: tuple[str, ...] = ()):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(keys).encode())))
    return workshop.run("erase", topic, "--keys", "-", "--json", *more)


def public_key(workshop) -> bytes:
    return public_pem(signing_key(os.environ)).encode()


def test_no_byte_of_an_erased_key_is_left_and_the_other_records_are_as_they_were(
    workshop, monkeypatch, spark, table_of
):
    """The side tables have none either, and the evidence has one row for each. A run was killed after the commit of a
    side table, before its evidence."""
    config = {"compaction.strategy": "timestamp", "cleantail.tombstone.lateness.ms": 10**12}
    topic = workshop.topic("erased-whole", {**config, "cleantail.unholdable.policy": "quarantine"})
    beyond = 1_700_000_000_000_000_000
    more = [record(6, f"{GONE}-0", f"{VALUE}-c", ts=beyond), record(7, KEPT, "z", ts=beyond)]
    more += [record(8, f"{KEPT}-deleted", None)]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [*lines(topic), *more]))
    workshop.ok("compact", topic, "--now", NOW)
    workshop.ok("compact", topic, "--now", NOW + 10_000)  # the tombstones expire, and are remembered
    again = [record(9, f"{GONE}-0", VALUE), record(10, KEPT, "z")]
    workshop.ok("ingest", topic, "--file", workshop.file("b.jsonl", again))
    table = table_of(topic)
    side_tables = [f"{workshop.find(topic).table}{suffix}" for suffix in ("_deleted_versions", "_unholdable")]
    names = [f"{table.name[:-1]}{suffix}`" for suffix in ("_deleted_versions", "_unholdable")]
    assert [spark.table(name).count() for name in names] == [3, 2]
    folder = Path(str(table.load().location()).removeprefix("file:"))
    snapshot = int(table.load().currentSnapshot().snapshotId())
    # statistics of another engine, and what a killed ingestion has copied from standard input
    table.call("compute_table_stats", "columns => array('key')")
    table.call("compute_partition_stats", f"snapshot_id => {snapshot}L")
    copy = make_folder(workshop.platform().home, "stdin", "tmp-of-a-dead-process") / "stdin"
    copy.write_text(f"{GONE}-0")
    before = workshop.read(topic)
    assert len(holding(workshop, topic, GONE, VALUE)) >= 5  # data files, manifests and the copy
    assert [*folder.rglob("*.stats")]
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(erasing, "append_erased_rows", die)
        erase(workshop, monkeypatch, topic, f"{GONE}-0", f"{GONE}-1")
    [request] = json.loads(workshop.ok("erase", topic, "--json"))["requests"]
    assert holding(workshop, topic, GONE, VALUE) == {}
    assert not copy.exists() and not [*folder.rglob("*.stats")]
    assert workshop.read(topic) == [r for r in before if not str(r["key"]).startswith(GONE)]
    assert [[bytes(row.key).decode() for row in spark.table(name).collect()] for name in names] == [
        [f"{KEPT}-deleted"],
        [KEPT],
    ]
    assert [log["log_end_offset"] for log in workshop.json("status", topic)["topics"][topic]] == [11, 6]
    steps = verified(request["certificate"].encode(), public_key(workshop))["steps"]
    assert steps["proven"]["found"] == 0
    assert steps["hidden"]["records"] == {"0": 1}
    assert [steps["hidden"]["inventory"][name]["records"] for name in side_tables] == [2, 1]
    assert all(steps["removed"]["files"][name] and steps["removed"]["snapshots"][name] for name in side_tables)
    with pytest.raises(Exception, match="changed"):
        verified(request["certificate"].replace('"found": 0', '"found": 1').encode(), public_key(workshop))
    beside = [row for row in workshop.evidence(topic) if row["kind"] == "erased_beside"]
    columns = ("note", "partition", "records_in", "records_out", "deleted")
    assert sorted([tuple(row[c] for c in columns) for row in beside]) == [
        (f"table {side_tables[0]}", None, 3, 1, '{"erased":2}'),
        (f"table {side_tables[1]}", None, 2, 1, '{"erased":1}'),
    ]
    workshop.ok("history", topic)  # which reads the evidence
    # the snapshot has expired: the error of a read or a rollback names the request
    for command in (("read", topic, "--as-of"), ("latest", topic, "--as-of"), ("rollback", topic, "--to")):
        code, _, err = workshop.run(*command, snapshot)
        assert code == 2 and f"keys of topic {topic} were erased" in err and request["id"] in err, (command, err)


def test_an_unreadable_table_of_requests_does_not_hide_the_error_about_a_snapshot(workshop, monkeypatch):
    topic = workshop.topic("erased-past-unread")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines(topic)))

    def refused(*_):
        raise PermissionError("no right to read")

    monkeypatch.setattr(ErasureStore, "requests", refused)
    code, _, err = workshop.run("read", topic, "--as-of", 5)
    assert code == 2 and "no snapshot 5 in" in err and "no right to read" not in err, err


# ---- what must not be touched, and what hides elsewhere


def test_branches_and_tags_that_are_needed_are_refused_by_name_or_excluded_and_those_of_killed_runs_go(
    workshop, monkeypatch, spark, table_of
):
    topic = workshop.topic("erased-branches")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines(topic)))
    table, long_ago = table_of(topic), (int(time.time()) - 30 * 86_400) * 10**9
    waiting, restore = branch_name("ct_20270115T080000_000_1_u0"), branch_name("re_0123456789abcdef")
    ours = [branch_name("ct_20270115T080000_000_1_e0"), branch_name("rw_1"), branch_name("in_0123456789abcdef_1")]
    ours += [f"ct_20261030T080000_000_1_u0_{long_ago}", f"re_0123456789abcdef_{long_ago}"]
    ours += ["failed_20270115T080000_000_1_u0_1800000000"]
    for name in (waiting, restore, *ours):
        table.create_branch(name, None)
    spark.sql(f"ALTER TABLE {table.name} CREATE TAG `audit`")
    needed, before = ["audit", waiting, restore], workshop.read(topic)
    for name in ("main", "audti"):
        code, _, err = erase(workshop, monkeypatch, topic, f"{GONE}-0", more=("--exclude", name))
        assert (code, "Allowed are" in err) == (2, True)
    code, out, _ = erase(workshop, monkeypatch, topic, f"{GONE}-0")
    [problem] = json.loads(out)["requests"][0]["problems"]
    assert (code, [name for name in (*needed, *ours) if name in problem]) == (1, needed)
    assert "a restore that is not finished" in problem and "a round that runs or waits for approval" in problem
    assert "--exclude audit" in problem and workshop.json("erasures", topic)["requests"][0]["reason"] == problem
    assert workshop.read(topic) == before
    out = workshop.ok("erase", topic, "--json", *(f"--exclude={name}" for name in needed))
    [certificate] = [request["certificate"] for request in json.loads(out)["requests"]]
    content = verified(certificate.encode(), public_key(workshop))
    kept = {f"branch or tag {name}: it keeps 3 records of the keys in 1 file" for name in needed}
    assert kept <= {*content["exclusions"]}, content["exclusions"]
    assert content["steps"]["proven"]["found"] == 3  # all reach the same file
    assert "except what is listed under exclusions" in content["claim"]
    assert all(f"<li>{text}</li>" in page(certificate) for text in kept)
    assert set(table.load().refs().keySet()) == {"main", *needed}
    assert not [r for r in workshop.read(topic) if r["key"] == f"{GONE}-0"]
    assert len([r for r in workshop.read(topic, "--as-of", "audit") if r["key"] == f"{GONE}-0"]) == 3


def test_an_unknown_object_and_a_young_file_of_no_snapshot_prevent_a_proof_and_an_old_one_goes(
    workshop, monkeypatch, table_of
):
    topic = workshop.topic("erased-orphans")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines(topic)))
    data = Path(str(table_of(topic).load().location()).removeprefix("file:")) / "data"
    [file, *_] = sorted(data.rglob("*.parquet"))
    for written in data.parent.rglob("*"):  # the table is older than its orphans
        if written.is_file():
            os.utime(written, (1_600_000_000, 1_600_000_000))
    unknown, young, old = data / "notes.bin", file.with_name("young.parquet"), file.with_name("old.parquet")
    for orphan in (unknown, young, old):
        orphan.write_bytes(file.read_bytes())
    os.utime(old, (1_700_000_000, 1_700_000_000))
    code, out, _ = erase(workshop, monkeypatch, topic, f"{GONE}-0", f"{GONE}-1")
    [request] = json.loads(out)["requests"]
    assert (code, request["certificate"], old.exists()) == (1, None, False)
    for name in (young.name, unknown.name):
        assert [text for text in request["problems"] if name in text], request["problems"]


# test_commits_that_merge_manifests_leave_no_manifest_without_a_snapshot in test_uncommitted_rounds.py holds the rule;
# here another writer was faster
@pytest.mark.deep
def test_a_commit_of_ours_that_another_writer_overtook_leaves_nothing_that_prevents_a_proof(
    workshop, monkeypatch, table_of
):
    topic = workshop.topic("erased-overtaken")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines(topic)))
    table, stage, overtaken = table_of(topic), commits._forget_removed, []

    def then_another_writer_commits(*arguments):
        stage(*arguments)
        if not overtaken:
            base = table.load().currentSnapshot().snapshotId()
            table.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
            table.call("expire_snapshots", f"snapshot_ids => array({base}L)")
            overtaken.append(base)

    monkeypatch.setattr(commits, "_forget_removed", then_another_writer_commits)
    code, out, err = erase(workshop, monkeypatch, topic, f"{GONE}-0", f"{GONE}-1")
    assert overtaken and code == 0, err + out
    assert holding(workshop, topic, GONE, VALUE) == {}


# test_no_byte_of_an_erased_key_is_left_... has bounds of both; here keys have none
@pytest.mark.deep
def test_bounds_of_values_go_too_also_if_keys_have_none(workshop, monkeypatch, spark, table_of):
    topic = workshop.topic("erased-bounds")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(0, "other", "a")]))
    table, metrics = table_of(topic), "write.metadata.metrics.column"
    spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('{metrics}.key'='none', '{metrics}.value'='full')")
    more = [record(10, f"{GONE}-0", VALUE), record(11, "other", "b")]
    workshop.ok("ingest", topic, "--file", workshop.file("b.jsonl", more))
    table.call("rewrite_data_files", "options => map('rewrite-all', 'true')")  # the manifest names a file that is gone
    table.call("expire_snapshots", "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1")
    code, out, err = erase(workshop, monkeypatch, topic, f"{GONE}-0")
    assert code == 0, err + out
    assert holding(workshop, topic, GONE, VALUE) == {}


def test_an_equality_delete_of_a_key_that_was_removed_is_in_no_manifest_of_delete_files(
    workshop, monkeypatch, spark, table_of
):
    topic = workshop.topic("erased-equality")
    kept = [record(n, f"{KEPT}-{n % 2}", str(n)) for n in range(6)]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", kept))
    workshop.ok("compact", topic, "--now", NOW)  # the file has a deletion vector
    workshop.ok("ingest", topic, "--file", workshop.file("b.jsonl", [record(10, f"{GONE}-0", VALUE)]))
    table, merged = table_of(topic), "'commit.manifest.min-count-to-merge'"
    spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ({merged} = '2')")
    UpsertSink(spark, table.name, ["key"]).commit((DELETE, {"partition": 0, "key": f"{GONE}-1".encode()}))
    spark.sql(f"ALTER TABLE {table.name} UNSET TBLPROPERTIES ({merged})")
    iceberg = table.load()
    [manifest] = list(iceberg.currentSnapshot().deleteManifests(iceberg.io()))
    reader = spark._jvm.org.apache.iceberg.ManifestFiles.readDeleteManifest(manifest, iceberg.io(), iceberg.specs())
    [equality] = [file for file in each(reader) if str(file.content()) == "EQUALITY_DELETES"]
    iceberg.newRowDelta().removeDeletes(equality).commit()
    before = workshop.read(topic)
    assert holding(workshop, topic, f"{GONE}-1")
    code, out, err = erase(workshop, monkeypatch, topic, f"{GONE}-0", f"{GONE}-1")
    assert code == 0, err + out
    assert holding(workshop, topic, GONE, VALUE) == {}
    assert workshop.read(topic) == before[:-1]


def test_keys_that_were_never_found_are_counted_and_so_are_names_of_ingested_files_with_a_key(workshop, monkeypatch):
    topic = workshop.topic("erased-file-names")
    # the snapshot of the first file never had the keys, so it stays
    for name, records in ((f"of.{GONE}-0.x", [record(10, "z", "z")]), (f"{GONE}-0", lines(topic))):
        workshop.ok("ingest", topic, "--file", workshop.file(f"{name}.jsonl", records))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f'{GONE}-0\n{GONE}-0 \n"{GONE}-1"'.encode())))
    code, out, err = workshop.run("erase", topic, "--keys", "-")
    assert code == 0 and "warning: 1 of 3 keys had records. No record had the others" in err, err + out
    request = json.loads(workshop.run("erasures", topic, "--json")[1])["requests"][0]["request"]
    content = json.loads(workshop.ok("certificate", "show", request))["certificate"]
    assert (content["request"]["keys"], content["steps"]["proven"]["keys_found"]) == (3, 1)
    # the round reads only the log that has the key
    assert {row["partition"] for row in workshop.evidence(topic) if row["kind"] == "erase"} == {0}
    left = holding(workshop, topic, f"{GONE}-0", full=True)
    assert left and all(name.endswith(".metadata.json") for name in left), left
    table = str(workshop.find(topic).table)
    [counted] = [
        text for text in content["exclusions"] if text.endswith(f"with a key as a part, in metadata of {table}")
    ]
    assert counted[0] in "12"  # an older metadata file may have the second name
    assert [text for text in content["exclusions"] if "and their names, which metadata, evidence and logs keep" in text]


# ---- interrupted, two at once, and a writer meanwhile


class Killed(BaseException):
    """A process that ends at once: no handler of errors catches it."""


def die(*_: object) -> None:
    raise Killed


AFTER = pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])


def after_kills(monkeypatch: pytest.MonkeyPatch, after: bool, run: Callable[[], Answer]) -> Answer:
    """Run a command again and again, and kill it at its first commit of Spark, then at its second, and so on. Return
    the answer of the first run that ends by itself, which is at least the fourth."""
    real, at, met = commits.before_commit, 0, 0

    def before_commit(iceberg, metadata):
        nonlocal met
        real(iceberg, metadata)
        met += 1
        if met == at and after:
            iceberg.operations().commit(iceberg.operations().current(), metadata)
        if met == at:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(commits, "before_commit", before_commit)
        while at < 30:
            at, met = at + 1, 0
            with suppress(Killed):
                answer = run()
                assert at > 3
                return answer
    raise AssertionError("no run has ended")


# test_no_byte_of_an_erased_key_is_left_... has a run that was killed once
@pytest.mark.deep
@AFTER
def test_a_run_that_is_killed_at_any_commit_is_ended_by_the_next(workshop, monkeypatch, after):
    topic = workshop.topic(f"erased-killed-{after}".lower())
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines(topic)))
    kept = [r for r in workshop.read(topic) if not str(r["key"]).startswith(GONE)]
    code, out, err = after_kills(
        monkeypatch, after, lambda: erase(workshop, monkeypatch, topic, f"{GONE}-0", f"{GONE}-1")
    )
    assert code == 0, err + out
    assert holding(workshop, topic, GONE, VALUE) == {}
    assert workshop.read(topic) == kept


ENDS = {
    "searching for the keys": "reject",
    "checking the erasure": "lift",
    "rewriting files": "lift",
    "searching again": "lift",
}
"""Step of a run -> what a person does to its request meanwhile. The first two come before a round is published."""


@pytest.mark.parametrize("by_person", [False, True], ids=["certified", "rejected"])
def test_a_request_that_ends_before_its_command_reads_it_is_reported_with_its_end(workshop, monkeypatch, by_person):
    """Another process continues the request as soon as it is recorded, or a person rejects it."""
    topic, record_request = workshop.topic(f"erased-faster-{by_person}".lower()), ErasureStore.request
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines(topic)))

    def and_another_ends_it(*arguments, **asked):
        request = record_request(*arguments, **asked)
        monkeypatch.setattr(ErasureStore, "request", record_request)
        workshop.ok(*(["erasures", topic, "--reject", request.id] if by_person else ["erase", topic]))
        return request

    monkeypatch.setattr(ErasureStore, "request", and_another_ends_it)
    code, out, err = erase(workshop, monkeypatch, topic, f"{GONE}-0", more=("--exclude", "versions"))
    [end] = json.loads(out)["requests"]
    [request] = ErasureStore(workshop.platform()).requests(topic)
    if by_person:
        ended = f"request {request.id} is rejected: nothing more is erased for it"
        assert (code, end["certificate"], end["problems"]) == (1, None, [ended])
    else:
        certificate = verified(end["certificate"].encode(), public_key(workshop))
        assert (code, certificate["request"]["id"]) == (0, request.id), err
    assert request.excluded == ()


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=() if step == "checking the erasure" else pytest.mark.deep) for step in ENDS]
)
def test_a_request_that_a_person_ends_during_a_run_is_not_erased_any_further(workshop, monkeypatch, step):
    topic, begun, end = workshop.topic(f"erased-ended-{[*ENDS].index(step)}"), list[str](), ENDS[step]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines(topic)))
    before = workshop.read(topic)

    def progress(text):
        if text == step and not begun:
            [request] = workshop.json("erasures", topic)["requests"]
            begun.append(request["request"])
            workshop.ok("erasures", topic, f"--{end}", request["request"])

    monkeypatch.setattr(erasure_steps, "Run", lambda table, _, by: Run(table, progress, by))
    code, out, _ = erase(workshop, monkeypatch, topic, f"{GONE}-0", f"{GONE}-1")
    [request] = json.loads(out)["requests"]
    assert (code, request["id"], request["certificate"]) == (1, begun[0], None)
    assert request["problems"] == [f"request {request['id']} is {end}ed: nothing more is erased for it"]
    [listed] = workshop.json("erasures", topic)["requests"]
    assert (listed["state"], listed["reason"]) == (f"{end}ed", None)
    if step in [*ENDS][:2]:
        assert workshop.read(topic) == before
    if step != "searching again":
        assert holding(workshop, topic, GONE, VALUE)
    workshop.ok("compact", topic, "--now", NOW)  # the table is whole


# test_no_byte_of_an_erased_key_is_left_... has a run that was killed once
@pytest.mark.deep
def test_what_killed_runs_have_hidden_is_in_the_certificate_and_what_they_left_is_deleted(workshop, monkeypatch):
    topic = workshop.topic("erased-killed-twice")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines(topic)))
    real = erasing._hide
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(erasing, "_hide", lambda *arguments: (real(*arguments), die()))
        erase(workshop, monkeypatch, topic, f"{GONE}-0", f"{GONE}-1")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(erasing, "delete_unreached", die)
        workshop.run("erase", topic)
    assert holding(workshop, topic, GONE, VALUE)
    [request] = json.loads(workshop.ok("erase", topic, "--json"))["requests"]
    assert holding(workshop, topic, GONE, VALUE) == {}
    hidden = verified(request["certificate"].encode(), public_key(workshop))["steps"]["hidden"]
    assert (hidden["records"], len({*hidden["rounds"]})) == ({"0": 3, "1": 3}, 2)  # the second round hides nothing more


def test_requests_are_worked_on_together_and_their_certificates_are_chained(workshop, monkeypatch):
    topic = workshop.topic("erased-twice")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines(topic)))
    with monkeypatch.context() as patch:
        patch.setattr(erasure_steps, "erase_keys", die)
        for key in (f"{GONE}-0", f"{GONE}-1"):
            with pytest.raises(Killed):
                erase(workshop, monkeypatch, topic, key)
    code, _, err = workshop.run("erase", topic, "--exclude", "source")
    assert (code, "Name one with --request" in err) == (2, True)
    texts = [request["certificate"].encode() for request in workshop.json("erase", topic)["requests"]]
    contents = [verified(text, public_key(workshop)) for text in texts]
    require_chain(texts, contents)
    assert [content["number"] for content in contents] == [1, 2]
    assert holding(workshop, topic, GONE, VALUE) == {}

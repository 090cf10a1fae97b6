"""The soak finds what it is made for: its oracle against wrong tables, its names of requests, and one short history."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from soak import files
from soak.__main__ import kind_of as finding_kind
from soak.gateway import FIRST_FAULT, Door, Fault, kind_of
from soak.histories import Act, Deck, History, Record, faults_of, histories, parse_history
from soak.oracle import Truth
from soak.play import shrink

A0, A1, B2 = Record(0, 0, 0, "a", "old"), Record(0, 1, 0, "a", "new"), Record(0, 2, 0, "b", None)
TABLE = "/v1/namespaces/cleantail/tables/orders"


def added(operation):
    return {
        "action": "add-snapshot",
        "snapshot": {"summary": {"operation": "append"} | ({"cleantail.operation": operation} if operation else {})},
    }


def truth(*records, runs=()):
    made = Truth(retention=1000)
    made.send(records)
    made.acknowledge(records)
    for at in runs:
        made.run(at)
    return made


@pytest.mark.parametrize(
    ("rows", "runs", "problem"),
    [
        pytest.param([A0, A1, B2], [], None, id="nothing was compacted"),
        pytest.param([A1, B2], [5], None, id="one is superseded"),
        pytest.param([A1], [5, 1005], None, id="a tombstone whose time is over"),
        pytest.param([A1], [5, 1004], "was deleted before its horizon", id="a tombstone that went early"),
        pytest.param([A0, B2], [5], "is lost", id="the winner is lost"),
        pytest.param([A1, A1, B2], [5], "occurs 2 times", id="an offset twice"),
        pytest.param([A1._replace(value="other"), B2], [5], "was never sent", id="another value"),
    ],
)
def test_the_oracle_names_what_is_wrong_with_a_table(rows, runs, problem):
    found = truth(A0, A1, B2, runs=runs).problems(rows)
    assert (problem is None and not found) or any(problem in text for text in found), found


def test_a_later_run_by_an_earlier_clock_brings_no_horizon_forward():
    known = truth(A0, A1, B2, runs=[5000])
    known.fixed = {(0, 2)}
    known.run(0)
    assert "was deleted before its horizon" in known.problems([A1])[0]
    known.run(6000)
    assert not known.problems([A1])


def test_a_tombstone_stays_until_the_reader_has_read_it():
    known = truth(A0, A1, B2, runs=[5, 2000])
    known.held = 2
    assert "before it was read" in known.problems([A1])[0]
    known.held = 3
    assert not known.problems([A1])


def test_the_oracle_wants_each_key_once_below_the_clean_point_and_a_settled_topic_without_leftovers():
    known = truth(A0, A1, B2, runs=[5])
    assert "key a occurs 2 times below 2" in known.not_clean([A0, A1, B2], {0: 2})[0]
    assert not known.not_clean([A0, A1, B2], {0: 1})
    left = known.problems([A0, A1, B2], settled=True)
    assert [text.endswith(" should have been deleted") for text in left] == [True, True]


def test_histories_are_the_same_for_a_seed_and_bring_each_fault_to_each_point():
    def played(count, never=None):
        """Return the hits of histories whose faults all happen, but those of one point."""
        deck = Deck()
        for history in itertools.islice(histories(7, 2, kafka=False, deck=deck), count):
            assert parse_history(history.as_json()) == history
            faults = [(f"{act.do}: {act.fault.kind}", act.fault.how) for act in history.acts if act.fault]
            dealt.update(faults)
            deck.hits.update(fault for fault in faults if fault[0] != never)
        return deck.hits

    dealt = Counter()
    assert played(9) == played(9)
    assert {point for point, _ in played(5)} == Deck().names
    allowed = {(point, how) for point in Deck().names for how in faults_of(point.partition(": ")[2])}
    assert played(200).keys() == allowed, "each fault comes to each point"
    dealt.clear()
    assert played(9, never="compact: publish")
    at = Counter(point for point, _ in dealt.elements())
    assert at["compact: publish"] > max(n for point, n in at.items() if point.startswith("reclaim")), (
        "it is tried again"
    )


def test_a_point_that_occurs_is_dealt_too():
    deck = Deck()
    deck.seen.update(["reclaim: drop branch", "status: load"])
    drawn = list(itertools.islice(histories(7, 2, kafka=False, deck=deck), 5))
    faults = {f"{act.do}: {act.fault.kind}" for history in drawn for act in history.acts if act.fault}
    assert "reclaim: drop branch" in faults and "status: load" not in faults


def test_the_first_request_at_a_point_has_a_fault_and_so_has_each_point_that_occurs():
    door = Door("", print)
    door.begin("reclaim", Fault("reclaim", "twice", nth=2))
    hows = [
        (fault := door.fault_of(kind)) and fault.how for kind in ("drop branch", "reclaim", "reclaim", "drop branch")
    ]
    assert hows == [FIRST_FAULT, FIRST_FAULT, "twice", None]
    door.begin("", None)
    assert door.fault_of("rewrite") is None and set(door.seen) == {"reclaim: drop branch", "reclaim: reclaim"}


def test_an_erased_key_may_be_gone_once_requested_and_must_be_once_certified():
    known = truth(A0, A1, B2, runs=[5])
    known.erasing = {"b"}
    assert not known.problems([A1]) and not known.problems([A1, B2])
    known.erased = {"b"}
    assert "has an erased key" in known.problems([A1, B2])[0]
    assert "is lost" in known.problems([])[0]


@pytest.mark.parametrize(
    ("method", "path", "updates", "kind"),
    [
        pytest.param("GET", TABLE, None, "load", id="load"),
        pytest.param("POST", TABLE, [{"action": "set-properties"}], "properties", id="properties"),
        pytest.param("POST", TABLE, [added("rollback"), added("ingest")], "rollback", id="rollback and append"),
        pytest.param("POST", TABLE, [added("once"), added("compact")], "publish", id="round"),
        pytest.param("POST", TABLE, [added(None), added("compact")], "publish", id="round that registers files once"),
        pytest.param("POST", f"{TABLE}_keyless", [{"action": "set-properties"}], "side table upkeep", id="side table"),
        pytest.param("POST", "/v1/transactions/commit", None, "unknown: POST /v1/transactions/commit", id="unknown"),
        pytest.param("POST", f"{TABLE}/metrics", None, None, id="no point"),
    ],
)
def test_a_request_is_classified_by_its_purpose(method, path, updates, kind):
    assert kind_of(method, path, json.dumps({"updates": updates} if updates else {}).encode()) == kind


@pytest.mark.parametrize(
    ("file", "size", "kind"),
    [
        pytest.param("warehouse/soak/soak_1/data/partition=0/1.parquet", 0, "write data", id="data"),
        pytest.param("warehouse/soak/soak_1/data/1.parquet", 5, "read data", id="read"),
        pytest.param("warehouse/soak/soak_1/data/1-deletes.puffin", 0, "write vectors", id="vectors"),
        pytest.param("warehouse/soak/soak_1/metadata/1-m0.avro", 0, "write manifest", id="manifest"),
        pytest.param("warehouse/soak/soak_1/metadata/snap-1.avro", 0, "write manifest list", id="manifest list"),
        pytest.param("warehouse/soak/cleantail_evidence/data/1.parquet", 0, "write evidence data", id="evidence"),
        pytest.param("warehouse/soak/soak_1_keyless/metadata/1-m0.avro", 9, "read side table", id="side table"),
        pytest.param("warehouse/soak/soak_1/data/.1.parquet.crc", 0, None, id="sums"),
        pytest.param("home-0/digests.db-journal", 0, "write home digests", id="home"),
        pytest.param("home-0/locks/soak_1", 0, "write home locks", id="lock"),
        pytest.param("home-0/digests.db", 4096, None, id="a file of the home that is there"),
    ],
)
def test_a_file_is_classified_by_its_purpose(file, size, kind):
    assert files.kind_of(Path("/site") / file, size, Path("/site/warehouse")) == kind


def test_a_failing_history_is_made_shorter_and_loses_the_faults_that_do_not_matter():
    wrong = Act("compact", fault=Fault("publish", "twice"))
    acts = [Act("ingest", fault=Fault("load", "late"), file=n) for n in range(5)]
    history = History(1, 1, {}, (*acts, wrong, *acts))
    fails = lambda each: wrong in each.acts and sum(act.do == "ingest" for act in each.acts) > 0  # noqa: E731
    short = shrink(history, fails, lambda _: None)
    assert [(act.do, act.fault and act.fault.how) for act in short.acts] in (
        [("ingest", None), ("compact", "twice")],
        [("compact", "twice"), ("ingest", None)],
    )


def test_a_shrunk_act_keeps_its_fault_if_it_needs_what_happens_meanwhile():
    """Without the fault, both would happen at the same time: such a history may fail once and pass later."""
    act = Act("compact", fault=Fault("publish", "stop before"), meanwhile=(Act("rewrite"),))
    assert shrink(History(1, 1, {}, (act,)), lambda each: bool(each.acts[0].meanwhile), lambda _: None).acts == (act,)


def test_a_shorter_history_must_find_the_same():
    lost = "act 3, read on machine 0: Record(partition=0, offset=7) is lost\n\n0: ingest soak_1 -> 0"
    assert finding_kind(lost) == finding_kind("act 1, read on machine 1: Record(partition=1, offset=2) is lost")
    assert finding_kind(lost) not in ("", finding_kind("act 1, read on machine 0: ingest soak_2: exit code 4"))
    assert finding_kind("") == ""


@pytest.mark.integration
@pytest.mark.spark
def test_a_short_history_of_real_faults_has_no_finding(tmp_path):
    acts = (
        Act("ingest", fault=Fault("ingest", "409 after"), records=(A0, A1, B2)),
        Act("compact", fault=Fault("publish", "twice"), at=1000),
    )
    configs = {"segment.ms": 1, "min.cleanable.dirty.ratio": 0, "delete.retention.ms": 1000}
    file = tmp_path / "history.json"
    file.write_text(History(0, 1, configs, acts).as_json())  # an odd number: no check of the topic's own
    command = [
        sys.executable,
        "-m",
        "soak",
        "--replay",
        str(file),
        "--no-kafka",
        "--machines",
        "1",
        "--save",
        str(tmp_path / "failures"),
    ]
    root = Path(__file__).parents[2]
    jars = {"CLEANTAIL_REST_JARS": str(root / ".cleantail" / "jars-rest")}  # this process may have another home by now
    done = subprocess.run(command, cwd=root, env=jars | os.environ, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "compact: publish" in done.stdout and "twice 1" in done.stdout

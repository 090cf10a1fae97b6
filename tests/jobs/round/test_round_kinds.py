"""What a round that starts over does with each of its logs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleantail.errors import ConflictError
from cleantail.retries import ROUNDS
from spark_jobs.round import run as rounds
from spark_jobs.round.run import RoundLogs, Run, compaction
from tests.jobs.round.test_held_rounds import SHORT, log_of
from tests.jobs.round.test_rounds import NOW, offsets, record

HOUR = 3_600_000


def test_retention_goes_on_in_a_red_log_compacts_nothing_though_its_round_starts_over_and_leaves_its_quarantine(
    workshop, table_of, monkeypatch
):
    config = {"cleanup.policy": "compact,delete", "retention.ms": 30 * HOUR, "segment.ms": HOUR, "segment.bytes": 14}
    topic = workshop.topic("rests", config, checks=[SHORT])
    for n, age in enumerate((40, 20, 19, 3)):
        line = record(n, "far too long", "v", ts=NOW - age * HOUR)
        workshop.ok("ingest", topic, "--file", workshop.file(f"{n}.jsonl", [line]))
    assert workshop.run("compact", topic, "--now", NOW)[0] == 1
    assert offsets(workshop.read(topic)) == [1, 2, 3]  # blocked, and yet records past retention were deleted
    workshop.topic("rests", config | {"retention.ms": 10 * HOUR}, checks=[SHORT])
    kind = compaction(table_of(topic), NOW + 1)
    [unit] = kind.plan(RoundLogs(frozenset(), frozenset([0]))).units
    assert [(w.only_retention, w.log_start_offset) for w in unit.partitions] == [(True, 3)]
    [forced] = kind.plan(RoundLogs(frozenset([0]))).units
    assert [w.only_retention for w in forced.partitions] == [False]

    before = log_of(workshop, topic)["state"]["quarantine"]
    publish, tries = rounds.publish_round, []

    def overtaken(*arguments):
        tries.append(arguments)
        if len(tries) == 1:
            raise ConflictError("another writer came first")
        return publish(*arguments)

    monkeypatch.setattr(rounds, "publish_round", overtaken)
    run = Run(table_of(topic))
    assert rounds.retain_held_back(run, NOW + 1, (0,)) == (0,)
    assert (len(tries), offsets(workshop.read(topic))) == (2, [3])
    assert log_of(workshop, topic, NOW + 1)["state"]["quarantine"] == before


def test_a_conflict_before_the_check_makes_the_round_be_planned_again(workshop, table_of, monkeypatch):
    topic = workshop.topic("staged-twice")
    lines = [record(n, "a", "v") for n in range(3)]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    check, checked = rounds.check_round, []

    def gone(table, round_id, units, *more):
        checked.append(round_id)
        if len(checked) == 1:
            workshop.ok("ingest", topic, "--file", workshop.file("b.jsonl", [record(3, "a", "v")]))
            raise ConflictError("its branch is gone")
        return check(table, round_id, units, *more)

    monkeypatch.setattr(rounds, "check_round", gone)
    workshop.ok("compact", topic, "--now", NOW)
    assert len(set(checked)) == 2
    assert offsets(workshop.read(topic)) == [3]


@pytest.mark.parametrize(
    ("kind", "now_ms"), [("compact", NOW), pytest.param("expire", NOW + 5_000, marks=pytest.mark.deep)]
)
def test_a_round_that_is_overtaken_every_time_gives_up_with_the_last_conflict(
    workshop, table_of, monkeypatch, kind, now_ms
):
    """Two tries show the same as all eight."""
    assert ROUNDS.tries == 8
    monkeypatch.setattr(rounds, "ROUNDS", replace(ROUNDS, tries=2, pause_s=(0.0, 0.01)))
    topic, tries = workshop.topic(f"overtaken-always-{kind}"), []
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(0, "a", "v"), record(1, "a", None)]))
    if kind == "expire":
        workshop.ok("compact", topic, "--now", NOW)

    def overtaken(*arguments):
        tries.append(arguments)
        raise ConflictError(f"overtaken {len(tries)} times")

    monkeypatch.setattr(rounds, "publish_round", overtaken)
    code, _, err = workshop.run("compact", topic, "--now", now_ms)
    assert (code, len(tries), "overtaken 2 times" in err) == (3, 2, True)
    assert {checked.kind for _, checked, *_ in tries} == {kind}


KINDS = ("compact", "expire")


@pytest.mark.parametrize("when", ["staged", "checked", "published"])
@pytest.mark.parametrize("theirs", KINDS)
@pytest.mark.parametrize("mine", KINDS)
def test_a_round_that_another_one_overtakes_starts_over_with_a_green_check_and_overwrites_no_ledger(
    workshop, table_of, monkeypatch, mine, theirs, when
):
    """Another driver's round is published before this one is staged, checked or published. No file conflicts."""
    topic = workshop.topic(f"overtaken-{mine}-{theirs}-{when}")

    for start, (deleted, kept) in ((0, "ab"), (2, "de")):
        lines = [record(start, deleted, None), record(start + 1, kept, "v")]
        workshop.ok("ingest", topic, "--file", workshop.file(f"{start}.jsonl", lines))
        if start == 0:
            workshop.ok("compact", topic, "--now", NOW)
    kinds = {
        "compact": lambda table: compaction(table, NOW + 5_000),
        "expire": lambda table: rounds.expiry(table, NOW + 5_000),
    }

    def run(kind):
        table = table_of(topic)
        made = kinds[kind](table)
        return rounds.run_round(Run(table), made, made.plan(RoundLogs(frozenset([0]))))

    overtook, red, check = [], [], rounds.check_round

    def checked(*arguments):
        result = check(*arguments)
        red.extend(result.red)
        return result

    monkeypatch.setattr(rounds, "check_round", checked)
    step = {"staged": "stage_units", "checked": "check_round", "published": "publish_round"}[when]
    wrapped = getattr(rounds, step)

    def overtaken(*arguments):
        if not overtook:
            overtook.append(theirs)
            assert run(theirs).published == (0,)
        return wrapped(*arguments)

    monkeypatch.setattr(rounds, step, overtaken)
    run(mine)
    assert overtook and not red
    workshop.ok("compact", topic, "--now", NOW + 20_000, "--force")
    workshop.ok("compact", topic, "--now", NOW + 40_000, "--force")
    assert offsets(workshop.read(topic)) == [1, 3]
    assert log_of(workshop, topic, NOW + 40_000)["first_dirty_offset"] == 4

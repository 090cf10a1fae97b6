"""Histories depend on their seed alone, and cover what they are there to cover."""

from __future__ import annotations

import random

import pytest

from differential.broker_rounds import parts
from differential.families import (
    DAY_MS,
    FAMILIES,
    FROM_FILES,
    FROM_KAFKA,
    LAG,
    RETENTION,
    changelog_plan,
    random_plans,
)
from differential.histories import JITTER_MS, SEGMENT_MS, SHAPES, YOUNG_MS, make_history

PLANS = random_plans(84, seed=3)
DRAFTS = [d for plan in PLANS for h in plan.histories for each in h.rounds for s in each for d in s.records]


def test_the_same_seed_makes_the_same_histories_whatever_their_number():
    for few, many in zip(random_plans(7, seed=3), PLANS, strict=True):
        assert few.histories == many.histories[: len(few.histories)]
    assert random_plans(7, seed=4) != random_plans(7, seed=3)


def test_there_are_at_least_as_many_histories_as_asked_for_in_every_family():
    assert [len(plan.histories) for plan in random_plans(50, seed=1)] == [8] * len(FAMILIES)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_segment_is_far_enough_from_the_one_before_to_roll(shape):
    rounds = make_history(random.Random(5), shape, 3, lagging=True).rounds
    stamps = [[d.timestamp_ms for d in s.records] for each in rounds for s in each]
    assert all(max(s) - min(s) < JITTER_MS for s in stamps)
    assert all(min(b) - max(a) > SEGMENT_MS for a, b in zip(stamps, stamps[1:], strict=False))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_newest_segment_of_a_lagging_history_is_young_and_none_after_it_is_old(shape):
    rounds = make_history(random.Random(5), shape, 3, lagging=True).rounds
    assert rounds[0][-1].young
    for each in rounds:
        assert all(s.young == (s.records[0].timestamp_ms >= YOUNG_MS) for s in each)
    assert all(s.young for each in rounds[1:] for s in each)


def test_keys_values_and_headers_are_of_every_kind_and_no_record_is_without_a_key():
    assert all(d.key is not None for d in DRAFTS)
    assert any(d.key == b"" for d in DRAFTS) and any(d.key.startswith(b"\xff") for d in DRAFTS)
    assert {None, b""} <= {d.value for d in DRAFTS} and max(len(d.value or b"") for d in DRAFTS) > 10_000
    assert {None, b"", b"\xfe\xff"} <= {value for d in DRAFTS for _, value in d.headers}


def test_some_histories_have_quiet_rounds_several_segments_or_aborted_data():
    rounds = [each for plan in PLANS for h in plan.histories for each in h.rounds]
    assert {0, 1, 2, 3, 4} <= {len(each) for each in rounds}
    segments = [s for each in rounds for s in each if s.aborted]
    assert {0} < {s.committed_first for s in segments}


def test_the_families_try_both_sides_of_the_horizon_and_of_the_lag():
    retentions = {configs[RETENTION] for family in FAMILIES for configs in family.configs}
    assert min(retentions) == 0 and max(retentions) == DAY_MS
    assert {configs.get(LAG) for family in FAMILIES if family.lagging for configs in family.configs} == {0, DAY_MS}


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.topic)
def test_a_round_is_sent_in_parts_that_end_before_the_first_young_and_before_the_active_segment(plan):
    for number in range(len(plan.family.configs)):
        segments = {p: history.rounds[number] for p, history in enumerate(plan.histories)}
        sent = parts(segments)
        assert {p: sum((part[p] for part in sent), ()) for p in segments} == segments
        assert all(any(part.values()) for part in sent)
        for each in (part[p] for part in sent for p in segments if len(part[p]) > 1):
            assert len({s.young for s in each}) == 1
        assert {p: sent[-1][p] for p in segments} == {p: each[-1:] for p, each in segments.items()}


def test_most_families_are_read_from_kafka_and_some_come_as_files():
    sources = [family.source for family in FAMILIES]
    assert sources.count(FROM_KAFKA) > sources.count(FROM_FILES) > 0
    assert all(family.source == FROM_KAFKA for family in FAMILIES if family.transactional or family.lagging)


def test_a_changelog_keeps_its_partitions_its_order_and_its_timestamps(tmp_path):
    lines = [
        f'{{"partition": {i % 2}, "offset": {i // 2}, "ts": {i}, "key": "k", "payload": "{i}"}}' for i in range(20)
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    plan = changelog_plan(tmp_path / "a.jsonl")
    sent = [[d for each in h.rounds for s in each for d in s.records] for h in plan.histories]
    assert [[int(d.value) for d in drafts] for drafts in sent] == [list(range(0, 20, 2)), list(range(1, 20, 2))]
    assert [d.timestamp_ms for d in sent[1]] == list(range(1, 20, 2))

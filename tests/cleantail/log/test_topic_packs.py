"""How due work of many topics is packed: tables of numbers."""

import random

import pytest

from cleantail.config.topic_group import GroupLimits
from cleantail.log.topic_packs import LABEL_CHARS, DueTopic, Pack, PackedRun, pack_topics

SMALL = GroupLimits.model_validate({"pack.max.bytes": 100, "pack.max.topics": 3, "run.max.packs": 2})
MANY = SMALL.model_copy(update={"run_max_packs": 1000})


def topics_of(packed: PackedRun) -> list[tuple[str, ...]]:
    return [pack.topics for pack in packed.packs]


@pytest.mark.parametrize(
    ("due", "packs"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([DueTopic("a", 60), DueTopic("b", 40)], [("a", "b")], id="exactly full"),
        pytest.param([DueTopic("a", 60), DueTopic("b", 41)], [("a",), ("b",)], id="by bytes"),
        pytest.param([DueTopic(t, 0) for t in "abcd"], [("a", "b", "c"), ("d",)], id="by count"),
        pytest.param(
            [DueTopic("a", 1), DueTopic("b", 101), DueTopic("c", 1)], [("a", "c"), ("b",)], id="large is alone"
        ),
        pytest.param([DueTopic("a", 1), DueTopic("b", 1, overdue_ms=1)], [("b", "a")], id="overdue first"),
        pytest.param(
            [DueTopic("a", 1, overdue_ms=1), DueTopic("b", 1, overdue_ms=2)], [("b", "a")], id="the most overdue first"
        ),
        pytest.param(
            [DueTopic("a", 1, dirty_ratio=0.1), DueTopic("b", 1, dirty_ratio=0.9)], [("b", "a")], id="dirtiest"
        ),
        pytest.param(
            [DueTopic("a", 1, overdue_ms=9), DueTopic("b", 1, left_since_ms=0)], [("b", "a")], id="left over first"
        ),
        pytest.param(
            [DueTopic("a", 1, left_since_ms=8), DueTopic("b", 1, left_since_ms=7)], [("b", "a")], id="the longest wait"
        ),
        pytest.param(
            [DueTopic("a", 200), DueTopic("b", 1, overdue_ms=5)], [("b",), ("a",)], id="a pack as urgent as its first"
        ),
        pytest.param(
            [DueTopic("a", 1, 0, 0.0), DueTopic("b", 1), DueTopic("c", 1, 0, 0.0)], [("a", "b", "c")], id="by name"
        ),
        pytest.param([DueTopic("a", 100), DueTopic("b", 0)], [("a", "b")], id="as large as a pack is not too large"),
    ],
)
def test_topics_are_packed_by_urgency_bytes_and_count(due, packs):
    assert topics_of(pack_topics(due, MANY)) == packs


def test_a_pack_has_the_bytes_of_all_its_topics_and_of_the_largest():
    packed = pack_topics([DueTopic("a", 40), DueTopic("b", 60)], SMALL)
    assert packed == PackedRun((Pack(("a", "b"), 100, 60),), (), "2 topics are due, in 1 pack")


def test_what_is_beyond_the_packs_of_a_run_is_left_over_and_said():
    packed = pack_topics([DueTopic(f"t{n}", 60, overdue_ms=9 - n) for n in range(4)], SMALL)
    assert topics_of(packed) == [("t0",), ("t1",)]
    assert packed.left_over == ("t2", "t3")
    assert packed.reason == "2 topics are due, in 2 packs; 2 more topics are left to the next run (run.max.packs 2)"


def test_what_was_left_over_is_in_the_first_pack_of_the_next_run():
    first = pack_topics([DueTopic(f"t{n}", 60, overdue_ms=9 - n) for n in range(4)], SMALL)
    left = [DueTopic(topic, 60, left_since_ms=1) for topic in first.left_over]
    again = pack_topics([DueTopic("t0", 60, overdue_ms=99), *left], SMALL)
    assert topics_of(again) == [("t2",), ("t3",)]
    assert again.left_over == ("t0",)


def test_nothing_due_has_no_packs_and_says_so():
    assert pack_topics([], SMALL) == PackedRun((), (), "nothing is due")


def test_every_topic_is_in_one_pack_within_the_limits_whatever_the_order():
    dice = random.Random(7)
    due = [DueTopic(f"t{n}", dice.randrange(150), dice.randrange(5), dice.random()) for n in range(300)]
    packed = pack_topics(due, MANY)
    assert sorted(topic for pack in packed.packs for topic in pack.topics) == sorted(d.topic for d in due)
    assert all(len(pack.topics) == 1 or (pack.read_bytes <= 100 and len(pack.topics) <= 3) for pack in packed.packs)
    assert pack_topics(dice.sample(due, len(due)), MANY) == packed


@pytest.mark.parametrize(
    ("topics", "label"),
    [
        (("orders",), "orders, 1.0 KiB"),
        (("a", "b", "c"), "a, b, c, 1.0 KiB"),
        (("a", "b", "c", "d"), "a, b, c and 1 more topic, 1.0 KiB"),
    ],
)
def test_a_label_says_what_a_pack_holds(topics, label):
    assert Pack(topics, 1024, 512).label == label


def test_a_label_of_long_names_keeps_its_end():
    label = Pack(("n" * 249, "m", "o", "p"), 0, 0).label
    assert len(label) == LABEL_CHARS == 200 and label.endswith("and 1 more topic, 0 B")

"""Tables without offsets in trouble: a process that ends at the worst moment, a full offset map, a log in several shares,
and a file that is registered twice. What survives is compared with the model of test_ordered_tables."""

from __future__ import annotations

import pytest

from cleantail.log.task_shares import TaskSizes
from spark_jobs.engine import tasks
from spark_jobs.iceberg import commits
from spark_jobs.round import publish
from tests.jobs.engine.test_late_versions import in_rounds
from tests.jobs.engine.test_ordered_tables import batch, orderless, winners  # noqa: F401
from tests.jobs.iceberg.test_format_2 import full
from tests.jobs.iceberg.test_registered_twice import TIMES, WAYS, measures, twice  # noqa: F401
from tests.jobs.round.intake.test_adopt import HOUR, NOW
from tests.jobs.round.test_held_rounds import die


@pytest.mark.deep
def test_a_process_that_ends_around_its_commit_leaves_all_or_nothing(orderless, monkeypatch):  # noqa: F811
    """What a killed process leaves is tested by test_other_processes. A round of any table is one commit:
    test_a_round_is_one_commit holds the rule."""
    topic = orderless("ordered_killed", [batch(0, 12), batch(12, 12, late=4)])
    topic.compact()
    topic.append(batch(24, 12, late=9))
    before = topic.stored()
    ended(topic, monkeypatch, commits, "before_commit", NOW + 1)
    assert topic.stored() == before
    topic.require_state(NOW + 1)
    ended(topic, monkeypatch, publish, "append_answer", NOW + 2)
    assert topic.stored() == {k: [n] for k, (n, _) in winners(topic.records).items()} != before
    topic.require_winners(NOW + 2)


def ended(topic, monkeypatch, module, name, now):
    """A round ends where it would call the function."""
    with monkeypatch.context() as dying:
        dying.setattr(module, name, die)
        assert topic.workshop.run("compact", topic.name, "--now", now, "--force")[0] == 130
    topic.spark.sql(f"REFRESH TABLE {full(topic.table)}")


@pytest.mark.deep
def test_a_full_offset_map_takes_several_rounds_to_the_same_winners(orderless):  # noqa: F811
    """Each but the first meets the winners of those before it.

    test_case_10_a_round_ends_inside_a_segment_where_the_map_is_full holds the rule."""
    topic = orderless("ordered_budget", [batch(0, 4), batch(4, 4, late=7), batch(8, 4, late=30)])
    in_rounds(topic.workshop, 4)
    topic.compact()
    topic.require_winners()
    assert sum(row["outcome"] == "checked" for row in topic.workshop.evidence(topic.name)) > 2


@pytest.mark.deep
@pytest.mark.parametrize("share", [3, 7, 40])
def test_a_log_in_several_shares_has_the_same_winners(orderless, monkeypatch, share):  # noqa: F811
    """test_several_tasks_clean_and_check_a_log_as_one_task_does holds the rule."""
    monkeypatch.setattr(tasks, "task_sizes", lambda *_: TaskSizes(share, share, 1 << 40, 1, 1))
    topic = orderless(f"ordered_shares{share}", [batch(0, 15), batch(15, 15, late=9)])
    topic.compact()
    topic.require_stored()
    topic.append(batch(30, 10, late=40))
    topic.rewrite()
    topic.append(batch(40, 10, late=7))
    topic.compact(NOW + 1)
    topic.require_winners(NOW + 1)


def test_files_registered_twice_count_once_and_do_not_change_who_wins_a_tie(orderless, twice):  # noqa: F811
    """Each way with a file of its own, whose ties are lost by the files before it and by none after it."""
    topic = orderless("ordered_twice", [[(n, 7, NOW - HOUR, f"k{n}", f"v{n}") for n in range(4)]])
    sink, extra = twice(full(topic.table)), 0
    for number, (way, register) in enumerate(WAYS.items()):
        known = {str(file.location()) for file in sink.files()}
        first = 4 * number + 4
        rows = [(first + n, 7, NOW - HOUR, f"k{n}", f"v{first + n}") for n in range(number, 4)]
        topic.append(rows)
        # the last one: taken away and committed again, another would be the last, and win its ties
        [file] = [file for file in sink.files() if str(file.location()) not in known]
        register(sink, [file])
        extra += len(rows) * (TIMES[way] - 1)
    assert measures(topic.compact())[0]["deleted"]["registered_twice"] == extra
    assert topic.stored() == {"k0": [4], "k1": [9], "k2": [14], "k3": [15]}


def test_a_round_that_registers_a_file_of_the_active_segment_once_makes_its_records_the_latest(orderless, twice):  # noqa: F811
    """They have new row ids then (docs/limits.md): the highest version still wins, and only ties may go another way.

    No other test has entries whose data and file sequence numbers differ."""
    topic = orderless("ordered_active_twice", [[(0, 7, NOW, "a", "x"), (1, 9, NOW, "b", "x")]])
    topic.append([(2, 8, NOW, "a", "y"), (3, 8, NOW, "b", "y"), (4, 1, NOW, "c", "y")])
    sink = twice(full(topic.table))
    sink.in_another_manifest([f for f in sink.files() if f.recordCount() == 2])
    assert measures(topic.compact())[0]["deleted"]["registered_twice"] == 2
    assert sum(map(len, topic.stored().values())) == 5
    topic.compact(NOW + HOUR)
    topic.require_winners(NOW + HOUR)
    assert topic.stored() == {"a": [2], "b": [1], "c": [4]}

"""Tables without offsets in trouble: a process that is killed, a full offset map, a log in several shares, and a file that
is registered twice. What survives is compared with the model of test_ordered_tables."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from cleantail.log.policy.shares import TaskSizes
from spark_jobs.engine import tasks
from tests.jobs.test_adopt import HOUR, NOW
from tests.jobs.test_format_2 import full
from tests.jobs.test_late_versions import in_rounds
from tests.jobs.test_ordered_tables import batch, orderless, winners  # noqa: F401
from tests.jobs.test_registered_twice import WAYS, measures, twice  # noqa: F401

KILLED = """
import os, signal, sys
from cleantail.cli import main
from spark_jobs.iceberg import commits
from spark_jobs.round import publish
module, name = {"before": (commits, "_commit"), "after": (publish, "append_answer")}[sys.argv[1]]
setattr(module, name, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
main(sys.argv[2:])
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_that_is_killed_around_its_commit_leaves_all_or_nothing(orderless, moment):  # noqa: F811
    topic = orderless(f"ordered_killed_{moment}", [batch(0, 12), batch(12, 12, late=4)])
    topic.compact()
    topic.append(batch(24, 12, late=9))
    before = topic.stored()
    argv = [moment, "compact", topic.name, "--now", NOW + 1, "--force", "--config", topic.workshop.config]
    done = subprocess.run([sys.executable, "-c", KILLED, *map(str, argv)], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    topic.spark.sql(f"REFRESH TABLE {full(topic.table)}")
    assert topic.stored() == (
        before if moment == "before" else {k: [n] for k, (n, _) in winners(topic.records).items()}
    )
    topic.require_state(NOW + 2)
    topic.compact(NOW + 2)
    topic.require_winners(NOW + 2)


def test_a_full_offset_map_takes_several_rounds_to_the_same_winners(orderless):  # noqa: F811
    topic = orderless("ordered_budget", [batch(0, 20, keys=9), batch(20, 20, keys=9, late=7)])
    in_rounds(topic.workshop, 4)
    topic.compact()
    topic.require_winners()
    topic.append(batch(40, 20, keys=9, late=30), batch(60, 9, keys=9))
    topic.compact(NOW + 1)
    topic.require_winners(NOW + 1)
    checked = [row for row in topic.workshop.evidence(topic.name) if row["outcome"] == "checked"]
    assert len(checked) > 3


@pytest.mark.parametrize("share", [3, 40])
def test_a_log_in_several_shares_has_the_same_winners(orderless, monkeypatch, share):  # noqa: F811
    monkeypatch.setattr(tasks, "task_sizes", lambda *_: TaskSizes(share, share, 1 << 40, 1, 1))
    topic = orderless(f"ordered_shares{share}", [batch(0, 30), batch(30, 30, late=9)])
    topic.compact()
    topic.require_winners()
    topic.append(batch(60, 20, late=40))
    topic.rewrite()
    topic.append(batch(80, 20, late=7))
    topic.compact(NOW + 1)
    topic.require_winners(NOW + 1)


@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_is_registered_twice_counts_once_and_ties_go_as_before(orderless, twice, way):  # noqa: F811
    tied = [(n, 7, NOW - HOUR, f"k{n % 4}", f"v{n}") for n in range(12)]
    topic = orderless(f"ordered_twice{list(WAYS).index(way)}", [tied[:6], tied[6:]])
    sink = twice(full(topic.table))
    # the later one: taken away and committed again, the earlier one would be the later, and win its ties
    entries = topic.spark.sql(f"SELECT data_file.file_path FROM {full(topic.table)}.entries ORDER BY sequence_number")
    later = entries.collect()[-1]["file_path"]
    WAYS[way](sink, [file for file in sink.files() if str(file.location()) == later])
    assert measures(topic.compact())[0]["deleted"]["registered_twice"] > 0
    topic.require_winners()
    topic.append([(12, 7, NOW - HOUR, "k0", "tie"), (13, 6, NOW - HOUR, "k1", "late")])
    topic.compact(NOW + 1)
    topic.require_winners(NOW + 1)


def test_a_round_that_registers_a_file_of_the_active_segment_once_makes_its_records_the_latest(orderless, twice):  # noqa: F811
    """They have new row ids then (docs/limits.md): the highest version still wins, and only ties may go another way."""
    topic = orderless("ordered_active_twice", [[(0, 7, NOW, "a", "x"), (1, 9, NOW, "b", "x")]])
    topic.append([(2, 8, NOW, "a", "y"), (3, 8, NOW, "b", "y"), (4, 1, NOW, "c", "y")])
    sink = twice(full(topic.table))
    sink.in_another_manifest([f for f in sink.files() if f.recordCount() == 2])
    assert measures(topic.compact())[0]["deleted"]["registered_twice"] == 2
    assert sum(map(len, topic.stored().values())) == 5
    topic.require_state()
    topic.compact(NOW + HOUR)
    topic.require_winners(NOW + HOUR)
    assert topic.stored() == {"a": [2], "b": [1], "c": [4]}

"""Random histories through the engine and through the rules written a second time: nothing may differ.

The quick profile is one history of one family; `make test-deep` draws CLEANTAIL_HISTORIES of each, 6 unless that is
set. A history that fails is printed as a script.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from cleantail.log.task_shares import TaskSizes
from spark_jobs.engine import tasks
from tests.histories.generate import FAMILIES, histories, is_varied
from tests.histories.play import Disagreement, Player

EXAMPLES = int(os.environ.get("CLEANTAIL_HISTORIES", "1"))
DEEP = EXAMPLES > 1
SEED = int(os.environ.get("CLEANTAIL_SEED", "1"))
PLAYED = [family for family in FAMILIES if DEEP or family == "bounds"]
"""Of the others test_several_tasks_clean_and_check_a_log_as_one_task_does compares what is left by header with
a model, test_rules_twice.py holds the rules of retention, and
test_retention_drops_whole_old_segments_and_compaction_cleans_the_rest in test_rounds.py that a run does it."""
IN_SHARES = ("bounds", "header")
"""Families that are played with several tasks for a log, as a large log has them; the others with one."""
SHARE = 3 if DEEP else 6
"""Records of a task. In a quick run some logs have more, so that a round has logs of one task and of several."""
NUMBERS = itertools.count()
TOTAL: Counter[str] = Counter()


@pytest.mark.parametrize("family", PLAYED)
def test_the_engine_does_what_the_rules_say_over_any_history(workshop, capsys, monkeypatch, family):
    differences = []
    if family in IN_SHARES:
        monkeypatch.setattr(tasks, "task_sizes", lambda *_: TaskSizes(SHARE, SHARE, 1 << 40, 1, 1))

    @seed(SEED * 100 + list(FAMILIES).index(family))
    @settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate],  # a run costs too much for shrinking; the script names the failing logs only
        suppress_health_check=list(HealthCheck),
    )
    @given(histories(family, runs=3 if DEEP else 1).filter(is_varied))
    def check(steps):
        player = Player(workshop.config, f"{family}-{next(NUMBERS)}", capsys)
        difference = None
        try:
            player.play(steps)
        except Disagreement as e:
            difference = str(e)
            differences.append(difference)
        if DEEP:
            report(capsys, family, player, difference)

    check()
    assert not differences, "\n".join(differences)


def report(capsys, family, player, difference):
    TOTAL.update(player.compared)
    TOTAL["histories"] += 1
    with capsys.disabled():
        print(f"\n{family}: {'equal' if difference is None else difference}; so far {dict(TOTAL)}", end="", flush=True)

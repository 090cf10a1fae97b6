"""The result of a rollback is read back as it was written: done now, or repeated."""

from __future__ import annotations

import pytest

from cleantail.lake.rollbacks import ROLLBACK_RESULT_JSON, ChangedLogs, RepeatedRollback, RollbackResult
from cleantail.rounds.commit_summaries import UNDONE, Commit

DONE_NOW = RollbackResult(
    to_snapshot_id=1, to_at_ms=2, undone=(), appends_kept=0, rewrites_undone=0, earlier=(), partitions=(), snapshot_id=5
)
TOLD_AGAIN = RepeatedRollback(snapshot_id=5, undone="r1", published=(0,), checkpoints={0: 7})


@pytest.mark.parametrize("result", [DONE_NOW, TOLD_AGAIN], ids=["done now", "told again"])
def test_both_results_are_written_and_read(result):
    plain = ROLLBACK_RESULT_JSON.plain(result)
    assert ROLLBACK_RESULT_JSON.of_plain(plain, "XCom") == result
    assert ("done_before" in plain) == isinstance(result, RepeatedRollback)


def test_a_repeated_rollback_is_reported_from_its_snapshot():
    commit = Commit(5, 4, 1_000, "overwrite", {UNDONE: "r1"})
    assert RepeatedRollback.of(commit, ChangedLogs((0,), {0: 7})) == TOLD_AGAIN

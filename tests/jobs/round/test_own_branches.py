"""Which branches and tags an erasure may drop."""

from __future__ import annotations

import pytest

from spark_jobs.iceberg.tables import branch_name
from spark_jobs.round.erase import own_branches
from tests.cleantail.conftest import orders_table, project

__all__ = ["orders_table", "project"]
THEIRS = ("in_20240101", "re_export", "rw_old", "failed_audit", "ct_mine", "audit")


def test_only_branches_whose_whole_name_is_cleantails_are_dropped(orders_table):
    table = orders_table.append((0, 0, 1, b"a", b"1")).table
    snapshot = table.current_snapshot().snapshot_id
    ours = {branch_name("in_0123456789abcdef_1"), branch_name("rw_1"), branch_name("re_orders"), FAILED}
    for name in (*THEIRS, *ours):
        table.manage_snapshots().create_branch(snapshot, name).commit()
    table.manage_snapshots().create_tag(snapshot, branch_name("in_tagged")).commit()
    assert own_branches(table) == ours


FAILED = "failed_r1_u0_1700000000"


@pytest.mark.parametrize("name", THEIRS)
def test_branch_names_of_other_programs_are_not_recognized_as_cleantails(name):
    from cleantail.log.quarantine import kept_until_ms
    from spark_jobs.iceberg.tables import created_at_s

    assert created_at_s(name) == float("inf") and kept_until_ms(name, 0) is None

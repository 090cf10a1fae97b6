"""Which data files an equality delete is of, what bounds rule out, and how the search is dealt out."""

from __future__ import annotations

import pytest

from cleantail.adopt.equality_deletes import EVERYWHERE, ColumnBounds, TableFile, applies, may_match, searches


def file(number, scope=0, records=10, bounds=None, path=None):
    return TableFile(path or f"f{number}-{scope}", scope, number, records, (), bounds or {})


def delete(number, scope=0, bounds=None, ids=(1,)):
    return TableFile(f"d{number}-{scope}", scope, number, 1, ids, bounds or {})


def number(value, width=8):
    return value.to_bytes(width, "little", signed=True)


def whole(low, high, nulls=0, width=8):
    return {1: ColumnBounds(number(low, width), number(high, width), nulls)}


@pytest.mark.parametrize(
    ("delete_number", "delete_scope", "expected"),
    [
        pytest.param(5, 0, False, id="what comes in one commit with it stays"),
        pytest.param(6, 0, True, id="what came before goes"),
        pytest.param(4, 0, False, id="what came later stays"),
        pytest.param(6, 1, False, id="another partition"),
        pytest.param(6, EVERYWHERE, True, id="a spec without partitions is of all"),
        pytest.param(5, EVERYWHERE, False, id="but not of what came with it"),
    ],
)
def test_a_delete_is_of_older_files_of_its_partition(delete_number, delete_scope, expected):
    assert applies(delete(delete_number, delete_scope), file(5)) is expected


@pytest.mark.parametrize(
    ("of_delete", "of_file", "kind", "expected"),
    [
        pytest.param(whole(1, 2), whole(3, 4), "long", False, id="below"),
        pytest.param(whole(5, 6), whole(3, 4), "long", False, id="above"),
        pytest.param(whole(4, 6), whole(3, 4), "long", True, id="meet"),
        pytest.param(whole(-2, -1), whole(0, 4), "long", False, id="signed"),
        pytest.param(whole(3, 3), whole(3, 4, width=4), "long", True, id="written before it was widened"),
        pytest.param(whole(1, 2, nulls=1), whole(3, 4, nulls=1), "long", True, id="null equals null"),
        pytest.param(whole(1, 2, nulls=1), whole(3, 4), "long", False, id="null on one side alone"),
        pytest.param({}, whole(3, 4), "long", True, id="no bounds"),
        pytest.param({1: ColumnBounds(None, None, 3)}, whole(3, 4), "long", True, id="nulls and no bounds"),
        pytest.param(whole(1, 2), {1: ColumnBounds(number(3), number(4), None)}, "long", True, id="nulls not counted"),
        pytest.param(whole(1, 2), whole(3, 4), "double", True, id="of fractions bounds say nothing here"),
        pytest.param({1: ColumnBounds(b"a", b"b", 0)}, {1: ColumnBounds(b"c", b"d", 0)}, "string", False, id="text"),
        pytest.param({1: ColumnBounds(b"a", b"c", 0)}, {1: ColumnBounds(b"c", b"d", 0)}, "binary", True, id="bytes"),
    ],
)
def test_bounds_rule_out_only_what_cannot_be_equal(of_delete, of_file, kind, expected):
    assert may_match(delete(6, bounds=of_delete), file(5, bounds=of_file), {1: kind}) is expected


def test_every_compared_column_has_to_be_able_to_match():
    one = {1: ColumnBounds(number(1), number(2), 0), 2: ColumnBounds(b"a", b"a", 0)}
    other = {1: ColumnBounds(number(1), number(2), 0), 2: ColumnBounds(b"b", b"b", 0)}
    assert not may_match(delete(6, bounds=one, ids=(1, 2)), file(5, bounds=other), {1: "long", 2: "string"})
    assert may_match(delete(6, bounds=one), file(5, bounds=other), {1: "long", 2: "string"})


def test_a_task_has_files_of_about_a_share_and_the_deletes_of_these_once():
    files = [file(n, records=40) for n in (1, 2, 3)] + [file(9), file(1, scope=1)]
    deletes = [delete(2), delete(4), delete(5, scope=2)]
    tasks = searches(files, deletes, {1: "long"}, 80)
    # the file with number 9 came after all deletes, and scope 1 has none
    assert [task.files for task in tasks] == [(0, 1), (2,)]
    assert [task.deletes for task in tasks] == [(0, 1), (1,)]


def test_a_file_that_no_delete_can_match_is_in_no_task():
    files = [file(1, bounds=whole(1, 5)), file(1, bounds=whole(50, 60), path="other")]
    [task] = searches(files, [delete(2, EVERYWHERE, bounds=whole(4, 9))], {1: "long"}, 100)
    assert (task.files, task.deletes) == ((0,), (0,))


def test_where_there_are_too_many_pairs_bounds_are_not_compared(monkeypatch):
    monkeypatch.setattr("cleantail.adopt.equality_deletes.MOST_PAIRS", 0)
    files = [file(1, bounds=whole(1, 5)), file(3, bounds=whole(1, 5), path="later")]
    [task] = searches(files, [delete(2, bounds=whole(7, 9))], {1: "long"}, 100)
    assert task.files == (0,)

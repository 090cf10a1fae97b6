"""Marks of a table in the ancestry of main: in it, expired with it, or taken out of it by others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleantail.errors import TableError
from cleantail.rounds.rewritten_history import PROPERTY_HISTORY, MainHistory, Mark, Marks, marks_of, property_of_marks

ROUND = Mark(20, 2)


def history(*ancestors, whole=True, uuid="a"):
    """By (snapshot, sequence number), newest first."""
    return MainHistory(
        table_uuid=uuid,
        current=Mark(*ancestors[0]) if ancestors else None,
        has={snapshot for snapshot, _ in ancestors}.__contains__,
        oldest_sequence_number=ancestors[-1][1] if ancestors else 0,
        is_whole=whole,
    )


@pytest.mark.parametrize(
    ("main", "lost"),
    [
        pytest.param(history((30, 3), (20, 2), (10, 1)), False, id="in the ancestry"),
        pytest.param(history((20, 2)), False, id="itself the current one"),
        pytest.param(history((40, 4), (30, 3), whole=False), False, id="expired before the oldest kept one"),
        pytest.param(history((10, 1)), True, id="rolled back"),
        pytest.param(history((10, 1), whole=False), True, id="rolled back to the oldest kept one"),
        pytest.param(history((40, 4), (10, 1), whole=False), True, id="rolled back and written to"),
        pytest.param(history((40, 4)), True, id="replaced by another first commit"),
        pytest.param(history(), True, id="replaced by an empty table"),
        pytest.param(history((20, 2), uuid="b"), True, id="properties of another table"),
    ],
)
def test_a_mark_is_lost_where_the_ancestry_passes_it_without_meeting_it(main, lost):
    assert main.lost(ROUND, "a") is lost
    assert not main.lost(None, "a")


@pytest.mark.parametrize(
    ("main", "rounds", "lost"),
    [
        pytest.param(history((20, 2), (10, 1)), (ROUND,), False, id="the round is there"),
        pytest.param(history((40, 4), (20, 2), (10, 1)), (ROUND,), False, id="with commits after it"),
        pytest.param(history((10, 1)), (), True, id="rolled back"),
        pytest.param(history((30, 3), (10, 1)), (), True, id="rolled back and written to"),
        pytest.param(history((30, 3), (10, 1)), (Mark(10, 1),), True, id="an earlier round is there"),
        pytest.param(history((30, 3), whole=False), (), False, id="expired with what it had read"),
        pytest.param(history((30, 3), (10, 1), whole=False), (), True, id="what it had read is there"),
        pytest.param(history((30, 3)), (), True, id="replaced by another first commit"),
    ],
)
def test_a_round_without_a_mark_is_lost_where_what_it_had_read_is_there_without_it(main, rounds, lost):
    main = replace(main, last_round=lambda: next(iter(rounds), None))
    assert main.lost_round_after(1) is lost


def test_marks_survive_their_property_and_a_table_without_one_has_none():
    marks = Marks("a", ROUND, None)
    assert marks_of(property_of_marks(marks), "t", "b") == marks
    assert marks_of({}, "t", "b") == Marks("b")
    with pytest.raises(TableError, match=PROPERTY_HISTORY):
        marks_of({PROPERTY_HISTORY: "{"}, "t", "b")

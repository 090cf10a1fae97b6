"""Whether offsets are in a set, by flags where they lie close together and by search where they do not."""

import numpy as np
import pytest

from spark_jobs.engine.removals import FLAGS_FOR_EACH, OffsetSet


@pytest.mark.parametrize("gap", [1, 3, FLAGS_FOR_EACH + 1, 1 << 40])
def test_an_offset_is_found_where_it_is_in_the_set_and_nowhere_else(gap):
    offsets = np.arange(5, 2005) * gap
    np.random.default_rng(gap).shuffle(offsets)
    known, there = OffsetSet(offsets), set(offsets.tolist())
    asked = np.concatenate([offsets, offsets + 1, offsets - 1, [0, 4 * gap, 2005 * gap, np.iinfo(np.int64).max]])
    assert known.among(asked).tolist() == [offset in there for offset in asked.tolist()]
    assert known.among(offsets).all()


def test_an_empty_set_has_no_offset_and_no_offsets_are_asked_for():
    assert not OffsetSet(np.array([], np.int64)).among(np.array([0, 7])).any()
    assert len(OffsetSet(np.array([7])).among(np.array([], np.int64))) == 0

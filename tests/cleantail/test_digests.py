"""A short name for a list of values: no two lists share one, and it stays the same, because stored names contain it."""

from __future__ import annotations

from cleantail.codec import digest_of


def test_lists_that_differ_have_digests_that_differ():
    lists = [(), ("a", "b"), ("b", "a"), ("ab",), ("a,b",), ('a", "b',), ("1",), (1,), ("None",), (None,), ("é",)]
    assert len({digest_of(values) for values in lists}) == len(lists)


def test_any_iterable_of_the_same_values_has_the_same_digest():
    assert digest_of(("a", 1)) == digest_of(["a", 1]) == digest_of(iter(["a", 1]))


def test_a_digest_is_as_earlier_versions_have_made_it():
    """Answers, readers' positions and notes of drivers are looked for by it after an upgrade."""
    assert digest_of(("dag", "run", "task", "-1")) == "66b1a4e5088154d957017557c9b73713"
    assert digest_of(["dag", "run", 0, None]) == "40dd8efc342c35f6cd40f4230b649a3d"

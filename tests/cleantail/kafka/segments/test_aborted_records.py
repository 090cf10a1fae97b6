from cleantail.kafka.segment_batches import AbortedRecords


def told(*events):
    aborted = AbortedRecords()
    for kind, producer, offset in events:
        if kind == "begin":
            aborted.begin(producer, offset)
        else:
            aborted.end(producer, offset, kind == "abort")
    return aborted


def test_what_a_producer_appended_since_its_last_marker_is_ended_by_its_next_one():
    aborted = told(
        *[("begin", 7, 0), ("begin", 7, 2), ("abort", 7, 4), ("begin", 7, 5), ("commit", 7, 6)],
        *[("begin", 7, 8), ("abort", 7, 9)],
    )
    assert [aborted.include(7, offset) for offset in (0, 2, 5, 8)] == [True, True, False, True]


def test_transactions_of_several_producers_lie_across_each_other():
    aborted = told(
        ("begin", 1, 0), ("begin", 2, 1), ("begin", 1, 2), ("commit", 2, 3), ("begin", 2, 4), ("abort", 1, 5)
    )
    assert not aborted.are_known
    aborted.end(2, 6, True)
    assert aborted.are_known
    assert [aborted.include(p, o) for p, o in ((1, 0), (2, 1), (1, 2), (2, 4), (3, 4))] == [
        True,
        False,
        True,
        True,
        False,
    ]


def test_an_abort_marker_without_records_before_it_aborts_nothing():
    aborted = told(("abort", 1, 3), ("begin", 1, 4), ("commit", 1, 5))
    assert aborted.are_known and not aborted.include(1, 4)

"""What is left of a table's properties where others took its last round or ingestion out of main."""

from __future__ import annotations

import pytest

from cleantail.log.partition_state import (
    PROPERTY_INGESTED,
    PROPERTY_PARTITION,
    Horizon,
    PartitionState,
    Quarantine,
    Rewritten,
    states_of_properties,
)
from cleantail.log.source_position import PROPERTY_POSITION
from cleantail.rounds.commit_summaries import OPERATION
from cleantail.rounds.past_ingestions import INGEST, SOURCES, KafkaRead, SourceFile, Sources
from cleantail.rounds.rewritten_history import (
    GoneCommits,
    Mark,
    Marks,
    after_rewriting,
    changes,
    lost_marks,
    marks_of,
    property_of_marks,
)
from tests.cleantail.log.test_main_history import history

HELD = Quarantine(1, "compact", "check failed: a", 2, 16_001)
STATE = PartitionState(
    checkpoint=10, log_start_offset=2, log_end_offset=30, horizons=(Horizon(10, 200),), known_sequence_number=7,
    retained_from=2, guards=1, quarantine=HELD,
)  # fmt: skip
ROUND, READ = Mark(20, 2), Mark(30, 3)
NONE_GONE = GoneCommits((), True)


def properties(marks, **more):
    return {f"{PROPERTY_PARTITION}0": STATE.as_json(), **property_of_marks(marks), **more}


def ingestion(*files, before=None, read=False):
    of_read = KafkaRead({0: (1, 2)}, before) if read else None
    sources = Sources(tuple(SourceFile(name, name) for name in files), {0: 1}, of_read)
    return {OPERATION: INGEST, SOURCES: sources.packed()}


def left(before, main, gone=NONE_GONE, at_ms=5):
    return after_rewriting(before, main, lost_marks(before, main, "t"), gone, "t", at_ms)


def test_a_log_whose_last_round_is_gone_has_its_quarantine_and_the_note_left():
    main = history((10, 1))
    after = left(properties(Marks("a", ROUND)), main)
    assert states_of_properties(after, "t") == {0: PartitionState(quarantine=HELD, rewritten=Rewritten(20, 5))}
    assert lost_marks(after, main, "t") is None


def test_a_log_whose_last_round_is_there_keeps_its_checkpoint_where_a_later_ingestion_is_gone():
    after = left(properties(Marks("a", ROUND, READ)), history((20, 2), (10, 1)))
    state = states_of_properties(after, "t")[0]
    assert (state.checkpoint, state.horizons, state.log_end_offset) == (10, STATE.horizons, None)
    assert marks_of(after, "t", "a") == Marks("a", ROUND, Mark(20, 2))


def test_the_files_of_ingestions_that_are_gone_lose_their_marks_and_no_other():
    names = {f"{PROPERTY_INGESTED}{name}": "1" for name in ("one", "two", "kept")}
    before = properties(Marks("a", None, READ), **names)
    after = left(before, history((10, 1)), GoneCommits((ingestion("two"), {}, ingestion("one")), True))
    assert [name for name in names if name in after] == [f"{PROPERTY_INGESTED}kept"]
    assert set(changes(before, after)[1]) == {f"{PROPERTY_INGESTED}one", f"{PROPERTY_INGESTED}two"}


@pytest.mark.parametrize(
    ("oldest", "is_whole", "position"),
    [
        pytest.param("p1", True, "p1", id="what it was before the oldest"),
        pytest.param(None, True, None, id="none where the first read is gone"),
        pytest.param("p1", False, None, id="none where commits between expired"),
    ],
)
def test_the_position_is_what_it_was_before_the_oldest_ingestion_that_is_gone(oldest, is_whole, position):
    gone = GoneCommits((ingestion(before="p2", read=True), ingestion(before=oldest, read=True)), is_whole)
    after = left(properties(Marks("a", None, READ), **{PROPERTY_POSITION: "p3"}), history((10, 1)), gone)
    assert after.get(PROPERTY_POSITION) == position


def test_a_log_that_only_an_ingestion_knew_says_that_its_history_was_rewritten():
    before = property_of_marks(Marks("a", None, READ))
    after = left(before, history((10, 1)), GoneCommits((ingestion("one"),), True))
    assert states_of_properties(after, "t")[0].rewritten == Rewritten(30, 5)

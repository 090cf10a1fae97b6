"""An ingestion says so where its records are below what rounds have cleaned, or what retention has left."""

from __future__ import annotations

import pytest

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.log.log_state import late_warnings
from cleantail.log.partition_state import PartitionState

CLEAN = PartitionState(checkpoint=5, log_start_offset=0, log_end_offset=9)
RETAINED = PartitionState(checkpoint=9, log_start_offset=7, log_end_offset=9, retained_from=7)


@pytest.mark.parametrize(
    ("low", "state", "text"),
    [
        pytest.param(
            4, CLEAN, "partition 2: records from offset 4 on are below the first dirty offset 5", id="cleaned"
        ),
        pytest.param(5, CLEAN, None, id="at the first dirty offset"),
        pytest.param(6, RETAINED, "below the log start 7, which retention has set: the next round drops", id="gone"),
        pytest.param(7, RETAINED, "below the first dirty offset 9", id="at the log start"),
        pytest.param(0, PartitionState(), None, id="no round yet"),
    ],
)
def test_records_below_the_first_dirty_offset_are_reported_as_late(low, state, text):
    found = late_warnings({2: low}, {2: state}, KafkaConfigs())
    assert len(found) == bool(text)
    assert all(text in line and "was the topic recreated?" in line for line in found)


def test_a_log_that_the_table_does_not_know_yet_is_new():
    assert late_warnings({3: 0}, {2: CLEAN}, KafkaConfigs()) == ()

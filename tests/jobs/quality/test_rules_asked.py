"""What Great Expectations says of the measures of a round, log by log."""

from __future__ import annotations

import pytest

from cleantail.config.topic_table import PARTITION
from cleantail.log.rules import LogMeasure
from spark_jobs.quality.expectations import Auditor, validated_together
from spark_jobs.round.check import COMPACT_RULES

pytestmark = pytest.mark.gx


def measures(*imbalances):
    return [LogMeasure(p, imbalance=n).violations((PARTITION, *COMPACT_RULES)) for p, n in enumerate(imbalances)]


@pytest.fixture
def auditor(workshop, tmp_path):
    return Auditor(tmp_path, workshop.find(workshop.topic("asked-rules")), COMPACT_RULES)


@pytest.mark.parametrize(("imbalances", "red"), [((0, 0, 0), {}), ((-3, 0, 3), {0: 3, 2: 3})], ids=str)
def test_each_log_is_judged_by_itself(auditor, imbalances, red):
    [together] = validated_together([(auditor, "r1", measures(*imbalances))])
    for results in (auditor.check_round("r1", measures(*imbalances)), together):
        assert len(results) == len(imbalances) * len(COMPACT_RULES)
        failed = {r.partition: (r.expectation, r.observed) for r in results if not r.passed}
        assert failed == {p: ("imbalance", f"{n} violations") for p, n in red.items()}

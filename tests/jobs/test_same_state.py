"""A round never changes the state that readers see, whatever others have written: copies, and contradictions of them.

In every run the tests of test_late_contradictions.py hold the rule.

`latest` before and after is the same, for retention drops nothing here; a log is held back if and only if an offset of
its dirty part has, or ever had, two different records, or one without a key where the policy is to fail. `make test-deep` draws CLEANTAIL_HISTORIES of each strategy.
"""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as profile

from spark_jobs.round.intake.ingest import parsed_records
from tests.histories.generate import disputed_histories, disputes
from tests.histories.history import Append, Compact, Configure, kcat_lines
from tests.jobs.test_histories import DEEP, EXAMPLES, SEED

STRATEGIES = ["offset", "timestamp", "header"]
RUNS = 3 if DEEP else 2
"""A second run meets what the first has hidden."""
NUMBERS = itertools.count()


@pytest.mark.deep
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_latest_state_is_the_same_before_and_after_any_round(workshop, spark, strategy):
    @seed(SEED * 1000 + STRATEGIES.index(strategy))
    @profile(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(disputed_histories(strategy, runs=RUNS).filter(disputes))
    def check(steps):
        play(workshop, spark, f"disputed-{strategy}-{next(NUMBERS)}", steps)

    check()


def play(workshop, spark, topic, steps):
    held = 0
    for n, step in enumerate(steps):
        if isinstance(step, Configure):
            workshop.topic(topic, step.config)
            workshop.ok("ingest", topic, "--file", workshop.file(f"{topic}.jsonl", []))
        elif isinstance(step, Append):
            append(workshop, spark, topic, workshop.file(f"{topic}-{n}.jsonl", kcat_lines(step.records)))
        elif isinstance(step, Compact):
            before = latest(workshop, topic, step.now)
            spans, held_back, published = run(workshop, topic, step)
            assert latest(workshop, topic, step.now) == before
            disputed, without_key = disputes(steps[:n]), refused_keyless(steps[:n])
            red = {
                p
                for p, (low, end) in spans.items()
                if any(low <= o < end for o in disputed.get(p, set()) | without_key.get(p, set()))
            }
            assert held_back == red
            assert published == set(spans) - red
            held += len(red)
    assert held


def refused_keyless(steps):
    """Of every log the offsets of records without a key, if the policy refuses them."""
    if steps[0].config["cleantail.keyless.policy"] != "fail":
        return {}
    found = {}
    for step in steps:
        for p, records in step.records.items() if isinstance(step, Append) else ():
            found.setdefault(p, set()).update(record.offset for record in records if record.key is None)
    return found


def append(workshop, spark, topic, file):
    """Past ingestion, which would refuse it."""
    parsed_records(spark, [file]).writeTo(f"cleantail.{workshop.find(topic).table}").append()


def latest(workshop, topic, now):
    return sorted(workshop.ok("latest", topic, "--now", now).splitlines())


def run(workshop, topic, step):
    """(the dirty parts by log, the logs that were held back, those that were published)."""
    _, out, err = workshop.run("compact", topic, *step.argv, "--json")
    result = json.loads(out or "null")
    assert result, err
    stages = [result["compacted"], result["expired"]]
    planned = [row for row in result["plan"]["partitions"] if row["compact"]]
    spans = {row["partition"]: (row["first_dirty_offset"], row["end_offset"]) for row in planned}
    return spans, {p for s in stages for p in s["held_back"]}, set(result["compacted"]["published"])

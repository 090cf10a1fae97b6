"""What the evidence says of the work on a round: by whom, when, and how much it saved, also after a rollback."""

from __future__ import annotations

import time

from cleantail.lake.recorded_rounds import read_evidence
from cleantail.rounds.evidence_row import WORK_COLUMNS, TaskRun
from cleantail.rounds.past_rounds import rounds_of
from cleantail.watch.log_metrics import totals_of
from cleantail.watch.metrics import PUT_BACK, SAVED
from tests.jobs.round.test_evidence import evidence_table
from tests.jobs.round.test_rounds import HOUR, NOW, record

AIRFLOW = {"DAG_ID": "who-worked", "DAG_RUN_ID": "manual__1", "TASK_ID": "check_quality"}


def saved_of(workshop, topic):
    """(saved, put back) in bytes, as a page counts them over all rows of the evidence."""
    totals = totals_of(workshop.evidence(topic))
    return totals[SAVED, (topic,)], totals[PUT_BACK, (topic,)]


def test_evidence_names_the_task_and_duration_of_a_round_and_older_rows_have_neither(workshop, monkeypatch):
    for name in AIRFLOW:
        monkeypatch.delenv(f"AIRFLOW_CTX_{name}", raising=False)  # a DAG test in this process leaves them there
    topic = workshop.topic("who-worked")
    began_ms = int(time.time() * 1000)
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(i, "k", "v") for i in range(4)]))
    workshop.ok("compact", topic, "--now", NOW)
    for name, value in AIRFLOW.items():
        monkeypatch.setenv(f"AIRFLOW_CTX_{name}", value)
    workshop.ok("ingest", topic, "--file", workshop.file("b.jsonl", [record(9, "k", "v")]))
    workshop.ok("compact", topic, "--now", NOW, "--force")
    second, first = read_evidence(evidence_table(workshop), topic)
    assert (first.work.checked_by, first.work.ended_by) == (None, None)
    assert second.work.checked_by == second.work.ended_by == TaskRun("who-worked", "manual__1", "check_quality")
    for one in (first, second):
        assert began_ms <= one.work.began_ms <= one.checked_at_ms <= one.work.ended_at_ms
        assert one.duration_ms == one.checked_at_ms - one.work.began_ms
    old = [{k: v for k, v in row.items() if k not in WORK_COLUMNS} for row in workshop.evidence(topic)]
    for found in rounds_of(old):
        assert (found.work.began_ms, found.duration_ms, found.work.checked_by, found.work.saved_bytes) == (None,) * 4
    assert totals_of(old)[SAVED, (topic,)] == 0


def test_saved_never_falls_while_nothing_is_undone_and_a_rollback_takes_back_what_its_rounds_saved(workshop):
    topic = workshop.topic("saved", {"cleantail.reclaim.deleted.ratio": 0.01, "cleantail.reclaim.min.merge.files": 2})
    seen = []
    for n in range(2):
        values = [record(100 * n + i, f"k{i % 7}", "x" * 500) for i in range(50)]
        workshop.ok("ingest", topic, "--file", workshop.file(f"{n}.jsonl", values))
        workshop.ok("compact", topic, "--now", NOW + n * HOUR, "--force")
        seen.append(saved_of(workshop, topic))
        if not n:
            workshop.ok("reclaim", topic, "--now", NOW + n * HOUR)  # rewrites: what was hidden is hidden no more
            seen.append(saved_of(workshop, topic))
    sums = [saved for saved, _ in seen]
    assert sums == sorted(sums)
    assert sums[0] > 0
    assert [back for _, back in seen] == [0] * len(seen)
    last = next(row["saved_bytes"] for row in reversed(workshop.evidence(topic)) if row["outcome"] == "published")
    workshop.ok("rollback", topic)
    assert saved_of(workshop, topic) == (sums[-1], last)
    assert last == sums[-1] - sums[-2] > 0

"""A group evaluates an adopted table whose sink deletes by values before its pack has converted them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cleantail.config.alert_channels import Event
from cleantail.errors import TableError
from cleantail.lake.evaluate import evaluate_topic
from cleantail.rounds.run_plan import NewInput, due_topic
from tests.airflow_environment import airflow_db  # noqa: F401  # first: nothing may import airflow before it
from tests.alert_sinks import hook  # noqa: F401
from tests.jobs.conversion.test_upserting_sinks import COLUMNS, MAPPED, change
from tests.jobs.iceberg.test_format_2 import full
from tests.jobs.round.intake.test_adopt import NOW
from tests.jobs.round.test_alerts import Operations, operations  # noqa: F401
from tests.jobs.upsert_sink import UpsertSink

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.gx]


def test_a_missed_deadline_is_reported_and_the_pack_has_the_size_of_the_table(
    operations: Operations,  # noqa: F811
    spark: Any,
    lake: Any,
) -> None:
    """As of any topic, by a run that converts the deletes and cleans the log. Of a record that a delete hides the
    deadline counts as long as nothing has converted that."""
    workshop, _platform = operations.workshop, operations.workshop.platform()
    (workshop.config / "groups").mkdir()
    (workshop.config / "groups" / "of-sinks.yaml").write_text(json.dumps({"group": "of-sinks", "schedule": None}))
    select = ["p", "o", "ms", "CAST(k AS BIGINT) AS id", "'a' AS region", "v"]
    table = lake("of-a-group", COLUMNS, [[(0, 0, NOW, "1", "v0")]], select, "", "'format-version'='3'")
    workshop.ok("adopt", table, "--topic", "of-a-group", *(x for pair in MAPPED for x in ("--column", pair)))
    columns = dict(pair.split("=") for pair in MAPPED)
    more = {"table": table, "columns": columns, "group": "of-sinks"}
    operations.topic("of-a-group", {"max.compaction.lag.ms": 1_000}, Event.DEADLINE_MISSED, **more)
    kind, row = change(1, 1)
    UpsertSink(spark, full(table), ["id"]).commit((kind, row | {"ms": NOW}))
    topic = workshop.find("of-a-group")
    with pytest.raises(TableError, match="convert-deletes"):
        evaluate_topic(topic, now_ms=NOW + 2_000)
    plan = evaluate_topic(topic, now_ms=NOW + 2_000, unconverted=True)
    due = due_topic(plan, NewInput(0, converts=True), topic.config)
    assert due is not None and due.overdue_ms == 1_000
    assert due.read_bytes >= sum(log.total_bytes for log in plan.logs) > 0
    operations.run("of-sinks", NOW + 2_001)
    assert operations.told == {"deadline_missed": [(1, "open"), (1, "over")]}
    assert [record["offset"] for record in workshop.read("of-a-group")] == [1]

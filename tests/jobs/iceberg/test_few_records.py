"""How few records are few: what Iceberg gives one task, and not too many of them."""

from __future__ import annotations

import pytest

from spark_jobs.iceberg.snapshot_files import FEW_RECORDS, are_few

MIB = 1 << 20


@pytest.mark.parametrize(
    ("sizes", "few"),
    [
        pytest.param([], True, id="no file"),
        pytest.param([(FEW_RECORDS, 128 * MIB)], True, id="as much as one task gets"),
        pytest.param([(1, 128 * MIB + 1)], False, id="a byte more"),
        pytest.param([(FEW_RECORDS - 1, MIB), (2, MIB)], False, id="a record more, in small files"),
        pytest.param([(1, 1)] * 32, True, id="as many files as one task opens"),
        pytest.param([(1, 1)] * 33, False, id="a file more"),
    ],
)
def test_records_count_as_few_if_one_task_would_read_all_of_them(sizes, few):
    assert are_few(iter(sizes)) is few


def test_hidden_records_count_and_those_of_other_logs_do_not(workshop, table_of):
    from tests.jobs.round.test_rounds import NOW, record

    topic = workshop.topic("sizes")
    lines = [record(n, "k", "v", partition=p) for p in (0, 1) for n in range(3 + p)]
    workshop.ok("ingest", topic, "--file", workshop.file("sizes.jsonl", lines))
    workshop.ok("compact", topic, "--now", NOW)
    table = table_of(topic)
    files = table.files_at(int(table.load().currentSnapshot().snapshotId()))
    assert [records for records, size in files.sizes_of([1]) if size > 0] == [4]
    assert sorted(records for records, _ in files.sizes_of([0, 1])) == [3, 4]

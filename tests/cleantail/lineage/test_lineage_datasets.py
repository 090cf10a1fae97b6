"""Lineage of a station: dataset names as other producers write them, and no content of records."""

from pathlib import Path

import pytest

from cleantail.lineage import (
    FILES_NAMED,
    DatasetName,
    LineageDataset,
    StationFacts,
    StationLineage,
    TopicDatasets,
    assertions_of,
    catalog_name,
    file_datasets,
    kafka_dataset,
    lineage_of,
    place_name,
)
from cleantail.rounds.check_results import CheckResult
from cleantail.rounds.stations import BY_NAME, Writes

COLUMNS = {"partition": "int", "offset": "long", "key": "binary", "tombstone": "boolean"}
TABLE = LineageDataset(DatasetName("s3://lake", "w/orders"), columns=COLUMNS, snapshot_id=9)
EVIDENCE = LineageDataset(DatasetName("s3://lake", "w/evidence"))
TABLES = TopicDatasets(TABLE, {"b": 5}, EVIDENCE)
TOPIC = kafka_dataset("one:9092, two:9092", "orders")


@pytest.mark.parametrize(
    ("location", "namespace", "name"),
    [
        pytest.param("s3a://lake/w/orders/", "s3://lake", "w/orders", id="one scheme for a store"),
        pytest.param("file:///w/orders", "file", "/w/orders", id="a file's address"),
        pytest.param("/w/orders", "file", "/w/orders", id="a path"),
        pytest.param("abfss://c@a.dfs.core.windows.net/w", "abfss://a.dfs.core.windows.net", "w", id="no login"),
    ],
)
def test_a_table_is_called_by_its_place(location: str, namespace: str, name: str) -> None:
    assert place_name(location) == DatasetName(namespace, name)


def test_the_catalogs_address_is_told_without_a_login_and_options() -> None:
    told = catalog_name("postgresql://me:secret@db:5432/lake?password=secret", "ns.orders")
    assert told == DatasetName("postgresql://db:5432/lake", "ns.orders")


def test_a_topic_is_called_by_its_first_broker() -> None:
    assert TOPIC.dataset == DatasetName("kafka://one:9092", "orders")


def test_of_too_many_files_their_folders_are_named() -> None:
    few = [Path(f"/landing/{n}.jsonl") for n in range(FILES_NAMED)]
    assert [d.dataset.name for d in file_datasets(few)] == sorted(map(str, few))
    assert [d.dataset.name for d in file_datasets([*few, Path("/landing/more.jsonl")])] == ["/landing"]


def test_an_ingestion_reads_the_source_and_writes_the_columns_that_records_have() -> None:
    told = lineage_of("ingest", TABLES, StationFacts(written=9, commits=True, records=4), [TOPIC])
    assert told.inputs == (TOPIC,)
    (output,) = told.outputs
    assert (output.snapshot_id, output.records, output.columns_from) == (9, 4, TOPIC.dataset)
    assert output.copied_columns == ("partition", "offset", "key")


def test_a_station_that_wrote_nothing_has_only_the_evidence_as_output() -> None:
    told = lineage_of("publish", TABLES, StationFacts(read=(5,)))
    assert [(d.dataset, d.snapshot_id) for d in told.inputs] == [(TABLE.dataset, 5)]
    assert told.outputs == (EVIDENCE,)


@pytest.mark.parametrize(
    "station", sorted(name for name, s in BY_NAME.items() if s.writes is not Writes.NOTHING and name != "ingest")
)
def test_a_station_of_the_table_keeps_every_column_as_it_is(station: str) -> None:
    output = lineage_of(station, TABLES, StationFacts(written=9, commits=True)).outputs[0]
    assert output.copied_columns == tuple(COLUMNS)
    assert output.columns_from == TABLE.dataset


def test_the_check_reads_branches_and_writes_evidence_alone() -> None:
    told = lineage_of("check_quality", TABLES, StationFacts(read=(5, 6)))
    assert [d.snapshot_id for d in told.inputs] == [5, 6]
    assert told.outputs == (EVIDENCE,)


def check(partition: int, passed: bool, rule: str, severity: str = "critical") -> CheckResult:
    return CheckResult(partition, "expect_x", rule, severity, passed, "observed", offsets=(3,))


def test_a_check_is_told_once_with_the_partitions_that_failed_it() -> None:
    results = [check(0, True, "column=key, value_set=['Ann']"), check(2, False, "column=key, value_set=['Ann']")]
    (told,) = assertions_of(results, COLUMNS)
    assert (told.assertion, told.column, told.success, told.failed_in) == ("expect_x", "key", False, (2,))
    assert told.holds_back
    assert "Ann" not in repr(told)


def test_checks_of_one_expectation_with_other_arguments_stay_apart() -> None:
    told = assertions_of([check(0, True, "column=key"), check(0, False, "column=offset", "warning")], COLUMNS)
    assert [(a.column, a.success, a.holds_back) for a in told] == [("key", True, True), ("offset", False, False)]


def test_a_dataset_of_two_topics_occurs_once() -> None:
    both = StationLineage((TABLE,), (EVIDENCE,)) + StationLineage((TOPIC,), (EVIDENCE,))
    assert both == StationLineage((TABLE, TOPIC), (EVIDENCE,))

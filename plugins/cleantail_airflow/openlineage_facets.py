"""Datasets as OpenLineage's datasets with facets. Only this module imports OpenLineage's client.

Fields of facets that the installed version does not have are left out.
"""

from __future__ import annotations

from typing import Any

import attr
from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    column_lineage_dataset,
    data_quality_assertions_dataset,
    dataset_version_dataset,
    output_statistics_output_dataset,
    schema_dataset,
    symlinks_dataset,
)

from cleantail.lineage import Assertion, LineageDataset, StationLineage


def operator_lineage(lineage: StationLineage) -> OperatorLineage:
    return OperatorLineage(
        inputs=[_input(dataset) for dataset in lineage.inputs],
        outputs=[_output(dataset) for dataset in lineage.outputs],
    )


def _input(told: LineageDataset) -> InputDataset:
    facets: dict[str, Any] = {}
    if told.assertions:
        assertions = [_assertion(assertion) for assertion in told.assertions]
        facets["dataQualityAssertions"] = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(assertions)
    return InputDataset(told.dataset.namespace, told.dataset.name, facets=_facets(told), inputFacets=facets)


def _output(told: LineageDataset) -> OutputDataset:
    facets: dict[str, Any] = {}
    if told.records is not None:
        statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=told.records)
        facets["outputStatistics"] = statistics
    return OutputDataset(told.dataset.namespace, told.dataset.name, facets=_facets(told), outputFacets=facets)


def _facets(told: LineageDataset) -> dict[str, Any]:
    """Return the facets of a dataset, read or written: schema, snapshot, other name, origin of its columns."""
    facets: dict[str, Any] = {}
    if told.columns:
        fields = [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in told.columns.items()]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields)
    if told.snapshot_id is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(told.snapshot_id))
    if told.known_as is not None:
        other = symlinks_dataset.Identifier(told.known_as.namespace, told.known_as.name, "TABLE")
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet([other])
    if told.columns_from is not None and told.copied_columns:
        facets["columnLineage"] = _column_lineage(told)
    return facets


def _column_lineage(told: LineageDataset) -> Any:
    """Map each column to the column of the same name: a station copies or removes records and changes none."""
    assert told.columns_from is not None, "the caller has checked it"
    namespace, name = told.columns_from.namespace, told.columns_from.name
    same = column_lineage_dataset.Transformation("DIRECT", "IDENTITY")
    fields = {
        column: column_lineage_dataset.Fields(
            [column_lineage_dataset.InputField(namespace, name, column, transformations=[same])]
        )
        for column in told.copied_columns
    }
    return column_lineage_dataset.ColumnLineageDatasetFacet(fields)


def _assertion(told: Assertion) -> data_quality_assertions_dataset.Assertion:
    kind = data_quality_assertions_dataset.Assertion
    failed = f"failed in partitions {', '.join(map(str, told.failed_in))}" if told.failed_in else None
    more = {"severity": "error" if told.holds_back else "warn", "description": failed}
    known = {field.name for field in attr.fields(kind)}
    return kind(told.assertion, told.success, told.column, **{k: v for k, v in more.items() if k in known})

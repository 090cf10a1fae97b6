"""Convert datasets to OpenLineage's datasets with facets. Only this module imports OpenLineage's client.

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


def _input(item: LineageDataset) -> InputDataset:
    facets: dict[str, Any] = {}
    if item.assertions:
        assertions = [_assertion(assertion) for assertion in item.assertions]
        facets["dataQualityAssertions"] = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(assertions)
    return InputDataset(item.dataset.namespace, item.dataset.name, facets=_facets(item), inputFacets=facets)


def _output(item: LineageDataset) -> OutputDataset:
    facets: dict[str, Any] = {}
    if item.records is not None:
        statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=item.records)
        facets["outputStatistics"] = statistics
    return OutputDataset(item.dataset.namespace, item.dataset.name, facets=_facets(item), outputFacets=facets)


def _facets(item: LineageDataset) -> dict[str, Any]:
    """Return the facets of a dataset, read or written: schema, snapshot, other name, origin of its columns."""
    facets: dict[str, Any] = {}
    if item.columns:
        fields = [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in item.columns.items()]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields)
    if item.snapshot_id is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(item.snapshot_id))
    if item.known_as is not None:
        other = symlinks_dataset.Identifier(item.known_as.namespace, item.known_as.name, "TABLE")
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet([other])
    if item.columns_from is not None and item.copied_columns:
        facets["columnLineage"] = _column_lineage(item)
    return facets


def _column_lineage(item: LineageDataset) -> Any:
    """Map each column to the column of the same name: a station copies or removes records and changes none."""
    assert item.columns_from is not None, "the caller has checked it"
    namespace, name = item.columns_from.namespace, item.columns_from.name
    same = column_lineage_dataset.Transformation("DIRECT", "IDENTITY")
    fields = {
        column: column_lineage_dataset.Fields(
            [column_lineage_dataset.InputField(namespace, name, column, transformations=[same])]
        )
        for column in item.copied_columns
    }
    return column_lineage_dataset.ColumnLineageDatasetFacet(fields)


def _assertion(item: Assertion) -> data_quality_assertions_dataset.Assertion:
    kind = data_quality_assertions_dataset.Assertion
    failed = f"failed in partitions {', '.join(map(str, item.failed_in))}" if item.failed_in else None
    more = {"severity": "error" if item.holds_back else "warn", "description": failed}
    known = {field.name for field in attr.fields(kind)}
    return kind(item.assertion, item.success, item.column, **{k: v for k, v in more.items() if k in known})

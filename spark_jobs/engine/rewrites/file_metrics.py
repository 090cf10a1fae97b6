"""What a table is told of a new Parquet file: counts, sizes and bounds of its columns, out of the file's footer.

PyIceberg works them out, by the properties `write.metadata.metrics.*`. Iceberg's own library would open each file once
more, and read Hadoop's configuration anew for each: a fifth of what the ingestion of a small file took in the JVM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyarrow.parquet import FileMetaData
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema
from pyiceberg.types import LongType

from spark_jobs.engine.rewrites.written_schema import LINEAGE_IDS

NO_METRICS = MetricsMode(MetricModeTypes.NONE)
REPEATED = frozenset({"list", "key_value"})
"""What Parquet calls the repeated part of a list and of a map."""
COUNTS = {
    "column-sizes": "column_sizes",
    "value-counts": "value_counts",
    "null-value-counts": "null_value_counts",
    "nan-value-counts": "nan_value_counts",
}
BOUNDS = {"lower-bounds": "lower_bounds", "upper-bounds": "upper_bounds"}
"""Names as Iceberg writes a data file in JSON, and as PyIceberg calls them."""


@dataclass(frozen=True, slots=True)
class FileMetrics:
    """Tells the metrics of the files of one table. `plan`: field id -> what is kept of the column; `ids`: path of a
    column in a file -> its field id."""

    plan: dict[int, StatisticsCollector]
    ids: dict[str, int]

    @classmethod
    def of(cls, schema: str, properties: Mapping[str, str]) -> FileMetrics:
        """Returns those of a table: its schema as Iceberg writes it in JSON, and its properties."""
        parsed = Schema.model_validate_json(schema)
        ids = parquet_path_to_id_mapping(parsed) | LINEAGE_IDS
        plan = compute_statistics_plan(parsed, dict(properties))
        # a count of what is in lists would be none of records: Iceberg's own writers keep none
        none = {i: plan[i].column_name for path, i in ids.items() if REPEATED.intersection(path.split("."))}
        none |= {number: name for name, number in LINEAGE_IDS.items()}
        without = {i: StatisticsCollector(i, LongType(), NO_METRICS, name) for i, name in none.items()}
        return cls(plan | without, ids)

    def of_footer(self, footer: FileMetaData) -> dict[str, Any]:
        """Returns the metrics of a file as Iceberg writes them in JSON."""
        statistics = data_file_statistics_from_parquet_metadata(footer, self.plan, self.ids).to_serialized_dict()
        counts = {name: _pairs(statistics[of]) for name, of in COUNTS.items()}
        bounds = {name: _pairs({i: b.hex() for i, b in statistics[of].items()}) for name, of in BOUNDS.items()}
        return {
            "record-count": statistics["record_count"],
            "split-offsets": statistics["split_offsets"],
            **counts,
            **bounds,
        }


def _pairs(by_id: Mapping[int, Any]) -> dict[str, list[Any]]:
    return {"keys": list(by_id), "values": list(by_id.values())}

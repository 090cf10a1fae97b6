"""The properties of a new topic table."""

import pytest

from cleantail.config.topic_table import COLUMNS, table_properties
from tests.cleantail.kernel_builders import configs


@pytest.mark.parametrize(
    ("segment_bytes", "file_bytes"),
    [
        pytest.param(14, 1 << 20, id="1 MiB at least"),
        pytest.param((1 << 20) + 1, (1 << 20) + 1, id="as large as a segment"),
        pytest.param((512 << 20) - 1, (512 << 20) - 1, id="just below the most"),
        pytest.param(1 << 30, 512 << 20, id="512 MiB at most"),
    ],
)
def test_files_end_where_a_segment_can_end(segment_bytes, file_bytes):
    properties = table_properties("orders", configs(segment_bytes=segment_bytes))
    assert properties["write.target-file-size-bytes"] == str(file_bytes)


def test_a_table_says_whose_it_is_and_deletes_by_vectors():
    properties = table_properties("orders", configs())
    assert (properties["cleantail.topic"], properties["format-version"]) == ("orders", "3")
    assert {properties[f"write.{kind}.mode"] for kind in ("delete", "update", "merge")} == {"merge-on-read"}


def test_offsets_and_timestamps_have_full_bounds_and_values_their_counts():
    properties = table_properties("orders", configs())
    metrics = {k.removeprefix("write.metadata.metrics."): v for k, v in properties.items() if "metrics" in k}
    assert metrics == {
        "default": "full",
        "column.key": "truncate(16)",
        "column.value": "counts",
        "column.headers": "none",
    }


def test_manifests_are_merged_before_a_look_at_the_table_opens_many():
    assert int(table_properties("orders", configs())["commit.manifest.min-count-to-merge"]) < 100  # Iceberg's own


def test_the_columns_are_those_of_a_kafka_record():
    assert list(COLUMNS) == ["partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"]

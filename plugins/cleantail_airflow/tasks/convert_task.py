"""The task of an adopted topic that takes away deletes by values, which its sink goes on writing in upsert mode."""

from __future__ import annotations

import os

from airflow.sdk import Context

from cleantail_airflow.tasks.run_params import ROLLBACK_TO, require_known_params
from cleantail_airflow.tasks.spark_operator import CleantailSparkOperator, topic_and_platform


class ConvertDeletesOperator(CleantailSparkOperator):
    """Turns equality deletes into deletes of one data file each, which a round can read; skipped, without Spark, where
    the table has none."""

    job = "convert_deletes"

    def arguments(self, context: Context) -> list[str]:
        from cleantail.lake.catalogs import load_table, open_catalog
        from cleantail.lake.runs.foreign_deletes import foreign_deletes

        require_known_params(context)
        if context["params"].get(ROLLBACK_TO):
            self.skip("the run is a rollback")
        topic, platform = topic_and_platform(self.topic, self.config_dir)
        table = load_table(open_catalog(platform, os.environ), topic, platform)
        if table is None or not foreign_deletes(table).any:
            self.skip("every delete of the table is of one data file: there is nothing to convert")
        return []

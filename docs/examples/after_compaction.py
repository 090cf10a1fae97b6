"""A DAG that runs after each compaction of the topic orders, and reads up to the new first dirty offsets."""

from __future__ import annotations

from airflow.sdk import Asset, dag, task

ORDERS = Asset("x-cleantail://orders")


@dag(schedule=[ORDERS], catchup=False)
def after_compaction():
    @task(inlets=[ORDERS])
    def load(*, triggering_asset_events=None):
        """Read the newest event only. It has the first dirty offset of every partition, also after several
        compactions."""
        newest = max(triggering_asset_events[ORDERS], key=lambda event: event.timestamp)
        for partition, end in sorted(newest.extra["checkpoints"].items()):
            print(f"partition {partition} has one record per key below offset {end}")

    load()


after_compaction()

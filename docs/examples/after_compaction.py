"""A DAG that runs after each compaction of the topic orders, and takes what has become clean since its last run."""

from __future__ import annotations

from airflow.sdk import Asset, dag, task

ORDERS = Asset("x-cleantail://orders")


@dag(schedule=[ORDERS], catchup=False)
def after_compaction():
    @task(inlets=[ORDERS])
    def load(*, triggering_asset_events=None):
        """Several compactions may have come together: the last event has the clean point of every partition."""
        newest = max(triggering_asset_events[ORDERS], key=lambda event: event.timestamp)
        for partition, end in sorted(newest.extra["checkpoints"].items()):
            print(f"partition {partition} has one record a key below offset {end}")

    load()


after_compaction()

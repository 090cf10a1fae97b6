"""A DAG of another team: it waits until the topic orders is clean up to given offsets, then reads up to there."""

from __future__ import annotations

from airflow.sdk import dag, task

from cleantail_airflow.tasks.clean_sensor import CleanUpToSensor


@dag(schedule="@daily", catchup=False)
def wait_until_clean():
    @task
    def needed() -> dict[str, int]:
        """Return the offset up to which each partition has to be clean. Here it is fixed."""
        return {"0": 1042, "1": 977}

    wait = CleanUpToSensor(
        task_id="wait",
        topic="orders",
        config="/etc/cleantail/config",
        offsets="{{ ti.xcom_pull(task_ids='needed') | tojson }}",
        timeout=6 * 60 * 60,
    )

    @task
    def load(clean: dict) -> None:
        """Read the snapshot that was clean, whatever is published meanwhile."""
        print(f"read snapshot {clean['snapshot_id']} below {clean['checkpoints']}")

    needed() >> wait
    load(wait.output)


wait_until_clean()

"""Assets and schedules as Airflow understands them, and what an event of a topic's asset says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cleantail.config.loading import find_topic
from cleantail.errors import ConfigError
from cleantail.rounds.job_report import EndedJob
from cleantail_airflow.tasks.assets import announce, asset_of, schedule_of, usable_topics
from tests.airflow_site import Site


def scheduled(site: Site, schedule: Any) -> Any:
    site.topic("orders", schedule=schedule)
    return schedule_of(find_topic("orders", site.config))


def as_stored(dag: Any) -> dict[str, Any]:
    from airflow.serialization.serialized_objects import DagSerialization

    timetable: dict[str, Any] = DagSerialization.to_dict(dag)["dag"]["timetable"]
    return timetable


@pytest.mark.parametrize("topic", ["orders", "orders.v2", "A-b_c", "..."])
def test_another_dag_names_the_asset_by_one_text_and_airflow_leaves_it_as_it_is(topic: str) -> None:
    from airflow.sdk import Asset

    ours, theirs = asset_of(topic), Asset(f"x-cleantail://{topic}")
    assert (ours.name, ours.uri) == (theirs.name, theirs.uri) == (f"x-cleantail://{topic}", f"x-cleantail://{topic}")


def test_a_schedule_of_cron_alone_is_passed_on_unchanged(site: Site) -> None:
    assert scheduled(site, "*/5 * * * *") == "*/5 * * * *"
    assert scheduled(site, {"cron": "@daily"}) == "@daily"
    assert scheduled(site, None) is None


def test_assets_alone_start_a_run_when_all_were_updated(site: Site) -> None:
    site.topic("orders", schedule={"assets": ["s3://bucket/landing", "x-cleantail://users"]})
    stored = as_stored(site.dag("orders"))
    assert stored["__type"] == "airflow.timetables.simple.AssetTriggeredTimetable"
    condition = stored["__var"]["asset_condition"]
    assert condition["__type"] == "asset_all"
    assert [each["uri"] for each in condition["objects"]] == ["s3://bucket/landing", "x-cleantail://users"]


def test_cron_and_assets_start_a_run_by_either(site: Site) -> None:
    site.topic("orders", schedule={"cron": "5 4 * * *", "assets": ["landed"]})
    dag = site.dag("orders")
    stored = as_stored(dag)
    assert stored["__type"] == "airflow.timetables.assets.AssetOrTimeSchedule"
    assert stored["__var"]["timetable"]["__var"]["expression"] == "5 4 * * *"
    assert [each["uri"] for each in stored["__var"]["asset_condition"]["objects"]] == ["landed"]
    assert "| **schedule** | `5 4 * * *, or after landed` | topic YAML |" in dag.doc_md


def test_an_upstream_asset_is_meant_by_its_uri_as_airflow_writes_it(site: Site) -> None:
    (asset,) = scheduled(site, {"assets": ["HTTPS://host/path/?b=1&a=2#part"]})
    assert asset.uri == "https://host/path?a=2&b=1"


def test_a_uri_that_its_provider_refuses_breaks_that_topic_alone(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

    def refuse(parts: Any) -> Any:
        raise ValueError("URI format odd:// must contain a table")

    handlers = {"odd": refuse}
    monkeypatch.setattr(ProvidersManagerTaskRuntime, "asset_uri_handlers", property(lambda _: handlers))
    site.topic("orders", schedule={"assets": ["odd://db"]})
    site.topic("users")
    found = {file.stem: topic for file, topic in usable_topics(site.config)}
    assert isinstance(found["orders"], ConfigError)
    assert 'schedule.assets: "odd://db" is not allowed: URI format odd:// must contain a table' in str(found["orders"])
    bag = site.bag()
    assert sorted(bag.dags) == ["cleantail_doctor", "users"]
    assert list(bag.import_errors) == ["cleantail_broken_topics.py"]


class Events(dict[Any, Any]):
    def __missing__(self, key: Any) -> Any:
        self[key] = type("Accessor", (), {"extra": {}})()
        return self[key]


def test_an_event_says_what_was_published_and_where_every_log_is_clean_to() -> None:
    events = Events()
    result = {
        "round": "r1",
        "snapshot_id": 2**62,
        "published": [0],
        "checkpoints": {"0": 40, "1": 7},
        "ends": {"0": 40},
    }
    announce({"outlet_events": events}, "orders", "compact", EndedJob("publish", result).report)  # type: ignore[typeddict-item]
    extra = events[asset_of("orders")].extra
    assert json.loads(json.dumps(extra)) == {
        "topic": "orders",
        "operation": "compact",
        "round": "r1",
        "snapshot_id": str(2**62),
        "partitions": [0],
        "checkpoints": {"0": 40, "1": 7},
    }

"""The sensor of other teams' DAGs: it waits for clean points, and for nothing that waiting does not change."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from cleantail.log.partition_state import PartitionState
from cleantail_airflow.airflow_exceptions import AirflowFailException
from cleantail_airflow.tasks.clean_sensor import CleanUpToSensor, parsed_offsets
from tests.airflow_environment import BUNDLE
from tests.airflow_site import Site
from tests.cleantail.orders_table import OrdersTable

pytestmark = pytest.mark.airflow
CONTEXT: Any = cast(Any, {})


@pytest.fixture
def table(site: Site) -> OrdersTable:
    """The topic orders, of which partition 0 is clean up to 4 and partition 1 was never compacted."""
    site.topic("orders")
    made = OrdersTable(site.config.parent).append((0, 1, 0, b"a", b"x"), (0, 9, 0, b"a", b"x"), (1, 5, 0, b"a", b"x"))
    return made.set_properties(**{"cleantail.partition.0": PartitionState(checkpoint=4).as_json()})


def sensor(site: Site, offsets: Any, **more: Any) -> CleanUpToSensor:
    return CleanUpToSensor(task_id="wait", topic="orders", config=site.config, offsets=offsets, **more)


@pytest.mark.parametrize(
    ("offsets", "done"),
    [
        pytest.param({0: 4}, True, id="reached"),
        pytest.param({0: 3}, True, id="passed"),
        pytest.param({0: 5}, False, id="not yet"),
        pytest.param({"0": 4, "1": 0}, True, id="of an empty part nothing is needed"),
        pytest.param({0: 4, 1: 1}, False, id="one of two"),
        pytest.param({7: 1}, False, id="a partition that has not come yet"),
        pytest.param('{"0": 4}', True, id="JSON of a template"),
    ],
)
def test_it_waits_until_every_partition_is_clean_up_to_its_offset(
    site: Site, table: OrdersTable, offsets: Any, done: bool
) -> None:
    answer = sensor(site, offsets).poke(CONTEXT)
    assert answer.is_done is done
    assert answer.xcom_value == {
        "topic": "orders",
        "snapshot_id": str(table.table.current_snapshot().snapshot_id),
        "checkpoints": {"0": 4},
    }


def test_a_later_round_is_seen(site: Site, table: OrdersTable) -> None:
    waits = sensor(site, {0: 9})
    assert not waits.poke(CONTEXT).is_done
    table.set_properties(**{"cleantail.partition.0": PartitionState(checkpoint=9).as_json()})
    assert waits.poke(CONTEXT).is_done


def test_a_topic_without_a_table_is_waited_for(site: Site) -> None:
    site.topic("orders")
    answer = sensor(site, {0: 4}).poke(CONTEXT)
    assert (answer.is_done, answer.xcom_value["checkpoints"]) == (False, {})


def test_a_catalog_that_is_away_only_delays_it(site: Site) -> None:
    site.topic("orders")
    (site.config / "defaults.yaml").write_text("platform: {catalog: {type: rest, uri: 'http://127.0.0.1:1'}}\n")
    assert not sensor(site, {0: 4}).poke(CONTEXT).is_done


def test_an_unknown_topic_and_invalid_offsets_fail_the_sensor_at_once(site: Site) -> None:
    with pytest.raises(AirflowFailException, match="no topic orders"):
        sensor(site, {0: 4}).poke(CONTEXT)
    site.topic("orders")
    for wrong in ("soon", "{}", {}, {0: -1}, {"a": 1}, '{"0": "x"}', "[1]", {0: 1, "-1": 2}):
        with pytest.raises(AirflowFailException, match="not a mapping of partitions to offsets"):
            sensor(site, wrong).poke(CONTEXT)
    assert parsed_offsets({"0": 4, 1: "5"}) == {0: 4, 1: 5}


def test_it_frees_its_slot_while_it_waits(site: Site) -> None:
    waits = sensor(site, {0: 4})
    assert (waits.mode, waits.poke_interval) == ("reschedule", 300)
    assert sensor(site, {0: 4}, mode="poke", poke_interval=5).mode == "poke"


def test_the_example_waits_and_hands_on_the_snapshot(
    site: Site, table: OrdersTable, airflow_db: Path, tmp_path: Path
) -> None:
    """docs/examples/wait_until_clean.py, with this test's configuration and offsets, as Airflow runs it."""
    from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db

    text = (Path(__file__).parents[3] / "docs" / "examples" / "wait_until_clean.py").read_text()
    assert '{"0": 1042, "1": 977}' in text
    folder = tmp_path / "dags"
    folder.mkdir()
    text = text.replace("/etc/cleantail/config", str(site.config)).replace('{"0": 1042, "1": 977}', '{"0": 4}')
    (folder / "theirs.py").write_text(text)
    bag = BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name=BUNDLE)
    assert bag.import_errors == {}
    sync_bag_to_db(bag, BUNDLE, None)
    run = bag.dags["wait_until_clean"].test()
    states = {ti.task_id: str(ti.state) for ti in run.get_task_instances()}
    assert states == {"needed": "success", "wait": "success", "load": "success"}

"""Kernel tests: no Spark, no clock, and the same Hypothesis examples on every run."""

import pytest
from hypothesis import settings

settings.register_profile("kernel", derandomize=True, database=None, deadline=None, max_examples=60)
settings.load_profile("kernel")

TOPIC = "topic: orders\nconfig:\n  segment.ms: 1\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A configuration with the topic `orders`, and CLEANTAIL_HOME in an empty directory; the place of both."""
    topics = tmp_path / "config" / "topics"
    topics.mkdir(parents=True)
    (topics / "orders.yaml").write_text(TOPIC)
    monkeypatch.setenv("CLEANTAIL_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def orders_table(project):
    """Creates the topic's table with PyIceberg as ingest would with Spark: append(records, …), one file a partition."""
    from tests.cleantail.orders_table import OrdersTable

    return OrdersTable(project)

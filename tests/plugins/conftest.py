"""The environment first: nothing may import airflow before it."""

from tests.airflow_environment import airflow_db  # noqa: F401, I001
from tests.airflow_site import jobs, site  # noqa: F401
from tests.alert_sinks import hook, mailbox  # noqa: F401
from tests.statsd_sink import statsd  # noqa: F401

import os
from collections.abc import Iterator

import pytest

from differential.broker import kafka_jars, running_broker

JARS = kafka_jars(os.environ)
AT_REST = {
    "log.cleaner.enable": "false",
    "log.retention.check.interval.ms": 300_000,
    "metadata.max.idle.interval.ms": 0,
}
"""What a broker does without being asked, and no test of plugins needs."""


@pytest.fixture(scope="session")
def broker_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker for all tests of plugins, each file with a topic of its own."""
    with running_broker(tmp_path_factory.mktemp("broker"), JARS, extra_properties=AT_REST) as broker:
        yield broker.address

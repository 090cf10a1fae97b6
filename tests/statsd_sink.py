"""A StatsD server that keeps what it is sent: a real UDP socket on loopback. Import the fixture in a conftest.py."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

WAIT_S = 10


class UdpSink:
    """Lines as they come, in order."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.found: list[str] = []
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        while True:
            try:
                self.found.append(self.socket.recv(65_535).decode())
            except OSError:
                return

    def cleantail(self, at_least: int = 1) -> list[str]:
        """The lines of our own, sorted, once there are so many; without the prefix."""
        end = time.monotonic() + WAIT_S
        prefix = "airflow.cleantail."
        while (
            len(own := [line for line in self.found if line.startswith(prefix)]) < at_least and time.monotonic() < end
        ):
            time.sleep(0.01)
        return sorted(line.removeprefix(prefix) for line in own)


@pytest.fixture
def statsd(monkeypatch: pytest.MonkeyPatch) -> Iterator[UdpSink]:
    """Airflow's stats as a task has them, sent to a sink."""
    from airflow.sdk.observability import stats
    from airflow.sdk.observability.metrics.stats_utils import get_stats_factory

    sink = UdpSink()
    with monkeypatch.context() as patched:
        patched.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
        patched.setenv("AIRFLOW__METRICS__STATSD_HOST", "127.0.0.1")
        patched.setenv("AIRFLOW__METRICS__STATSD_PORT", str(sink.socket.getsockname()[1]))
        stats.initialize(factory=get_stats_factory(), export_legacy_names=True)
        yield sink
    stats.initialize(factory=get_stats_factory(), export_legacy_names=True)
    sink.socket.close()

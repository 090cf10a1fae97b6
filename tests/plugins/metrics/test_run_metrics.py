"""What tasks send: to a real UDP socket as StatsD, and to a real HTTP sink as OpenTelemetry."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from cleantail.rounds.job_report import EndedJob
from cleantail.rounds.station_results import ReclaimResult
from cleantail.rounds.stations import TOPIC_OUTCOME_JSON
from cleantail_airflow.outcomes.run_metrics import send_outcome, send_result
from tests.airflow_environment import ROOT
from tests.airflow_site import failure, verdict
from tests.statsd_sink import UdpSink

WORK = {"partition": 3, "first_dirty_offset": 2, "end_offset": 10, "log_start_offset": 0, "log_end_offset": 10}
WORK |= {"read_bytes": 100, "dirty_bytes": 80}
UNIT = {"round": "r1", "unit": 0, "now_ms": 5, "base_snapshot_id": 7, "branch": "ct_r1_u0_9", "partitions": [WORK]}
COUNTS = {"records_read": 10, "records_kept": 4, "map_records": 8, "map_keys": 2}
CHECKED = {
    "verdicts": [verdict(3, failure())],
    "measures": [{"partition": 3, **COUNTS, "deleted": {"superseded": 6}}],
    "units": [
        {**UNIT, "clean_ms": 1500, "map_slots": 8, "counts": {"deleted": {}, "hidden_bytes": {"3": 60}}},
    ],
}


def test_plain_statsd_gets_topic_and_partition_in_the_name(statsd: UdpSink) -> None:
    send_result("orders.v2", EndedJob("check_quality", CHECKED))
    assert statsd.cleantail(12) == [
        "checks-failed.orders__v2.3.critical:1|c",
        "cleaner-recopy-percent.orders__v2:40.0|g",
        "max-buffer-utilization-percent.orders__v2:25.0|g",
        "max-clean-time-secs.orders__v2:1.5|g",
        "round-bytes-read.orders__v2:100|g",
        "round-bytes-written.orders__v2:40|g",
        "round-invalid-messages-read.orders__v2:0|g",
        "round-map-bytes-read.orders__v2:80|g",
        "round-map-messages-read.orders__v2:8|g",
        "round-messages-read.orders__v2:10|g",
        "round-messages-written.orders__v2:4|g",
        "rounds.orders__v2.3.compact.held_back:1|c",
    ]


def test_statsd_with_tags_gets_them_as_tags(statsd: UdpSink, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.observability import stats
    from airflow.sdk.observability.metrics.stats_utils import get_stats_factory

    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED", "True")
    stats.initialize(factory=get_stats_factory(), export_legacy_names=True)
    send_result("orders", EndedJob("reclaim", {"reclaimed_bytes": 77}))
    assert statsd.cleantail() == ["bytes-reclaimed,topic=orders:77|c"]


def test_what_an_earlier_try_of_a_pack_has_sent_is_not_sent_again(statsd: UdpSink) -> None:
    plain = {"topic": "orders", "compacted": {**CHECKED, "round": "r1", "kind": "compact", "published": [0]}}
    plain["compacted"].pop("units")
    before = TOPIC_OUTCOME_JSON.of_plain(plain, "a test")
    after = replace(before, reclaimed=ReclaimResult((), reclaimed_bytes=77))
    send_outcome(after, after)
    send_outcome(after, before)
    send_result("the-last-one", EndedJob("reclaim", {"reclaimed_bytes": 1}))
    assert statsd.cleantail(2) == ["bytes-reclaimed.orders:77|c", "bytes-reclaimed.the-last-one:1|c"]


def test_a_backend_that_fails_never_fails_the_task(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from airflow.sdk.observability import stats

    monkeypatch.setattr(stats, "incr", lambda *_, **__: 1 / 0)
    send_result("orders", EndedJob("reclaim", {"reclaimed_bytes": 77}))
    assert "metrics were not sent: ZeroDivisionError" in caplog.text


def test_a_result_that_cannot_be_read_never_fails_the_task(caplog: pytest.LogCaptureFixture) -> None:
    send_result("orders", EndedJob("publish", {"published": "all"}))
    assert "metrics were not sent: TableError: the result of publish cannot be read: published" in caplog.text


class OtlpSink(BaseHTTPRequestHandler):
    """Keeps the metrics of every export."""

    def do_POST(self) -> None:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        request = ExportMetricsServiceRequest.FromString(body)
        for resource in request.resource_metrics:
            self.server.found += [metric for scope in resource.scope_metrics for metric in scope.metrics]  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Quietly."""


TASK = """
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory
stats.initialize(factory=get_stats_factory(), export_legacy_names=True)
from cleantail.rounds.job_report import EndedJob
from cleantail_airflow.outcomes.run_metrics import send_result
send_result("orders", EndedJob("check_quality", %r))
"""


def test_opentelemetry_gets_every_metric_with_its_labels_before_the_process_ends() -> None:
    server = HTTPServer(("127.0.0.1", 0), OtlpSink)
    server.found = []  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    more = {
        "AIRFLOW__METRICS__OTEL_ON": "True",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "plugins")]),
    }
    try:
        subprocess.run([sys.executable, "-c", TASK % CHECKED], env=os.environ | more, check=True, timeout=120)
    finally:
        server.shutdown()
    found = {metric.name: metric for metric in server.found}  # type: ignore[attr-defined]
    (kept,) = found["airflow.cleantail.cleaner-recopy-percent"].gauge.data_points
    (rounds,) = found["airflow.cleantail.rounds"].sum.data_points
    assert (kept.as_double, labels(kept)) == (40.0, {"topic": "orders"})
    wanted = {"topic": "orders", "partition": "3", "kind": "compact", "outcome": "held_back"}
    assert (rounds.as_int, labels(rounds)) == (1, wanted)
    assert found["airflow.cleantail.rounds"].sum.is_monotonic


def labels(point: Any) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in point.attributes}

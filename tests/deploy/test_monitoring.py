"""Dashboard and alert rules ask only for metrics that the endpoint has, and Prometheus takes them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cleantail.watch.metrics import METRICS

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "cleantail.json").read_text())
RULES = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"][0]["rules"]
TESTS = yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text())["tests"]
EXPOSED = {metric.exposed: metric for metric in METRICS}


def queries() -> Iterator[tuple[str, str]]:
    """(where, PromQL) of every rule, panel and variable."""
    for rule in RULES:
        yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]


def names(query: str) -> set[str]:
    return set(re.findall(r"\bcleantail_\w+", query))


@pytest.mark.parametrize(("where", "query"), list(queries()))
def test_a_query_names_only_metrics_that_are_exposed_and_their_labels(where: str, query: str) -> None:
    assert names(query) <= set(EXPOSED), where
    labels = {label for name in names(query) for label in EXPOSED[name].labels}
    grouped = {label for found in re.findall(r"\b(?:by|on) \(([^)]*)\)", query) for label in found.split(", ")}
    selected = {label for found in re.findall(r"\{([^}]*)\}", query) for label in re.findall(r"(\w+)=", found)}
    assert grouped | selected <= labels | {"job"}, where


def test_every_exposed_metric_but_two_is_on_the_dashboard_or_in_an_alert() -> None:
    asked = {name for _, query in queries() for name in names(query)}
    assert set(EXPOSED) - asked == {"cleantail_log_records", "cleantail_log_last_round_timestamp_seconds"}


def test_people_read_one_word_for_a_blocked_partition() -> None:
    texts = [
        v
        for panel in DASHBOARD["panels"]
        for v in re.findall(r': "([^"]*)"', json.dumps(panel))
        if "cleantail_" not in v
    ]
    texts += [text for rule in RULES for text in rule["annotations"].values()]
    assert "Blocked partitions" in texts
    assert [text for text in texts if re.search("quarantin|held back", text, re.IGNORECASE)] == []


def test_every_alert_is_tested_to_fire_and_says_what_to_do() -> None:
    fired = {case["alertname"] for test in TESTS for case in test["alert_rule_test"] if case["exp_alerts"]}
    assert fired == {rule["alert"] for rule in RULES}
    assert all(rule["annotations"]["description"].endswith(".") for rule in RULES)
    assert {rule["labels"]["severity"] for rule in RULES} <= {"info", "warning", "critical"}


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_panels_name_only_the_data_source_variable() -> None:
    assert set(re.findall(r'"uid": "([^"]*)"', json.dumps(DASHBOARD))) == {"${datasource}", "cleantail"}


def test_the_scrape_goes_where_the_plugin_serves_and_by_the_token() -> None:
    (scrape,) = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["scrape_configs"]
    assert scrape["metrics_path"] == "/cleantail/metrics"
    assert scrape["authorization"] == {"type": "Bearer", "credentials_file": "metrics_token"}
    assert re.search(rf'job="{scrape["job_name"]}"', RULES[0]["expr"])


needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool (Debian: prometheus)")


def promtool(place: Path, *command: str) -> None:
    done = subprocess.run(["promtool", *command], cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_prometheus_takes_the_rules_and_they_fire_as_they_should() -> None:
    promtool(PROMETHEUS, "check", "rules", "alerts.yml")
    promtool(PROMETHEUS, "test", "rules", "alerts_test.yml")


@needs_promtool
def test_prometheus_takes_every_query_of_the_dashboard(tmp_path: Path) -> None:
    asked = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    rules = [{"record": f"panel:{n}", "expr": query.replace("$topic", ".*")} for n, query in enumerate(asked)]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    promtool(tmp_path, "check", "rules", "panels.yml")

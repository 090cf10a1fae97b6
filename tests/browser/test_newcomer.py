"""What a newcomer does in the UI: find the dirtiest topic, understand a red check, release, approve, undo."""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request

import pytest

from tests.browser.conftest import ADMIN, VIEWER, shoot

SLOW_MS = 30_000


@pytest.mark.parametrize("path", ["/cleantail/topics", "/cleantail/topics/payments", "/cleantail/metrics"])
def test_nobody_sees_anything_without_login(office, visit, path):
    page = visit(None)
    page.goto(office.address + path)
    page.wait_for_timeout(2000)
    shown = page.inner_text("body")
    assert "payments" not in shown
    assert "orders" not in shown
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(office.address + path, timeout=30)
    assert refused.value.code in (401, 403)


def test_the_way_of_a_newcomer(office, visit):
    page = visit(ADMIN)
    # the dirtiest topic is the first one
    page.goto(office.address)
    page.get_by_role("link", name="Compaction").or_(page.get_by_text("Compaction", exact=True)).first.click()
    topics = page.frame_locator("iframe").first
    topics.locator("#topics tbody tr").first.wait_for(timeout=SLOW_MS)
    shoot(page, "topics-page")
    rows = topics.locator("#topics tbody tr th a")
    assert rows.all_inner_texts() == ["payments", "orders", "customers"]
    assert "dirty ratio" in topics.locator("#topics tbody tr").first.inner_text()
    # why customers is left alone
    assert "not above" in page_of(office, page, "customers").inner_text("section.log")

    # a red check, by the button that Airflow has for it
    trigger(office, page, "payments")
    assert office.wait("payments", ended) == "failed"
    text = page_of(office, page, "payments").inner_text("body")
    assert "In quarantine" in text
    assert "expect_column_values_to_match_regex" in text
    assert "9 is no letter" in text
    on_tab(office, page, "payments")
    shoot(page, "topic-page")

    # the alert came once, and leads to where it happened
    [told] = office.posted
    assert "partition 1" in str(told)
    for link in re.findall(r"http://[^\s\"'\\]+", str(told)):
        page.goto(link)
        page.wait_for_selector("text=payments", timeout=SLOW_MS)

    # release, correct the check, and it is over
    page_of(office, page, "payments")
    page.get_by_text("Release…").click()
    page.get_by_role("button", name="Release partition 1").click()
    page.wait_for_selector("text=Partition 1 is out of quarantine")
    assert "In quarantine" not in page.inner_text("body")
    office.topic("payments", alerts=[{"type": "webhook", "conn_id": "sink", "endpoint": "alerts"}])
    time.sleep(75)  # Airflow reads the files again every half minute
    trigger(office, page, "payments")
    assert office.wait("payments", ended) == "success"
    assert len(office.posted) == 2
    assert "over" in str(office.posted[1]).lower()


def test_a_held_round_is_approved_and_undone(office, visit):
    page = visit(ADMIN)
    trigger(office, page, "orders")
    page.goto(f"{office.address}/required_actions")  # Browse -> Required Actions
    page.get_by_role("link", name="100 records would go from 1 partition").click(timeout=120_000)
    approve = page.get_by_role("button", name="Approve", exact=True)
    approve.wait_for(timeout=SLOW_MS)
    shoot(page, "approval")
    assert "order-1" in page.inner_text("body")
    approve.click()
    assert office.wait("orders", ended) == "success"
    assert "clean 0–300" in words(page_of(office, page, "orders").inner_text("section.log"))

    trigger(office, page, "orders", rollback_to="last")
    assert office.wait("orders", ended) == "success"
    assert "clean 0–200" in words(page_of(office, page, "orders").inner_text("section.log"))
    shoot(page, "after-rollback")


def test_a_viewer_sees_everything_and_changes_nothing(office, visit):
    page = visit(VIEWER)
    text = page_of(office, page, "payments").inner_text("body")
    assert "Configuration in force" in text
    assert page.locator("form, button[type=submit]").count() == 0
    answer = page.request.post(f"{office.address}/cleantail/topics/payments/partitions/1/release")
    assert answer.status == 403


@pytest.mark.parametrize("width", [1400, 800])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nothing_is_cut_off_and_everything_can_be_read(office, visit, width, dark):
    page = visit(ADMIN, width, dark)
    for path in ("topics", "topics/payments"):
        page.goto(f"{office.address}/cleantail/{path}")
        page.wait_for_selector("h1")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        seen = page.evaluate("[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]")
        assert contrast(*seen) >= 7
        shoot(page, f"{path.replace('/', '-')}-{width}-{'dark' if dark else 'light'}")


def ended(run):
    return run["state"] in ("success", "failed") and run["state"]


def page_of(office, page, topic):
    page.goto(f"{office.address}/cleantail/topics/{topic}")
    page.wait_for_selector("h1", timeout=SLOW_MS)
    return page


def on_tab(office, page, topic):
    """The same inside Airflow: the topic's DAG, its tab Compaction."""
    page.goto(f"{office.address}/dags/{topic}")
    page.get_by_role("link", name="Compaction").last.click()
    page.frame_locator("iframe").first.locator("h1").wait_for(timeout=SLOW_MS)
    page.frame_locator("iframe").first.locator("#logs").scroll_into_view_if_needed()


def trigger(office, page, dag_id, **params):
    """By the button and the form, as a person does it; with parameters, which the form has as fields."""
    before = len(office.api._call(f"/api/v2/dags/{dag_id}/dagRuns")["dag_runs"])
    page.goto(f"{office.address}/dags/{dag_id}")
    page.get_by_role("button", name="Trigger").first.click()
    for name, value in params.items():
        page.locator(f"[name='element_{name}']").fill(value)
    page.get_by_role("dialog").get_by_role("button", name="Trigger").last.click()
    end = time.monotonic() + 30
    while len(office.api._call(f"/api/v2/dags/{dag_id}/dagRuns")["dag_runs"]) == before:
        assert time.monotonic() < end, f"{dag_id} was not triggered"
        time.sleep(0.5)


def words(text):
    return " ".join(text.split())


def contrast(one, other):
    """The ratio of WCAG 2 between two CSS colours."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour):
    parts = [int(n) / 255 for n in re.findall(r"\d+", colour)[:3]]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

"""What a newcomer does in the UI: find the dirtiest topic, understand a red check, release, approve, undo."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from urllib.parse import quote

import pytest

from demo.airflow_api import AirflowApi
from tests.browser.conftest import ADMIN, PASSWORDS, RUN_WITHIN_S, VIEWER, shoot

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
    assert "Blocked by a failed check" in text
    assert "expect_column_values_to_match_regex" in text
    assert "9 is no letter" not in text  # what records hold is shown to whoever asks for it
    page.get_by_role("link", name="Show the records").first.click()
    page.get_by_text("9 is no letter").first.wait_for(timeout=SLOW_MS)
    on_tab(office, page, "payments")
    shoot(page, "topic-page")
    shows_where_and_what(page_of(office, page, "payments"))
    a_viewer_changes_nothing(office, visit(VIEWER))

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
    page.wait_for_selector("text=Partition 1 is no longer blocked")
    assert "Blocked by a failed check" not in page.inner_text("body")
    office.topic("payments", alerts=[{"type": "webhook", "conn_id": "cleantail_sink", "endpoint": "alerts"}])
    time.sleep(75)  # Airflow reads the files again every half minute
    trigger(office, page, "payments")
    assert office.wait("payments", ended) == "success"
    assert len(office.posted) == 2
    assert "over" in str(office.posted[1]).lower()


def test_a_held_round_is_approved_and_undone(office, visit):
    page = visit(ADMIN)
    trigger(office, page, "orders")
    the_page_leads_to_the_question(office, page)
    open_the_question(office, page)
    approve = page.get_by_role("button", name="Approve", exact=True)
    approve.wait_for(timeout=SLOW_MS)
    shoot(page, "approval")
    assert "of its key stays" in page.inner_text("body")
    assert "order-1" not in page.inner_text("body")
    records = page.context.new_page()
    records.goto(page.get_by_role("link", name="show the records").get_attribute("href"))
    records.get_by_text("order-1").first.wait_for(timeout=SLOW_MS)
    shoot(records, "records-of-a-round")
    approve.click()
    assert office.wait("orders", ended) == "success"
    assert "clean 0–300" in words(page_of(office, page, "orders").inner_text("section.log"))

    trigger(office, page, "orders", rollback_to="last")
    assert office.wait("orders", ended) == "success"
    assert "clean 0–200" in words(page_of(office, page, "orders").inner_text("section.log"))
    shoot(page, "after-rollback")

    # the same round again, and a no
    trigger(office, page, "orders")
    open_the_question(office, page)
    reject = page.get_by_role("button", name="Reject", exact=True)
    reject.wait_for(timeout=SLOW_MS)
    [waiting] = [run["dag_run_id"] for run in office.runs("orders") if run["state"] == "running"]
    answer = f"/api/v2/dags/orders/dagRuns/{quote(waiting)}/taskInstances/approve/-1/hitlDetails"
    yes = {"chosen_options": ["Approve"], "params_input": {}}
    assert refusal(office, VIEWER, answer, yes, "PATCH") == 403
    reject.click()
    assert office.wait("orders", ended) == "success"
    text = words(page_of(office, page, "orders").inner_text("body"))
    assert "clean 0–200" in text
    assert "Blocked by a person's answer" in text
    assert "rejected by admin" in text
    newest = page.locator("ol.rounds > li").first
    assert "rejected" in newest.inner_text()
    assert "nothing dropped" in newest.inner_text()
    shoot(page, "after-rejection")


def shows_where_and_what(page):
    """Offsets under the pointer, the rounds with what their checks observed, and the way to Data Docs."""
    bar = page.locator("section.log svg rect:not(.mark)").first
    bar.hover()
    assert re.search(r"offsets [0-9,]+ to [0-9,]+ \(end exclusive\)", bar.locator("title").text_content())
    page.get_by_text("check results").first.click()
    shown = page.locator("ol.rounds > li").first.inner_text()
    assert "duplicate_keys" in shown
    assert "0 violations" in shown
    page.get_by_role("link", name=re.compile("partition 1 · failed")).first.click()
    page.wait_for_load_state()
    assert "/docs/" in page.url
    assert "payments, partition 1: failed" in page.inner_text("body")
    page.get_by_role("link", name="All validations of payments").click()
    page.get_by_role("link", name="partition 0", exact=True).wait_for()


def a_viewer_changes_nothing(office, page):
    """While there is something to change. The same requests as the page's and the UI's own, from their origin."""
    text = page_of(office, page, "payments").inner_text("body")
    assert "Blocked by a failed check" in text
    assert "Only users who may edit the DAG can release it." in text
    assert page.locator("form, button[type=submit]").count() == 0
    release = f"{office.address}/cleantail/topics/payments/partitions/1/release"
    assert page.request.post(release, headers={"Origin": office.address}).status == 403
    assert refusal(office, VIEWER, "/api/v2/dags/payments/dagRuns", {"logical_date": None, "conf": {}}) == 403
    assert "Blocked by a failed check" in page_of(office, page, "payments").inner_text("body")


def test_all_topics_are_found_sorted_and_opened_by_keyboard(office, visit):
    page = visit(ADMIN)
    page.goto(f"{office.address}/cleantail/topics")
    page.locator("#search").focus()
    page.keyboard.type("custom")
    assert visible(page) == ["customers"]
    assert page.inner_text("#shown") == "1 of 3 shown"
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.press("Delete")
    assert len(visible(page)) == 3

    page.keyboard.press("Tab")  # to the first of the states
    chip = page.evaluate("document.activeElement.dataset.filter")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Space")
    states = page.locator("#topics tbody tr:visible").evaluate_all("rows => rows.map(row => row.dataset.state)")
    assert set(states) == {chip}
    page.keyboard.press("Space")
    assert len(visible(page)) == 3

    page.get_by_role("button", name="Topic", exact=True).focus()
    page.keyboard.press("Enter")
    assert visible(page) == ["customers", "orders", "payments"]
    page.keyboard.press("Enter")
    assert visible(page) == ["payments", "orders", "customers"]
    assert page.locator("th[aria-sort=descending]").inner_text() == "Topic"

    page.get_by_role("link", name="orders").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:text('orders')")
    summary = page.locator("ol.rounds > li summary").first
    before = page.locator("ol.rounds > li details").first.get_attribute("open")
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator("ol.rounds > li details").first.get_attribute("open") != before


def test_the_theme_is_the_one_chosen_in_airflow_whatever_the_system_wants(office, visit):
    page = visit(ADMIN, dark=False)
    for theme, dark in (("dark", True), ("light", False)):
        page.goto(f"{office.address}/cleantail/topics")
        page.evaluate("theme => localStorage.setItem('theme', theme)", theme)
        page.reload()
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (luminance(ground) < 0.2) is dark


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
        badges = page.locator(".state").evaluate_all(
            "all => all.map(one => [getComputedStyle(one).color, getComputedStyle(one).backgroundColor])"
        )
        assert badges
        assert min(contrast(*colours) for colours in badges) >= 4.5
        shoot(page, f"{path.replace('/', '-')}-{width}-{'dark' if dark else 'light'}")


def visible(page):
    """The names of the topics that are shown, in their order."""
    return page.locator("#topics tbody tr:visible th a").all_inner_texts()


def refusal(office, user, path, body, method="POST"):
    """The status with which the API refuses this to a user; a request that is taken is an error."""
    token = AirflowApi(office.port, PASSWORDS[user], user).token
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(office.address + path, json.dumps(body).encode(), headers, method=method)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    return refused.value.code


def ended(run):
    return run["state"] in ("success", "failed") and run["state"]


def page_of(office, page, topic):
    page.goto(f"{office.address}/cleantail/topics/{topic}")
    page.wait_for_selector("h1", timeout=SLOW_MS)
    return page


def on_tab(office, page, topic):
    """The same inside Airflow: the topic's DAG, its tab Compaction."""
    page.goto(f"{office.address}/dags/{topic}")
    # the first is in the navigation, which is there before the DAG's tabs
    page.get_by_role("link", name="Compaction").nth(1).click()
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


def the_page_leads_to_the_question(office, page):
    """From the tab inside Airflow, whose frame a link has to leave."""
    end = time.monotonic() + RUN_WITHIN_S
    while "A round waits for approval" not in page_of(office, page, "orders").inner_text("body"):
        assert time.monotonic() < end, "the page does not say that the run waits for a person"
        time.sleep(2)
    page.goto(f"{office.address}/cleantail/topics")
    assert "waits for approval" in page.locator("#topics tbody tr", has_text="orders").inner_text()
    on_tab(office, page, "orders")
    page.frame_locator("iframe").first.get_by_role("link", name="Required Actions").click()
    page.wait_for_url("**/required_actions**", timeout=SLOW_MS)


def open_the_question(office, page):
    """Browse -> Required Actions, which does not load again by itself, once the run waits there."""
    from playwright.sync_api import TimeoutError as WaitedTooLong

    end = time.monotonic() + RUN_WITHIN_S
    question = page.get_by_role("link", name="100 records would be removed from 1 partition").first
    while True:
        page.goto(f"{office.address}/required_actions?response_received=false")
        try:
            question.click(timeout=5_000)
            return
        except WaitedTooLong:
            shoot(page, "required-actions")
            assert time.monotonic() < end, "the run does not wait for a person"


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

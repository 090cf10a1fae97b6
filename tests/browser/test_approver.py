"""The way of an approver: approve, undo, reject, and no answer."""

from __future__ import annotations

from urllib.parse import quote

from tests.browser.office import ADMIN, VIEWER, ended
from tests.browser.steps import on_tab, open_the_question, page_of, picture, shoot, trigger, waits, words


def test_a_round_is_approved_then_undone_then_rejected(office, visit):
    page = visit(ADMIN)
    trigger(office, page, "orders")
    the_page_leads_to_the_question(office, page)
    open_the_question(office, page)
    picture(page, "approval")
    assert "of its key stays" in page.inner_text("body")
    assert "order-1" not in page.inner_text("body")
    records = page.context.new_page()
    records.goto(page.get_by_role("link", name="show the records").get_attribute("href"))
    records.get_by_text("order-1").first.wait_for()
    shoot(records, "records-of-a-round", full_page=True)
    page.get_by_role("button", name="Approve", exact=True).click()
    assert office.wait("orders", ended) == "success"
    assert "clean 0–300" in words(page_of(office, page, "orders").inner_text("section.log"))
    assert "approved by admin" in page.locator("ol.rounds > li").first.inner_text()

    trigger(office, page, "orders", rollback_to="last")
    assert office.wait("orders", ended) == "success"
    assert "clean 0–200" in words(page_of(office, page, "orders").inner_text("section.log"))
    shoot(page, "after-rollback", full_page=True)

    # the same round again, and a no
    trigger(office, page, "orders")
    open_the_question(office, page)
    [waiting] = [run["dag_run_id"] for run in office.runs("orders") if run["state"] == "running"]
    answer = f"/api/v2/dags/orders/dagRuns/{quote(waiting)}/taskInstances/approve/-1/hitlDetails"
    yes = {"chosen_options": ["Approve"], "params_input": {}}
    assert office.refusal(VIEWER, answer, yes, "PATCH") == 403
    page.get_by_role("button", name="Reject", exact=True).click()
    assert office.wait("orders", ended) == "success"
    text = words(page_of(office, page, "orders").inner_text("body"))
    assert "clean 0–200" in text
    assert "Blocked by a person's answer" in text
    assert "rejected by admin" in text
    newest = page.locator("ol.rounds > li").first
    assert "rejected" in newest.inner_text()
    assert "nothing dropped" in newest.inner_text()
    shoot(page, "after-rejection", full_page=True)


def test_a_round_without_an_answer_is_not_published(office, visit):
    page = visit(ADMIN)
    trigger(office, page, "invoices")
    assert office.wait("invoices", ended) == "success"
    text = words(page_of(office, page, "invoices").inner_text("body"))
    shoot(page, "no-answer", full_page=True)
    assert "not approved in time" in text
    assert "Blocked because no person answered" in text
    assert "a person's answer" not in text
    assert "clean 0–" not in text
    newest = page.locator("ol.rounds > li").first.inner_text()
    assert "dropped unanswered" in newest
    assert "nothing dropped" in newest


def the_page_leads_to_the_question(office, page):
    """The approver begins in the tab inside Airflow. Links have to leave its frame."""
    office.until(lambda: waits(office, page), "the page does not say that the run waits for a person")
    shoot(page, "waits-for-approval", full_page=True)
    page.goto(f"{office.address}/cleantail/topics")
    assert "waits for approval" in page.locator("#topics tbody tr", has_text="orders").inner_text()
    on_tab(office, page, "orders").get_by_role("link", name="Required Actions").click()
    page.wait_for_url("**/required_actions**")

"""The rights of three: without a login, a viewer of all topics, and a user with rights on one topic of a group."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

from tests.browser.office import GROUP, IN_KAFKA, OF_ONE_TOPIC, THE_ONE_TOPIC, VIEWER
from tests.browser.steps import page_of, shoot

HIDDEN = ("payments", "orders", "invoices", "customers", "coupons", IN_KAFKA)


@pytest.mark.parametrize("path", ["/cleantail/topics", "/cleantail/topics/payments", "/cleantail/metrics"])
def test_a_visitor_without_a_login_sees_no_topic(office, visit, path):
    page = visit(None)
    page.goto(office.address + path)
    page.wait_for_selector("input[name=username]")
    shown = page.inner_text("body")
    assert "payments" not in shown
    assert "orders" not in shown
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(office.address + path, timeout=30)
    assert refused.value.code in (401, 403)


def test_a_viewer_sees_all_topics_and_changes_nothing(office, visit):
    page = visit(VIEWER)
    text = page_of(office, page, THE_ONE_TOPIC).inner_text("body")
    assert "Blocked by a failed check" in text
    assert "Only users who may edit the topic can release it." in text
    assert page.locator("form, button[type=submit]").count() == 0
    assert release(office, page, THE_ONE_TOPIC).status == 403
    assert office.refusal(VIEWER, "/api/v2/dags/payments/dagRuns", {"logical_date": None, "conf": {}}) == 403
    assert "Blocked by a failed check" in page_of(office, page, THE_ONE_TOPIC).inner_text("body")


def test_the_topics_of_a_group_are_filtered_at_each_key(office, visit):
    page = page_of(office, visit(VIEWER), GROUP)
    assert page.inner_text("#shown") == ""
    page.fill("#search", "coup")
    assert page.locator("#topics tbody tr:visible th a").all_inner_texts() == ["coupons"]
    assert page.inner_text("#shown") == "1 of 2 shown"


def test_rights_on_one_topic_of_a_group_show_only_that_topic(office, visit):
    page = visit(OF_ONE_TOPIC)
    page.get_by_role("link", name="Compaction").first.click()
    topics = page.frame_locator("iframe").first
    topics.locator("#topics tbody tr").first.wait_for()
    shoot(page, "one-topic-list")
    assert topics.locator("#topics tbody tr th a").all_inner_texts() == [THE_ONE_TOPIC]
    assert not [name for name in HIDDEN if name in topics.locator("body").inner_text()]

    for other in (*HIDDEN, GROUP):
        answer = page.goto(f"{office.address}/cleantail/topics/{other}")
        assert answer.status == 403
        assert page.inner_text("h1") == "Not allowed"
        assert page.locator("form, button").count() == 0
        assert release(office, page, other).status == 403
    shoot(page, "one-topic-refused")

    page_of(office, page, THE_ONE_TOPIC)
    shoot(page, "one-topic", full_page=True)
    assert page.get_by_role("link", name=f"Group {GROUP}").count() == 0  # a page that refuses this user
    assert page.locator(f"a[href*='/dags/{GROUP}']").count() == 0
    page.get_by_text("Release…").click()
    page.get_by_role("button", name="Release partition 0").click()
    page.wait_for_selector("text=Partition 0 is no longer blocked")


def release(office, page, topic):
    """The same request as the page's, from its origin."""
    path = f"{office.address}/cleantail/topics/{topic}/partitions/0/release"
    return page.request.post(path, headers={"Origin": office.address})

"""What a newcomer does in the UI: find the topic that needs them, understand a red check, release, correct, run again."""

from __future__ import annotations

import re

import pytest

from tests.browser.office import ADMIN, ALERTS, GROUP, IN_KAFKA, THE_ONE_TOPIC, UNREAD, ended, record
from tests.browser.steps import on_tab, page_of, picture, shoot, trigger, words


def test_the_way_of_a_newcomer(office, visit):
    page = visit(ADMIN)
    # topics that need a person are first, then the dirtiest
    page.goto(office.address)
    page.get_by_role("link", name="Compaction").or_(page.get_by_text("Compaction", exact=True)).first.click()
    topics = page.frame_locator("iframe").first
    topics.locator("#topics tbody tr").first.wait_for()
    order = topics.locator("[data-filter]").evaluate_all("chips => chips.map(chip => chip.dataset.filter)")
    states = topics.locator("#topics tbody tr").evaluate_all("rows => rows.map(row => row.dataset.state)")
    assert states == sorted(states, key=order.index)
    assert "dirty ratio" in topics.locator("#topics tbody tr", has_text="payments").inner_text()
    shoot(page, "topics-at-first")
    # what is left to read from Kafka
    behind = topics.locator("#topics tbody tr", has_text=IN_KAFKA)
    assert f"{UNREAD} offsets" in behind.inner_text()
    source = words(page_of(office, page, IN_KAFKA).inner_text("body"))
    assert f"{UNREAD} offsets behind the brokers" in source
    shoot(page, "behind-its-source", full_page=True)
    # why customers is left alone
    assert "not above" in page_of(office, page, "customers").inner_text("section.log")
    shoot(page, "healthy-at-first", full_page=True)

    # a file lands: a green run, and a red check, by the button that Airflow has for it
    office.lines("customers", [record(p, 2000 + i, f"customer-{i % 300}") for p in range(3) for i in range(1200)])
    trigger(office, page, "customers")
    trigger(office, page, "payments")
    assert office.wait("customers", ended) == "success"
    page.goto(f"{office.address}/dags/customers/runs/{office.runs('customers')[0]['dag_run_id']}")
    page.get_by_role("link", name="check_quality").last.wait_for()
    picture(page, "airflow-ui")
    assert "clean 0–3,200" in words(on_tab(office, page, "customers").locator("section.log").first.inner_text())
    picture(page, "topic-page")
    assert office.wait("payments", ended) == "failed"
    page.get_by_role("link", name="Compaction").first.click()
    topics.locator("#topics tbody tr", has_text="failed").first.wait_for()
    picture(page, "topics-page")
    text = page_of(office, page, "payments").inner_text("body")
    assert "Blocked by a failed check" in text
    assert "expect_column_values_to_match_regex" in text
    assert "9 is no letter" not in text  # what records hold is shown to whoever asks for it
    page.get_by_role("link", name="Show the records").first.click()
    page.get_by_text("9 is no letter").first.wait_for()
    shoot(page, "records-that-failed", full_page=True)
    on_tab(office, page, "payments").locator("#logs").scroll_into_view_if_needed()
    shoot(page, "sick-on-its-tab")
    page_of(office, page, "payments")
    picture(page, "topic-blocked")
    assert page.locator("figure .cross").count() > 0
    assert page.locator(".multiples .cross").count() == 0  # its rounds are those that published the partition
    shows_where_and_what(page)

    # the alert came once, and leads to where it happened
    [told] = office.posted
    assert "partition 1" in str(told)
    for link in re.findall(r"http://[^\s\"'\\]+", str(told)):
        page.goto(link)
        page.wait_for_selector("text=payments")

    # release, correct the check, and it is over
    page_of(office, page, "payments")
    page.get_by_text("Release…").click()
    page.get_by_role("button", name="Release partition 1").click()
    page.wait_for_selector("text=Partition 1 is no longer blocked")
    assert "Blocked by a failed check" not in page.inner_text("body")
    shoot(page, "after-release", full_page=True)
    office.topic("payments", alerts=ALERTS)
    office.reparsed("payments")
    trigger(office, page, "payments")
    assert office.wait("payments", ended) == "success"
    assert len(office.posted) == 2
    assert "over" in str(office.posted[1]).lower()
    page_of(office, page, "payments")
    shoot(page, "healed", full_page=True)


def test_all_topics_are_found_sorted_and_opened_by_keyboard(office, visit):
    page = visit(ADMIN)
    page.goto(f"{office.address}/cleantail/topics")
    page.locator("#search").focus()
    page.keyboard.type("custom")
    assert visible(page) == ["customers"]
    assert page.inner_text("#shown") == "1 of 7 shown"
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.press("Delete")
    assert len(visible(page)) == 7

    page.keyboard.press("Tab")  # to the groups
    page.keyboard.press("Tab")  # to the first of the states
    chip = page.evaluate("document.activeElement.dataset.filter")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Space")
    states = page.locator("#topics tbody tr:visible").evaluate_all("rows => rows.map(row => row.dataset.state)")
    assert set(states) == {chip}
    page.keyboard.press("Space")
    assert len(visible(page)) == 7

    page.get_by_role("button", name="Topic", exact=True).focus()
    page.keyboard.press("Enter")
    assert visible(page) == sorted(visible(page))
    page.keyboard.press("Enter")
    assert visible(page) == sorted(visible(page), reverse=True)
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


COLOURS_OF_TEXTS = """() => [...document.querySelectorAll("body *")].flatMap(one => {
  const text = [...one.childNodes].filter(n => n.nodeType === 3).map(n => n.data.trim()).join(" ").trim();
  if (!text || !one.checkVisibility({visibilityProperty: true}) || one.closest("title")) return [];
  let ground = one;
  while (getComputedStyle(ground).backgroundColor === "rgba(0, 0, 0, 0)") ground = ground.parentElement;
  const style = getComputedStyle(one);
  return [[text, one.ownerSVGElement ? style.fill : style.color, getComputedStyle(ground).backgroundColor]];
})"""
"""Every text that is shown, with its colour and that of the ground below it."""


@pytest.mark.parametrize("width", [1400, 800])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nothing_is_cut_off_and_everything_can_be_read(office, visit, width, dark):
    page = visit(ADMIN, width, dark)
    for path in ("topics", "topics/payments", f"topics/{THE_ONE_TOPIC}", f"topics/{GROUP}", "glossary"):
        page.goto(f"{office.address}/cleantail/{path}")
        page.wait_for_selector("h1")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        texts = page.evaluate(COLOURS_OF_TEXTS)
        assert texts
        assert [(text, *colours) for text, *colours in texts if contrast(*colours) < 4.5] == []
        shoot(page, f"{path.replace('/', '-')}-{width}-{'dark' if dark else 'light'}", full_page=True)


def visible(page):
    """The names of the topics that are shown, in their order."""
    return page.locator("#topics tbody tr:visible th a").all_inner_texts()


def contrast(one, other):
    """The ratio of WCAG 2 between two CSS colours."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour):
    parts = [int(n) / 255 for n in re.findall(r"\d+", colour)[:3]]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


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

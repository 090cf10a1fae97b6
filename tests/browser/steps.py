"""The steps of a person in the UI, which several ways have."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.browser.office import ROOT, Office

SCREENSHOTS, PICTURES = "CLEANTAIL_SCREENSHOTS", "CLEANTAIL_PICTURES"
MOST_BYTES = 200_000
SLOW_MS = 180_000
"""Maximum wait for anything that a browser shows."""


def shoot(page: Any, name: str, **options: Any) -> None:
    """Save a screenshot in the folder of CLEANTAIL_SCREENSHOTS, if it is set."""
    if folder := os.environ.get(SCREENSHOTS):
        page.screenshot(path=str(Path(folder) / f"{name}.png"), **options)


def picture(page: Any, name: str) -> None:
    """Take a picture of the docs, if `make pictures` runs."""
    shoot(page, name)
    if os.environ.get(PICTURES):
        file = ROOT / "docs" / f"{name}.png"
        page.screenshot(path=str(file))
        assert file.stat().st_size <= MOST_BYTES, f"{file} is too large for the docs"


def page_of(office: Office, page: Any, topic: str) -> Any:
    """Open the topic's own page, outside Airflow's frame."""
    page.goto(f"{office.address}/cleantail/topics/{topic}")
    page.wait_for_selector("h1")
    return page


def on_tab(office: Office, page: Any, topic: str) -> Any:
    """Open the same inside Airflow: the topic's DAG, its tab Compaction. Return the frame."""
    page.goto(f"{office.address}/dags/{topic}")
    # the first is in the navigation, which is there before the DAG's tabs
    page.get_by_role("link", name="Compaction").nth(1).click()
    frame = page.frame_locator("iframe").first
    frame.locator("h1").wait_for()
    return frame


def trigger(office: Office, page: Any, dag_id: str, **params: str) -> None:
    """Trigger by the button and the form. Parameters are fields of the form."""
    before = len(office.runs(dag_id))
    page.goto(f"{office.address}/dags/{dag_id}")
    page.get_by_role("button", name="Trigger").first.click()
    for name, value in params.items():
        page.locator(f"[name='element_{name}']").fill(value)
    page.get_by_role("dialog").get_by_role("button", name="Trigger").last.click()
    office.until(lambda: len(office.runs(dag_id)) > before, f"{dag_id} was not triggered")


def open_the_question(office: Office, page: Any) -> None:
    """Browse -> Required Actions, which does not load again by itself, once the run waits there."""
    office.until(lambda: waits(office, page), "the topic's page does not say that a round waits for approval")
    page.goto(f"{office.address}/required_actions?response_received=false")
    page.get_by_role("link", name="100 records would be removed from 1 partition").first.click()
    page.get_by_role("button", name="Approve", exact=True).wait_for()


def waits(office: Office, page: Any) -> bool:
    return "A round waits for approval" in page_of(office, page, "orders").inner_text("body")


def words(text: str) -> str:
    return " ".join(text.split())

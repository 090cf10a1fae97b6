"""A real Airflow, and a real browser. Runs where CLEANTAIL_BROWSER names a Chromium: `make test-browser`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.home import free_port
from differential.broker import kafka_jars, running_broker
from tests.browser.office import PASSWORDS, Office, alert_sink, furnish
from tests.browser.steps import SLOW_MS

BROWSER = "CLEANTAIL_BROWSER"
JARS = kafka_jars(os.environ)
"""Read when the module is imported: the session's own CLEANTAIL_HOME has no jars."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not os.environ.get(BROWSER):
        if BROWSER in os.environ:
            raise pytest.UsageError(f"{BROWSER} is empty: it names no Chromium")
        skip = pytest.mark.skip(reason=f"{BROWSER} names no Chromium: see `make test-browser`")
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(skip)


@pytest.fixture(scope="session")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    made = Office(tmp_path_factory.mktemp("office"), free_port())
    with running_broker(tmp_path_factory.mktemp("broker"), JARS) as broker:
        furnish(made, broker.address)
        sink = alert_sink(made)
        try:
            made.open(sink)
            yield made
        finally:
            made.airflow("down")
            sink.shutdown()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as made:
        yield made.chromium.launch(executable_path=os.environ[BROWSER], args=["--no-sandbox"], timeout=SLOW_MS)


@pytest.fixture
def visit(chromium: Any, office: Office) -> Iterator[Callable[..., Any]]:
    """Return a function that opens a page: for a user, who logs in by the form, or without a login."""
    contexts = []

    def as_user(user: str | None, width: int = 1500, dark: bool = False) -> Any:
        scheme = "dark" if dark else "light"
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        context.set_default_timeout(SLOW_MS)
        contexts.append(context)
        page = context.new_page()
        if user:
            page.goto(office.address)
            page.fill("input[name=username]", user)
            page.fill("input[name=password]", PASSWORDS[user])
            page.keyboard.press("Enter")
            page.get_by_role("link", name="Dags").first.wait_for()
        return page

    yield as_user
    for context in contexts:
        context.close()

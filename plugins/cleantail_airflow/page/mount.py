"""The page in the Airflow UI as Airflow loads it: where it is mounted and where the UI shows it.

Every Airflow process imports the plugins, only the API server needs the page: the application is built at its first
request.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

PREFIX = "/cleantail"
HREF = PREFIX.removeprefix("/")
"""Relative to the UI's base address, which may have a path of its own."""


class Page:
    """Is an ASGI application that becomes the real one when it is first asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._app: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)

    @property
    def app(self) -> Any:
        """Returns the FastAPI application; the first request builds it."""
        with self._lock:
            if self._app is None:
                from cleantail_airflow.page.application import build_app

                self._app = build_app()
            return self._app


FASTAPI_APPS = [{"app": Page(), "url_prefix": PREFIX, "name": "Cleantail"}]
_ICON = {"icon": f"{HREF}/static/icon.svg", "icon_dark_mode": f"{HREF}/static/icon-dark.svg"}
EXTERNAL_VIEWS = [
    {
        "name": "Compaction",
        "href": f"{HREF}/topics",
        "destination": "nav",
        "url_route": "cleantail",
        "nav_top_level": True,
        **_ICON,
    },
    {
        "name": "Compaction",
        "href": f"{HREF}/topics/{{DAG_ID}}",
        "destination": "dag",
        "url_route": "compaction",
        **_ICON,
    },
]

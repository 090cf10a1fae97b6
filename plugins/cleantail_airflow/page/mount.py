"""Where Airflow mounts the pages, and where its UI shows them.

Every Airflow process imports the plugins, but only the API server needs the pages. So the first request builds the
application.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from cleantail_airflow.installation import PREFIX

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

HREF = PREFIX.removeprefix("/")
"""Relative to the UI's base address, which may have a path."""


class LazyPage:
    """ASGI application that builds the FastAPI application at the first request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._app: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)

    @property
    def app(self) -> Any:
        with self._lock:
            if self._app is None:
                from cleantail_airflow.page.application import build_app

                self._app = build_app()
            return self._app


FASTAPI_APPS = [{"app": LazyPage(), "url_prefix": PREFIX, "name": "Cleantail"}]
_ICON = {"icon": f"{HREF}/static/icon.svg", "icon_dark_mode": f"{HREF}/static/icon-dark.svg"}
EXTERNAL_VIEWS = [
    {
        "name": "Compaction",
        "href": f"{HREF}/loading/topics",
        "destination": "nav",
        "url_route": "cleantail",
        "nav_top_level": True,
        **_ICON,
    },
    {
        "name": "Compaction",
        "href": f"{HREF}/loading/topics/{{DAG_ID}}",
        "destination": "dag",
        "url_route": "compaction",
        **_ICON,
    },
]

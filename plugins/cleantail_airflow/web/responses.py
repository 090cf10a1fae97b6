"""Says what every answer of the page has in common: its headers, the way to the login, pages of templates, static
files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import HTTPException, Request, Response, status
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse

from cleantail.config.topic import dag_id_of
from cleantail.errors import ConfigError
from cleantail_airflow.page.page_access import login_url, ui_root
from cleantail_airflow.page.page_content import Content
from cleantail_airflow.page.page_templates import STATIC, TEMPLATES

STATIC_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
CONTENT_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; form-action 'self'"
HEADERS = {
    "Content-Security-Policy": f"{CONTENT_POLICY}; base-uri 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}


async def with_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Adds the headers that an answer has not set itself."""
    response = await call_next(request)
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


async def to_login(request: Request, error: Any) -> Response:
    """Sends a browser without a login to Airflow's, and answers everything else with the plain error."""
    wants_page = request.method == "GET" and "text/html" in request.headers.get("accept", "")
    if error.status_code == status.HTTP_401_UNAUTHORIZED and wants_page:
        return RedirectResponse(login_url(request), status.HTTP_303_SEE_OTHER)
    return await http_exception_handler(request, error)


def static(name: str) -> Response:
    """Sends a style sheet, script or image of the pages."""
    file = STATIC / name
    if file.parent != STATIC or file.suffix not in STATIC_TYPES or not file.is_file():
        raise HTTPException(status.HTTP_404_NOT_FOUND, "no such file")
    return FileResponse(file, media_type=STATIC_TYPES[file.suffix])


def content_of(request: Request) -> Content:
    """Returns the topics that the application is over."""
    content: Content = request.app.state.content
    return content


def problem(request: Request, title: str, text: str, code: int = status.HTTP_200_OK) -> Response:
    """Shows what is wrong in words."""
    return page(request, "problem.html", {"title": title, "text": text}, code)


def page(request: Request, template: str, values: dict[str, Any], code: int = status.HTTP_200_OK) -> Response:
    """Fills a template; each has besides its values where the page and the UI begin, and how topics' pages are
    called."""
    links = {"root": request.scope["root_path"], "ui": ui_root(request), "dag_id_of": _dag_id_of(request)}
    return HTMLResponse(TEMPLATES.get_template(template).render(**links, **values), code)


def _dag_id_of(request: Request) -> Callable[[str], str]:
    """Returns the function by which templates get from a topic or group to its id, for links to its page."""
    try:
        prefix = content_of(request).configured.dag_prefix
    except ConfigError:
        prefix = ""
    return lambda name: dag_id_of(name, prefix)

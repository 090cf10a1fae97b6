"""The page itself: a FastAPI application that the API server mounts. No route answers without Airflow's login.

GET  /topics                                      all topics that the user may read
GET  /topics/TOPIC                                one topic
GET  /topics/TOPIC/docs/PATH                      its Data Docs
POST /topics/TOPIC/partitions/N/release           takes a log out of quarantine; who may edit the DAG
GET  /static/FILE
GET  /metrics                                     for Prometheus; also with a token of its own (metrics_access)
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, HTTPException, Request, Response, status
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException as StarletteHTTPException

from cleantail import words
from cleantail.errors import CleantailError
from cleantail.outside import explained
from cleantail.releasing import release
from cleantail.round_work import clocks_differ
from cleantail.run_schedule import schedule_words
from cleantail_airflow import data_docs
from cleantail_airflow.asking import asking_tasks
from cleantail_airflow.dag_states import dag_states
from cleantail_airflow.exposition import exposition
from cleantail_airflow.metrics_access import SCRAPER, Scraper
from cleantail_airflow.page_access import (
    LOGGED_IN,
    MAY_EDIT,
    MAY_READ,
    User,
    login_url,
    may_edit,
    note_release,
    readable,
    require_same_origin,
    ui_root,
)
from cleantail_airflow.page_content import Content
from cleantail_airflow.places import config_dir

HERE = Path(__file__).parent
STATIC = HERE / "static"
STATIC_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; form-action 'self'"
DOCS_POLICY = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; "
    "sandbox allow-same-origin"
)
"""Of pages that show data: nothing in them runs, is sent, or opens another window; links within the frame work."""
HEADERS = {
    "Content-Security-Policy": f"{POLICY}; base-uri 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}


def build_app() -> FastAPI:
    """The application over CLEANTAIL_CONFIG and CLEANTAIL_HOME."""
    app = FastAPI(title="Cleantail", openapi_url=None, docs_url=None, redoc_url=None, dependencies=[LOGGED_IN])
    app.state.content = content = Content(config_dir(os.environ), os.environ)
    # the menu's icon is asked for by every page of the UI: long before someone opens this one
    threading.Thread(target=content.warm, name="cleantail-warm", daemon=True).start()
    app.middleware("http")(_with_headers)
    app.exception_handler(StarletteHTTPException)(_to_login)
    app.get("/topics", response_class=HTMLResponse)(all_topics)
    app.get("/topics/{dag_id}", response_class=HTMLResponse, dependencies=[MAY_READ])(one_topic)
    app.get("/topics/{dag_id}/docs/{path:path}", dependencies=[MAY_READ])(docs)
    app.post(
        "/topics/{dag_id}/partitions/{partition}/release",
        dependencies=[Depends(require_same_origin), MAY_EDIT],
    )(release_log)
    app.get("/static/{name}")(static)
    # not by app.get: that would ask for Airflow's login, where the scraper's token is enough
    app.router.routes.append(APIRoute("/metrics", metrics, dependencies=[SCRAPER]))
    return app


async def _with_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await call_next(request)
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


async def _to_login(request: Request, error: Any) -> Response:
    """A browser without a login is sent to it; everything else gets the plain refusal."""
    page = request.method == "GET" and "text/html" in request.headers.get("accept", "")
    if error.status_code == status.HTTP_401_UNAUTHORIZED and page:
        return RedirectResponse(login_url(request), status.HTTP_303_SEE_OTHER)
    return await http_exception_handler(request, error)


def all_topics(request: Request, user: User) -> Response:
    """The page of all topics."""
    content = _content(request)
    try:
        names = readable(content.topics(), user)
        return _page(
            request, "topics.html", content.all_topics(names, _now_ms(), asking_tasks(names), dag_states(names))
        )
    except CleantailError as e:
        return _problem(request, "The topics cannot be shown", str(e))


def one_topic(request: Request, dag_id: str, user: User, released: int | None = None) -> Response:
    """The page of one topic; also the tab of DAGs that are none."""
    try:
        asking = asking_tasks([dag_id]).get(dag_id, "")
        shown = _content(request).one_topic(dag_id, _now_ms(), asking, dag_states([dag_id])[dag_id])
    except KeyError:
        text = f"{dag_id} is not a Cleantail topic: no file in config/topics names it."
        return _problem(request, "Not a topic", text, status.HTTP_404_NOT_FOUND)
    except Exception as e:
        known = e if isinstance(e, CleantailError) else explained(e)
        if known is None:
            raise
        return _problem(request, dag_id, str(known))
    more = {"released": released, "may_edit": may_edit(dag_id, user)}
    return _page(request, "topic.html", shown | more)


def release_log(request: Request, dag_id: str, partition: int, user: User) -> Response:
    """Takes the log out of quarantine, writes down who did it, and goes back to the topic."""
    content = _content(request)
    try:
        topic = content.topic(dag_id)
        lifted = release(topic, content.platform, partition, user.get_name(), _now_ms())
    except KeyError:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"{dag_id} is not a Cleantail topic") from None
    except CleantailError as e:
        return _problem(request, "Nothing was released", str(e), status.HTTP_409_CONFLICT)
    note_release(dag_id, partition, lifted.reason, user)
    content.cache.forget(topic)
    target = f"{request.scope['root_path']}/topics/{dag_id}?released={partition}"
    return RedirectResponse(target, status.HTTP_303_SEE_OTHER)


def docs(request: Request, dag_id: str, path: str) -> Response:
    """A file of the topic's Data Docs; without their scripts, which would run as the user."""
    content = _content(request)
    if dag_id not in content.topics():
        raise HTTPException(status.HTTP_404_NOT_FOUND, "no such file")
    file = data_docs.file_in(data_docs.site_of(content.platform.home, dag_id), path)
    if file is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "no such file")
    kind = data_docs.TYPES[file.suffix]
    headers = {"Content-Security-Policy": f"{DOCS_POLICY}; base-uri 'none'; frame-ancestors 'self'; form-action 'none'"}
    if file.suffix != ".html":
        return FileResponse(file, media_type=kind, headers=headers)
    root = request.scope["root_path"]
    return HTMLResponse(data_docs.framed(file.read_text(errors="replace"), root, dag_id), headers=headers)


def metrics(request: Request, user: Scraper) -> Response:
    """The metrics of all topics, or of those that the user may read."""
    content = _content(request)
    try:
        names = content.topics()
        body, kind = exposition(content, readable(names, user) if user else set(names), _accepted(request))
    except CleantailError as e:
        raise HTTPException(status.HTTP_503_SERVICE_UNAVAILABLE, str(e)) from None
    return Response(body, headers={"Content-Type": kind})


def _accepted(request: Request) -> str:
    return request.headers.get("accept", "")


def static(name: str) -> Response:
    """A file of the page's own."""
    file = STATIC / name
    if file.parent != STATIC or file.suffix not in STATIC_TYPES or not file.is_file():
        raise HTTPException(status.HTTP_404_NOT_FOUND, "no such file")
    return FileResponse(file, media_type=STATIC_TYPES[file.suffix])


def _content(request: Request) -> Content:
    content: Content = request.app.state.content
    return content


def _now_ms() -> int:
    return int(time.time() * 1000)


def _problem(request: Request, title: str, text: str, code: int = status.HTTP_200_OK) -> Response:
    return _page(request, "problem.html", {"title": title, "text": text}, code)


def _page(request: Request, template: str, shown: dict[str, Any], code: int = status.HTTP_200_OK) -> Response:
    text = _TEMPLATES.get_template(template).render(root=request.scope["root_path"], ui=ui_root(request), **shown)
    return HTMLResponse(text, code)


def _templates() -> Environment:
    """Everything that is filled in is escaped, in every template; a name that is not there is an error."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "size": words.size,
        "instant": words.instant,
        "duration": words.duration,
        "ago": words.ago,
        "in_words": words.in_words,
        "schedule_words": schedule_words,
        "count": "{:,}".format,
        "ratio": "{:.2f}".format,
        "px": "{:.1f}".format,
        "clocks_differ": clocks_differ,
    }
    return made


_TEMPLATES = _templates()

"""The pages of Cleantail in Airflow's UI, and /metrics: a FastAPI application that the API server mounts (mount).

No route answers without Airflow's login, but /metrics to a scraper with a token. A route reads here what was asked for
and who asks; what a page shows is computed in page_content, and page_access says who may see it.

GET  /topics                                      all topics that the user may read
GET  /topics/TOPIC                                one topic
GET  /topics/TOPIC/records?round=R&kind=K         records that a round would remove, or that failed its checks
GET  /topics/TOPIC/docs/PATH                      its Data Docs
POST /topics/TOPIC/partitions/N/release           takes a log out of quarantine, for those who may edit the DAG, and of
                                                  a topic with `publish: approve` for its approvers alone
GET  /static/FILE                                 a style sheet, script or image
GET  /metrics                                     for Prometheus, whose token metrics_access knows
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response, status
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException as StarletteHTTPException

from cleantail.config.claims.dag_ids import by_topic, dag_id_of, dag_ids_of
from cleantail.errors import CleantailError, HeldError
from cleantail.lake.foreign_errors import explained
from cleantail.lake.runs.quarantine_release import release
from cleantail.log.round_state import COMPACT
from cleantail.rounds.approval import may_decide, require_approver
from cleantail_airflow.installation import config_dir
from cleantail_airflow.kafka_connection import client_settings
from cleantail_airflow.metrics.exposition import exposition
from cleantail_airflow.metrics.metrics_access import SCRAPER, Scraper
from cleantail_airflow.page import data_docs
from cleantail_airflow.page.dag_states import dag_states
from cleantail_airflow.page.page_access import (
    LOGGED_IN,
    MAY_EDIT,
    MAY_READ,
    User,
    login_url,
    may_edit,
    note_release,
    readable_topics,
    require_same_origin,
    ui_root,
)
from cleantail_airflow.page.page_content import Content
from cleantail_airflow.page.page_records import records_of_round, round_named
from cleantail_airflow.page.page_templates import STATIC, TEMPLATES
from cleantail_airflow.page.page_values import by_name
from cleantail_airflow.page.pending_approvals import approval_tasks

STATIC_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

CONTENT_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; form-action 'self'"
DATA_DOCS_POLICY = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; "
    "sandbox allow-same-origin"
)
"""The Content-Security-Policy of Data Docs: nothing in them runs, is sent, or opens another window; links work."""
HEADERS = {
    "Content-Security-Policy": f"{CONTENT_POLICY}; base-uri 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}


def build_app() -> FastAPI:
    """Makes the application, with all routes, over the CLEANTAIL_CONFIG and CLEANTAIL_HOME of the process."""
    app = FastAPI(title="Cleantail", openapi_url=None, docs_url=None, redoc_url=None, dependencies=[LOGGED_IN])
    app.state.content = content = Content(config_dir(os.environ), os.environ, client_settings)
    # every page of the UI asks for the menu's icon, long before someone opens a page of ours: tables are read by then
    threading.Thread(target=content.warm, name="cleantail-warm", daemon=True).start()
    app.middleware("http")(_with_headers)
    app.exception_handler(StarletteHTTPException)(_to_login)
    app.get("/topics", response_class=HTMLResponse)(all_topics)
    app.get("/topics/{dag_id}", response_class=HTMLResponse, dependencies=[MAY_READ])(one_topic)
    app.get("/topics/{dag_id}/records", response_class=HTMLResponse, dependencies=[MAY_READ])(records)
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
    """Sends a browser without a login to Airflow's, and answers everything else with the plain error."""
    wants_page = request.method == "GET" and "text/html" in request.headers.get("accept", "")
    if error.status_code == status.HTTP_401_UNAUTHORIZED and wants_page:
        return RedirectResponse(login_url(request), status.HTTP_303_SEE_OTHER)
    return await http_exception_handler(request, error)


def all_topics(request: Request, user: User) -> Response:
    """Shows all topics that the user may read."""
    content = _content(request)
    try:
        dags = readable_topics(dag_ids_of(content.topics(), content.dag_prefix), user)
        waiting, states = by_topic(approval_tasks(dags.values()), dags), by_topic(dag_states(dags.values()), dags)
        return _page(request, "topics.html", by_name(content.all_topics(dags, _now_ms(), waiting, states)))
    except CleantailError as e:
        return _problem(request, "The topics cannot be shown", str(e))


def one_topic(request: Request, dag_id: str, user: User, released: int | None = None) -> Response:
    """Shows one topic. Airflow has a tab for it in every DAG, so a DAG of no topic gets a page that says so."""
    try:
        approval_task = approval_tasks([dag_id]).get(dag_id, "")
        content = _content(request)
        name = content.topic_of(dag_id)
        page = content.one_topic(name, _now_ms(), approval_task, dag_states([dag_id])[dag_id])
    except KeyError:
        text = f"{dag_id} is not a Cleantail topic: no file in config/topics names it."
        return _problem(request, "Not a topic", text, status.HTTP_404_NOT_FOUND)
    except Exception as e:
        error = e if isinstance(e, CleantailError) else explained(e)
        if error is None:  # a defect, and nothing that a person could mend
            raise
        return _problem(request, dag_id, str(error))
    topic = content.topic(name)
    may_release = may_edit(dag_id, user) and may_decide(topic, user.get_id(), user.get_name())
    return _page(request, "topic.html", by_name(page) | {"released": released, "may_release": may_release})


def records(
    request: Request,
    dag_id: str,
    round_name: Annotated[str, Query(alias="round", max_length=200)],
    kind: Annotated[str, Query(max_length=20)] = COMPACT,
    partition: int | None = None,
) -> Response:
    """Shows records of a round: those alone that the evidence names, and none by an offset in the URL."""
    content, now_ms = _content(request), _now_ms()
    try:
        topic = content.topic(content.topic_of(dag_id))
        round_ = round_named(content.cache.rounds(topic), round_name, kind)
        if round_ is None:
            return _problem(request, "No such round", f"{dag_id} has no such round.", status.HTTP_404_NOT_FOUND)
        logs = records_of_round(topic, content.platform, round_, partition)
    except KeyError:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"{dag_id} is not a Cleantail topic") from None
    except CleantailError as e:
        return _problem(request, "The records cannot be shown", str(e))
    page = _page(request, "records.html", {"topic": topic, "round": round_, "logs": logs, "now_ms": now_ms})
    page.headers["Cache-Control"] = "private, no-store"
    return page


def release_log(request: Request, dag_id: str, partition: int, user: User) -> Response:
    """Takes the log out of quarantine, writes down who did it, and goes back to the topic."""
    content = _content(request)
    try:
        topic = content.topic(content.topic_of(dag_id))
        require_approver(topic, "a release", user.get_id(), user.get_name())
        quarantine = release(topic, content.platform, partition, user.get_name(), _now_ms())
    except KeyError:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"{dag_id} is not a Cleantail topic") from None
    except HeldError as e:
        return _problem(request, "Nothing was released", str(e), status.HTTP_403_FORBIDDEN)
    except CleantailError as e:
        return _problem(request, "Nothing was released", str(e), status.HTTP_409_CONFLICT)
    note_release(dag_id, partition, quarantine.reason, user)
    content.cache.forget(topic)
    target = f"{request.scope['root_path']}/topics/{dag_id}?released={partition}"
    return RedirectResponse(target, status.HTTP_303_SEE_OTHER)


def docs(request: Request, dag_id: str, path: str) -> Response:
    """Sends a file of the topic's Data Docs, without their scripts, which would run with the user's rights."""
    content = _content(request)
    try:
        site = data_docs.site_of(content.platform.home, content.topic_of(dag_id))
    except KeyError:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "no such file") from None
    file = data_docs.file_in(site, path)
    if file is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "no such file")
    media_type = data_docs.TYPES[file.suffix]
    headers = {
        "Content-Security-Policy": f"{DATA_DOCS_POLICY}; base-uri 'none'; frame-ancestors 'self'; form-action 'none'"
    }
    if file.suffix != ".html":
        return FileResponse(file, media_type=media_type, headers=headers)
    root = request.scope["root_path"]
    return HTMLResponse(data_docs.framed(file.read_text(errors="replace"), root, dag_id), headers=headers)


def metrics(request: Request, user: Scraper) -> Response:
    """Sends the metrics: of all topics to a scraper with the token, else of those that the user may read."""
    content = _content(request)
    try:
        dags = dag_ids_of(content.topics(), content.dag_prefix)
        accepted = request.headers.get("accept", "")
        body, media_type = exposition(content, readable_topics(dags, user) if user else dags, accepted)
    except CleantailError as e:
        raise HTTPException(status.HTTP_503_SERVICE_UNAVAILABLE, str(e)) from None
    return Response(body, headers={"Content-Type": media_type})


def static(name: str) -> Response:
    """Sends a style sheet, script or image of the pages."""
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


def _page(request: Request, template: str, values: dict[str, Any], code: int = status.HTTP_200_OK) -> Response:
    links = {"root": request.scope["root_path"], "ui": ui_root(request), "dag_id_of": _dag_id_of(request)}
    return HTMLResponse(TEMPLATES.get_template(template).render(**links, **values), code)


def _dag_id_of(request: Request) -> Callable[[str], str]:
    """Returns the function by which templates get from a topic to the id of its DAG, for links."""
    prefix = _content(request).dag_prefix
    return lambda topic: dag_id_of(topic, prefix)

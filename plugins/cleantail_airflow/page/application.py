"""The FastAPI application that the API server mounts (mount): Cleantail's pages in Airflow's UI, and /metrics.

Every route requires Airflow's login; /metrics also accepts the scraper's token. A route parses the request here.
page_content computes what a page shows, and page_access decides who may see it.

GET  /topics?q=…&group=…&state=…&sort=…&page=N    all topics that the user may see
GET  /topics/ID                                   one topic, whichever DAG runs it, or all topics of a group
GET  /loading/topics and /loading/topics/ID       what the UI opens: shows that the page is loading, then the page
GET  /topics/ID/records?round=R&kind=K            records that a round would remove, or that failed its checks
GET  /topics/ID/docs/PATH                         the topic's Data Docs
POST /topics/ID/partitions/N/release              unblock a log; for users who may edit the topic, and
                                                  with `publish: approve` only for its approvers
POST /examine                                     trigger the DAG cleantail_doctor; for users who may trigger it
GET  /glossary                                    the words of the pages
GET  /static/FILE                                 a style sheet, script or image
GET  /metrics                                     for Prometheus (metrics_endpoint)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response, status
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException as StarletteHTTPException

from cleantail import human
from cleantail.config.run_schedule import schedule_text
from cleantail.config.topic import DOCTOR_DAG, dag_id_of
from cleantail.errors import CleantailError, ConfigError, HeldError
from cleantail.home.home_folder import site_of
from cleantail.lake.foreign_errors import explained
from cleantail.lake.releases import release
from cleantail.log.round_state import COMPACT
from cleantail.rounds.approval import may_decide, require_approver
from cleantail.rounds.evidence_row import clocks_differ
from cleantail.watch.glossary import GLOSSARY
from cleantail.watch.topic_list import Selection
from cleantail_airflow.installation import config_dir
from cleantail_airflow.kafka_connection import client_settings
from cleantail_airflow.outcomes.configured_topics import Configured
from cleantail_airflow.outcomes.dag_states import Examined, approvals_of, dag_states, dags_of, last_examination
from cleantail_airflow.page import records_and_docs
from cleantail_airflow.page.metrics_endpoint import SCRAPER, Scraper, exposition
from cleantail_airflow.page.page_access import (
    LOGGED_IN,
    User,
    is_allowed,
    login_url,
    may_trigger,
    note_release,
    readable_ids,
    readable_topics,
    require_same_origin,
    right,
    trigger,
    ui_root,
)
from cleantail_airflow.page.page_content import PageContent
from cleantail_airflow.page.page_values import TopicsPage, by_name
from cleantail_airflow.page.records_and_docs import records_of_round, round_named

HERE = Path(__file__).parent
STATIC = HERE / "static"
"""The folder of the style sheets, scripts and images of the pages."""


def _templates() -> Environment:
    """Return the templates' environment. It escapes all values, and raises for an unknown name."""
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "size": human.size,
        "instant": human.instant,
        "duration": human.duration,
        "interval": human.interval,
        "ago": human.ago,
        "readable_reason": human.readable_reason,
        "schedule_text": schedule_text,
        "count": "{:,}".format,
        "ratio": "{:.2f}".format,
        "px": "{:.1f}".format,
        "clocks_differ": clocks_differ,
    }
    return environment


TEMPLATES = _templates()


STATIC_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
CONTENT_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; form-action 'self'"
HEADERS = {
    "Content-Security-Policy": f"{CONTENT_POLICY}; base-uri 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}


async def with_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await call_next(request)
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


NOT_ALLOWED = "You may not see or do this. You need a right on the topic's DAG, or on the topic's own id as a DAG."


async def to_login(request: Request, error: Any) -> Response:
    """Redirect a browser without a login to Airflow's login, and show it a refusal as a page.

    Answer other requests with the plain error.
    """
    wants_page = "text/html" in request.headers.get("accept", "")
    if error.status_code == status.HTTP_401_UNAUTHORIZED and wants_page and request.method == "GET":
        return RedirectResponse(login_url(request), status.HTTP_303_SEE_OTHER)
    if error.status_code == status.HTTP_403_FORBIDDEN and wants_page:
        text = NOT_ALLOWED if error.detail == "Forbidden" else error.detail
        return problem(request, "Not allowed", text, error.status_code)
    return await http_exception_handler(request, error)


def static(name: str) -> Response:
    file = STATIC / name
    if file.parent != STATIC or file.suffix not in STATIC_TYPES or not file.is_file():
        raise HTTPException(status.HTTP_404_NOT_FOUND, "no such file")
    return FileResponse(file, media_type=STATIC_TYPES[file.suffix])


def content_of(request: Request) -> PageContent:
    content: PageContent = request.app.state.content
    return content


def problem(request: Request, title: str, text: str, code: int = status.HTTP_200_OK) -> Response:
    return page(request, "problem.html", {"title": title, "text": text}, code)


def page(request: Request, template: str, values: dict[str, Any], code: int = status.HTTP_200_OK) -> Response:
    """Render a template. Links need the paths of the pages and of the UI, and the ids of topics and groups."""
    try:
        prefix = content_of(request).configured.dag_prefix
    except ConfigError:
        prefix = ""
    links = {
        "root": request.scope["root_path"],
        "ui": ui_root(request),
        "dag_id_of": lambda name: dag_id_of(name, prefix),
    }
    return HTMLResponse(TEMPLATES.get_template(template).render(**links, **values), code)


DATA_DOCS_POLICY = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; "
    "sandbox allow-same-origin"
)
"""Content-Security-Policy of Data Docs: no scripts, no forms, no new windows. Links work."""


RIGHT_ON_DATA = right("GET", of_data=True)


def selection_of_query(
    q: Annotated[str, Query(max_length=250)] = "",
    group: Annotated[str, Query(max_length=250)] = "",
    state: Annotated[str, Query(max_length=40)] = "",
    sort: Annotated[str, Query(max_length=40)] = "",
    number: Annotated[int, Query(alias="page", ge=1, le=1_000_000)] = 1,
) -> Selection:
    return Selection(q, group, state, sort, number)


def build_app() -> FastAPI:
    """Return the application for the CLEANTAIL_CONFIG and CLEANTAIL_HOME of the process."""
    app = FastAPI(title="Cleantail", openapi_url=None, docs_url=None, redoc_url=None, dependencies=[LOGGED_IN])
    app.state.content = content = PageContent(config_dir(), client_settings)
    # Airflow's UI loads the menu's icon at its first page, so tables are read before a user opens the pages
    threading.Thread(target=content.warm, name="cleantail-warm", daemon=True).start()
    app.middleware("http")(with_headers)
    app.exception_handler(StarletteHTTPException)(to_login)
    app.get("/topics", response_class=HTMLResponse)(all_topics)
    app.get("/loading/topics", response_class=HTMLResponse)(loading)
    app.get("/loading/topics/{dag_id}", response_class=HTMLResponse)(loading)
    app.get("/topics/{dag_id}", response_class=HTMLResponse, dependencies=[right("GET")])(one_topic)
    app.get("/topics/{dag_id}/records", response_class=HTMLResponse, dependencies=[RIGHT_ON_DATA])(records)
    app.get("/topics/{dag_id}/docs/{path:path}", dependencies=[RIGHT_ON_DATA])(docs)
    app.post(
        "/topics/{dag_id}/partitions/{partition}/release",
        dependencies=[Depends(require_same_origin), right("PUT", of_data=True)],
    )(release_log)
    app.post("/examine", dependencies=[Depends(require_same_origin)])(examine_now)
    app.get("/glossary", response_class=HTMLResponse)(glossary)
    app.get("/static/{name}")(static)
    # not by app.get, which would require Airflow's login from a scraper with the token too
    app.router.routes.append(APIRoute("/metrics", metrics, dependencies=[SCRAPER]))
    return app


def loading(request: Request, dag_id: str = "") -> Response:
    """Return a page that the browser shows until it has the page of all topics, or of this one."""
    return page(request, "loading.html", {"dag_id": dag_id})


def all_topics(request: Request, user: User, selection: Annotated[Selection, Depends(selection_of_query)]) -> Response:
    try:
        content = content_of(request)
        shown = by_name(_topics(content, user, selection))
        return page(request, "topics.html", shown | {"examined": _examined(content.configured, user)})
    except CleantailError as e:
        return problem(request, "The topics cannot be shown", str(e))


def _topics(content: PageContent, user: User, selection: Selection, group: str | None = None) -> TopicsPage:
    configured = content.configured
    readable = readable_ids(configured, user)
    names = readable_topics(configured, readable)
    of_group = None
    if group is not None:
        dag_id = dag_id_of(group, configured.dag_prefix)
        of_group = content.group_page(group, dag_states([dag_id])[dag_id])
        names = frozenset(name for name in names if configured.group_of.get(name) == group)
    waiting, states = approvals_of(configured, names), dags_of(configured, names)
    dags = {name: replace(dag, may_open=dag.dag_id in readable) for name, dag in states.items()}
    return content.all_topics(names, _now_ms(), waiting, dags, selection, of_group)


def _examined(configured: Configured, user: User) -> Examined | None:
    """Return the last result of the DAG that examines the installation, for users who may read that DAG."""
    dag_id = dag_id_of(DOCTOR_DAG, configured.dag_prefix)
    found = last_examination(dag_id) if is_allowed((dag_id,), user, "GET") else None
    return found and found._replace(may_trigger=may_trigger(dag_id, user))


def examine_now(request: Request, user: User) -> Response:
    """Trigger the DAG that examines the installation, unless a run is active, and redirect to its last result."""
    dag_id = dag_id_of(DOCTOR_DAG, content_of(request).configured.dag_prefix)
    if not may_trigger(dag_id, user):
        raise HTTPException(status.HTTP_403_FORBIDDEN, "Forbidden")
    dag = dag_states([dag_id])[dag_id]
    if not dag.exists:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"Airflow has no DAG {dag_id}")
    if dag.active is None:
        trigger(dag_id, user)
    return RedirectResponse(f"{request.scope['root_path']}/topics#installation", status.HTTP_303_SEE_OTHER)


def one_topic(
    request: Request,
    dag_id: str,
    user: User,
    selection: Annotated[Selection, Depends(selection_of_query)],
    released: int | None = None,
) -> Response:
    """Show one topic, or the topics of a group.

    Airflow shows the tab in every DAG, so the page of an unrelated DAG explains that it is neither.
    """
    content = content_of(request)
    try:
        configured = content.configured
        if (group := configured.group_called(dag_id)) is not None:
            return page(request, "topics.html", by_name(_topics(content, user, selection, group)) | {"examined": None})
        name = configured.topic_of(dag_id)
        approval_task, dag = approvals_of(configured, [name]).get(name, ""), dags_of(configured, [name])[name]
        dag = replace(dag, may_open=is_allowed((dag.dag_id,), user, "GET"))
        shown = content.one_topic(name, _now_ms(), approval_task, dag)
    except KeyError:
        text = f"{dag_id} is not a topic of Cleantail: no file in config/topics or config/groups names it."
        return problem(request, "Not a topic", text, status.HTTP_404_NOT_FOUND)
    except Exception as e:
        error = e if isinstance(e, CleantailError) else explained(e)
        if error is None:  # a defect of Cleantail
            raise
        return problem(request, dag_id, str(error))
    may_edit = is_allowed(configured.ids_with_rights(dag_id, of_data=True), user, "PUT")
    may_release = may_edit and may_decide(shown.topic, user.get_id(), user.get_name())
    of_group = shown.topic.group
    may_open_group = of_group and is_allowed((dag_id_of(of_group, configured.dag_prefix),), user, "GET")
    rights = {"may_release": may_release, "may_open_group": may_open_group}
    return page(request, "topic.html", by_name(shown) | rights | {"released": released})


def records(
    request: Request,
    dag_id: str,
    round_name: Annotated[str, Query(alias="round", max_length=200)],
    kind: Annotated[str, Query(max_length=20)] = COMPACT,
    partition: int | None = None,
) -> Response:
    """Show records of a round. Only records that the evidence names are shown: the URL has no offset."""
    content, now_ms = content_of(request), _now_ms()
    try:
        configured = content.configured
        topic = configured.topic(configured.topic_of(dag_id))
        round_ = round_named(content.cache.rounds(topic), round_name, kind)
        if round_ is None:
            return problem(request, "No such round", f"{dag_id} has no such round.", status.HTTP_404_NOT_FOUND)
        logs = records_of_round(topic, round_, partition)
    except KeyError:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"{dag_id} is not a topic of Cleantail") from None
    except CleantailError as e:
        return problem(request, "The records cannot be shown", str(e))
    shown = page(request, "records.html", {"topic": topic, "round": round_, "logs": logs, "now_ms": now_ms})
    shown.headers["Cache-Control"] = "private, no-store"
    return shown


def release_log(request: Request, dag_id: str, partition: int, user: User) -> Response:
    """Release the log from quarantine, record who did it, and redirect to the topic."""
    content = content_of(request)
    try:
        configured = content.configured
        topic = configured.topic(configured.topic_of(dag_id))
        require_approver(topic, "a release", user.get_id(), user.get_name())
        quarantine = release(topic, partition, user.get_name(), _now_ms())
    except KeyError:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"{dag_id} is not a topic of Cleantail") from None
    except HeldError as e:
        return problem(request, "Nothing was released", str(e), status.HTTP_403_FORBIDDEN)
    except CleantailError as e:
        return problem(request, "Nothing was released", str(e), status.HTTP_409_CONFLICT)
    note_release(configured.dag_ids[topic.topic], topic.topic, partition, quarantine.reason, user)
    content.cache.forget(topic)
    target = f"{request.scope['root_path']}/topics/{dag_id}?released={partition}"
    return RedirectResponse(target, status.HTTP_303_SEE_OTHER)


def docs(request: Request, dag_id: str, path: str) -> Response:
    """Return a file of the topic's Data Docs. Scripts are not served: they would run with the user's permissions."""
    content = content_of(request)
    try:
        site = site_of(content.platform.home, content.configured.topic_of(dag_id))
    except KeyError:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "no such file") from None
    file = records_and_docs.file_in(site, path)
    if file is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "no such file")
    media_type = records_and_docs.TYPES[file.suffix]
    headers = {
        "Content-Security-Policy": f"{DATA_DOCS_POLICY}; base-uri 'none'; frame-ancestors 'self'; form-action 'none'"
    }
    if file.suffix != ".html":
        return FileResponse(file, media_type=media_type, headers=headers)
    root = request.scope["root_path"]
    return HTMLResponse(
        records_and_docs.framed(file.read_text(errors="replace", encoding="utf-8"), root, dag_id), headers=headers
    )


def glossary(request: Request) -> Response:
    return page(request, "glossary.html", {"words": GLOSSARY})


def metrics(request: Request, user: Scraper) -> Response:
    """Return the metrics: of all topics to a scraper with the token, otherwise of topics that the user may read."""
    content = content_of(request)
    try:
        configured, accepted = content.configured, request.headers.get("accept", "")
        names = readable_topics(configured, readable_ids(configured, user)) if user else frozenset(configured.topics)
        body, media_type = exposition(content, names, accepted)
    except CleantailError as e:
        raise HTTPException(status.HTTP_503_SERVICE_UNAVAILABLE, str(e)) from None
    return Response(body, headers={"Content-Type": media_type})


def _now_ms() -> int:
    return int(time.time() * 1000)

"""Decides who may see and change what on the page, by Airflow's own login and its permissions on DAGs.

A right on a topic is one on the topic's own id (`platform.dag_prefix` and its name), or on the DAG that runs it, which
may be that of its group. So a viewer of one topic of a group sees that topic, and none of the others.

It is built on `airflow.api_fastapi.core_api.security`, which is not a public interface: Airflow's version is pinned.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.api_fastapi.core_api.security import get_user
from airflow.configuration import conf
from airflow.models.dag import DagModel
from airflow.models.log import Log
from airflow.utils.session import create_session
from fastapi import Depends, HTTPException, Request, status

from cleantail.errors import ConfigError
from cleantail_airflow.page.configured_topics import Configured

User = Annotated[BaseUser, Depends(get_user)]
LOGGED_IN = Depends(get_user)
EVENT = "cleantail_release"
NO_IDS: Mapping[str, str] = {}


def readable(dag_ids: Iterable[str], user: BaseUser, runs_in: Mapping[str, str] = NO_IDS) -> set[str]:
    """Returns the ids, of DAGs that exist or not, that the user may read. `runs_in`: a topic's own id -> the id of the
    DAG that runs it, whose team is the topic's where there is no DAG of its own."""
    names = set(dag_ids)
    teams: Mapping[str, str | None] = DagModel.get_dag_id_to_team_name_mapping(sorted(names))
    by_team: dict[str | None, set[str]] = defaultdict(set)
    for name in names:
        by_team[teams.get(name) or teams.get(runs_in.get(name, ""))].add(name)
    manager: Any = get_auth_manager()
    allowed = [
        manager.filter_authorized_dag_ids(dag_ids=ids, user=user, method="GET", team_name=team)
        for team, ids in by_team.items()
    ]
    return set().union(*allowed)


def readable_topics(configured: Configured, user: BaseUser) -> frozenset[str]:
    """Returns the topics that the user may see: those whose own id he may read, or the DAG that runs them. Airflow's
    auth manager knows rights on an own id though a group's DAG runs the topic, and there is no DAG of that id."""
    own, runs = configured.own_ids, configured.dag_ids
    allowed = readable({*own.values(), *runs.values()}, user, {own[name]: runs[name] for name in own})
    return frozenset(name for name in own if own[name] in allowed or runs[name] in allowed)


def is_allowed(dag_ids: Sequence[str], user: BaseUser, method: str) -> bool:
    """Returns whether the user has the right on any of the ids. The last is that of a DAG that runs, whose team counts
    for all."""
    manager: Any = get_auth_manager()
    team = DagModel.get_team_name(dag_ids[-1])
    details = [DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id) or team) for dag_id in dag_ids]
    return any(manager.is_authorized_dag(method=method, details=one, user=user) for one in details)


def right(method: str, of_data: bool = False) -> Any:
    """Returns the dependency that asks for a right on the page's topic or group, whose id is in the path: on that id,
    or on the DAG that runs the topic (Configured.ids_with_rights). The application's `state.content` has the
    configuration."""

    def require(request: Request, user: User) -> None:
        dag_id = request.path_params["dag_id"]
        try:
            dag_ids = request.app.state.content.configured.ids_with_rights(dag_id, of_data)
        except ConfigError:  # then there is no topic either, which is told to those who may read this id
            dag_ids = (dag_id,)
        if not is_allowed(dag_ids, user, method):
            raise HTTPException(status.HTTP_403_FORBIDDEN, "Forbidden")

    return Depends(require)


def require_same_origin(request: Request) -> None:
    """Refuses a change that another site's page asks for in the user's name (CSRF).

    Browsers say where a POST comes from, and scripts cannot forge it. A client without a browser has neither header;
    it has to show a token, which no other site's page can add.
    """
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    if origin is None and site is None:
        by_token = request.headers.get("authorization", "").lower().startswith("bearer ")
        if by_token:
            return
    elif site in (None, "same-origin") and (origin is None or urlsplit(origin).netloc in _hosts_of_ours(request)):
        return
    raise HTTPException(status.HTTP_403_FORBIDDEN, "this request did not come from this site")


def _hosts_of_ours(request: Request) -> set[str]:
    """Returns the host that the client asked, and that of [api] base_url: a proxy may have changed the first."""
    hosts = {request.headers.get("host", ""), urlsplit(conf.get("api", "base_url", fallback="")).netloc}
    return hosts - {""}


def login_url(request: Request) -> str:
    """Returns where a person without a login is sent, to come back here after it."""
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return f"{ui_root(request)}/api/v2/auth/login?next={quote(path, safe='')}"


def ui_root(request: Request) -> str:
    """Returns where Airflow's own UI begins: empty, or a path without the last /."""
    root: str = request.scope.get("app_root_path", "")
    return root.rstrip("/")


def note_release(dag_id: str, topic: str, partition: int, reason: str, user: BaseUser) -> None:
    """Writes who released what into Airflow's audit log, as an event of the DAG that runs the topic; the API server's
    own log has it from the release."""
    name = user.get_name()
    extra = json.dumps({"topic": topic, "partition": partition, "quarantine": reason})
    with create_session() as session:
        session.add(Log(event=EVENT, owner=name, owner_display_name=name, dag_id=dag_id, extra=extra))

"""Decides who may see and change what on the page, by Airflow's own login and its permissions on the topic's DAG.

It is built on `airflow.api_fastapi.core_api.security`, which is not a public interface: Airflow's version is pinned.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.api_fastapi.core_api.security import get_user, requires_access_dag
from airflow.configuration import conf
from airflow.models.dag import DagModel
from airflow.models.log import Log
from airflow.utils.session import create_session
from fastapi import Depends, HTTPException, Request, status

User = Annotated[BaseUser, Depends(get_user)]
LOGGED_IN = Depends(get_user)
MAY_READ = Depends(requires_access_dag("GET"))
MAY_EDIT = Depends(requires_access_dag("PUT"))
EVENT = "cleantail_release"


def readable(dag_ids: Iterable[str], user: BaseUser) -> set[str]:
    """Returns the DAGs, existing or not yet, that the user may read."""
    names = set(dag_ids)
    teams: Mapping[str, str | None] = DagModel.get_dag_id_to_team_name_mapping(sorted(names))
    by_team: dict[str | None, set[str]] = defaultdict(set)
    for name in names:
        by_team[teams.get(name)].add(name)
    manager: Any = get_auth_manager()
    allowed = [
        manager.filter_authorized_dag_ids(dag_ids=ids, user=user, method="GET", team_name=team)
        for team, ids in by_team.items()
    ]
    return set().union(*allowed)


def readable_topics(dag_ids: Mapping[str, str], user: BaseUser) -> dict[str, str]:
    """Returns the topics whose DAGs the user may read, with the ids of these."""
    allowed = readable(dag_ids.values(), user)
    return {topic: dag_id for topic, dag_id in dag_ids.items() if dag_id in allowed}


def may_edit(dag_id: str, user: BaseUser) -> bool:
    """Returns whether the Release button is shown; the route itself asks again."""
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    manager: Any = get_auth_manager()
    return bool(manager.is_authorized_dag(method="PUT", details=details, user=user))


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


def note_release(dag_id: str, partition: int, reason: str, user: BaseUser) -> None:
    """Writes who released what into Airflow's audit log; the API server's own log has it from the release."""
    name = user.get_name()
    extra = json.dumps({"partition": partition, "quarantine": reason})
    with create_session() as session:
        session.add(Log(event=EVENT, owner=name, owner_display_name=name, dag_id=dag_id, extra=extra))

"""The rights of users on the pages, from Airflow's login and its permissions on DAGs.

Access to a topic needs a permission on the topic's own id (`platform.dag_prefix` and its name), or on the DAG that runs
the topic. That DAG may be its group's. A viewer of one topic of a group does not see the others.

This module uses `airflow.api_fastapi.core_api.security`, which is not a public interface. Airflow's version is pinned.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import get_user
from airflow.configuration import conf
from airflow.models.dag import DagModel
from airflow.models.log import Log
from airflow.utils.session import create_session
from airflow.utils.types import DagRunTriggeredByType
from fastapi import Depends, HTTPException, Request, status

from cleantail.errors import ConfigError
from cleantail_airflow.outcomes.configured_topics import Configured

User = Annotated[BaseUser, Depends(get_user)]
LOGGED_IN = Depends(get_user)
EVENT = "cleantail_release"


def readable_ids(configured: Configured, user: BaseUser) -> set[str]:
    """Return the ids that the user may read, of topics and of DAGs that run them.

    Airflow's auth manager has permissions on a topic's own id, even if no DAG of that id exists. Such an id has the
    team of the DAG that runs the topic.
    """
    runs_in = {own: configured.dag_ids[name] for name, own in configured.own_ids.items()}
    ids = {*runs_in, *runs_in.values()}
    teams: Mapping[str, str | None] = DagModel.get_dag_id_to_team_name_mapping(sorted(ids))
    by_team: dict[str | None, set[str]] = defaultdict(set)
    for one in ids:
        by_team[teams.get(one) or teams.get(runs_in.get(one, ""))].add(one)
    manager: Any = get_auth_manager()
    allowed = [
        manager.filter_authorized_dag_ids(dag_ids=of_team, user=user, method="GET", team_name=team)
        for team, of_team in by_team.items()
    ]
    return set().union(*allowed)


def readable_topics(configured: Configured, ids: Collection[str]) -> frozenset[str]:
    """Return the topics whose own id, or the DAG that runs them, is one of the ids."""
    return frozenset(name for name, own in configured.own_ids.items() if own in ids or configured.dag_ids[name] in ids)


def is_allowed(dag_ids: Sequence[str], user: BaseUser, method: str) -> bool:
    """Return whether the user has the permission on any of the ids. The team of the last id applies to all of them."""
    manager: Any = get_auth_manager()
    team = DagModel.get_team_name(dag_ids[-1])
    details = [DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id) or team) for dag_id in dag_ids]
    return any(manager.is_authorized_dag(method=method, details=one, user=user) for one in details)


def may_trigger(dag_id: str, user: BaseUser) -> bool:
    """Return whether the user may trigger the DAG, by the rule of Airflow's own button."""
    manager: Any = get_auth_manager()
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return bool(manager.is_authorized_dag(method="POST", access_entity=DagAccessEntity.RUN, details=details, user=user))


def trigger(dag_id: str, user: BaseUser) -> None:
    from airflow.api.common.trigger_dag import trigger_dag

    trigger_dag(dag_id, triggered_by=DagRunTriggeredByType.UI, triggering_user_name=user.get_name())


def right(method: str, of_data: bool = False) -> Any:
    """Return the dependency that requires a permission on the topic or group of the path (Configured.ids_with_rights).

    The configuration is that of the application's `state.content`.
    """

    def require(request: Request, user: User) -> None:
        dag_id = request.path_params["dag_id"]
        try:
            dag_ids = request.app.state.content.configured.ids_with_rights(dag_id, of_data)
        except ConfigError:  # the page then shows the error to users who may read this id
            dag_ids = (dag_id,)
        if not is_allowed(dag_ids, user, method):
            raise HTTPException(status.HTTP_403_FORBIDDEN, "Forbidden")

    return Depends(require)


def require_same_origin(request: Request) -> None:
    """Refuse a change that a page of another site requests in the user's name (CSRF).

    Browsers send the origin of a POST, and scripts cannot forge it. A client that is not a browser sends neither
    header. It must send a token, which a page of another site cannot add.
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
    """Return the host of the request, and that of [api] base_url, because a proxy may have changed the first."""
    hosts = {request.headers.get("host", ""), urlsplit(conf.get("api", "base_url", fallback="")).netloc}
    return hosts - {""}


def login_url(request: Request) -> str:
    """Return the address of the login, which leads back to this page."""
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return f"{ui_root(request)}/api/v2/auth/login?next={quote(path, safe='')}"


def ui_root(request: Request) -> str:
    """Return the path of Airflow's UI: empty, or a path without the last /."""
    root: str = request.scope.get("app_root_path", "")
    return root.rstrip("/")


def note_release(dag_id: str, topic: str, partition: int, reason: str, user: BaseUser) -> None:
    """Write the release to Airflow's audit log, as an event of the DAG that runs the topic."""
    name = user.get_name()
    extra = json.dumps({"topic": topic, "partition": partition, "quarantine": reason})
    with create_session() as session:
        session.add(Log(event=EVENT, owner=name, owner_display_name=name, dag_id=dag_id, extra=extra))

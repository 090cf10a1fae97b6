"""The API that the tasks of `dag.test` ask, which Airflow builds inside of this process: without what is done again at
each request, and without routes that no task asks for. What it answers is the same."""

from __future__ import annotations

import copy
from functools import cache
from inspect import signature
from typing import Any


@cache
def build_what_is_asked_for() -> None:
    """To be called before Airflow's first task runs. Else building the API takes five seconds of each process, and a
    third of each run of a DAG goes into looking at signatures."""
    _newest_version_only()
    _look_at_each_dependency_once()
    _build_each_adapter_once()


def _newest_version_only() -> None:
    """Airflow builds all routes anew for each version that its API ever had. Tasks ask for the newest; older ones have no
    routes here."""
    from cadwyn import HeadVersion, Version, VersionBundle, applications

    generate, only_in_older_versions = applications.generate_versioned_routers, "_CADWYN_DELETED_ROUTE"

    def generate_newest(router: Any, versions: Any, **named: Any) -> Any:
        newest = copy.copy(router)
        newest.routes = [route for route in router.routes if only_in_older_versions not in getattr(route, "tags", ())]
        version = Version(versions.version_values[0])
        bundle = VersionBundle(HeadVersion(), version, api_version_var=versions.api_version_var)
        return generate(newest, versions=bundle, **named)

    applications.generate_versioned_routers = generate_newest


def _look_at_each_dependency_once() -> None:
    """Where an app overrides a dependency, as this one does that asks who may, FastAPI looks at the signatures of all
    dependencies of a route at each of its requests."""
    from fastapi.dependencies import utils

    look, seen = utils.get_dependant, dict[Any, tuple[Any, Any]]()
    if "own_oauth_scopes" not in signature(look).parameters:  # another version, in which nothing tells the two apart
        return

    def look_once(*, call: Any, **named: Any) -> Any:
        if "own_oauth_scopes" in named:  # while routes are built, which change what they get
            return look(call=call, **named)
        # By identity: Cadwyn's wrapper of a function is equal to the function, whose signature may be another.
        key = (id(call), *((name, str(value)) for name, value in sorted(named.items())))
        if key not in seen:
            seen[key] = (call, look(call=call, **named))  # who is kept gives its id to no other
        return seen[key][1]

    utils.get_dependant = look_once


def _build_each_adapter_once() -> None:
    """A task builds pydantic's adapter of the same type for each of its template fields."""
    from airflow.sdk.execution_time import task_runner

    task_runner.TypeAdapter = cache(task_runner.TypeAdapter)  # type: ignore[misc, assignment]

"""Speed up the API that `dag.test` calls, which Airflow builds inside this process.

It omits work that Airflow repeats at each request, and routes that no task calls. The responses are the same."""

from __future__ import annotations

import copy
from functools import cache
from inspect import signature
from typing import Any


@cache
def build_what_is_asked_for() -> None:
    """Call this before Airflow's first task. Otherwise building the API takes five seconds of each process, and a third
    of each DAG run inspects signatures."""
    _newest_version_only()
    _look_at_each_dependency_once()
    _build_each_adapter_once()


def _newest_version_only() -> None:
    """Build only the routes of the newest version of the API, which tasks call. Airflow builds those of all versions."""
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
    """If an app overrides a dependency, as this one overrides the check of rights, FastAPI inspects the signatures of all
    dependencies of a route at each request. Cache them."""
    from fastapi.dependencies import utils

    look, seen = utils.get_dependant, dict[Any, tuple[Any, Any]]()
    if "own_oauth_scopes" not in signature(look).parameters:  # another version, in which the two cases do not differ
        return

    def look_once(*, call: Any, **named: Any) -> Any:
        if "own_oauth_scopes" in named:  # while routes are built: they change the result
            return look(call=call, **named)
        # By identity: Cadwyn's wrapper equals its function, which may have another signature.
        key = (id(call), *((name, str(value)) for name, value in sorted(named.items())))
        if key not in seen:
            seen[key] = (call, look(call=call, **named))  # the reference to the call keeps its id unique
        return seen[key][1]

    utils.get_dependant = look_once


def _build_each_adapter_once() -> None:
    """Cache pydantic's adapters. A task builds an adapter of the same type for each of its template fields."""
    from airflow.sdk.execution_time import task_runner

    task_runner.TypeAdapter = cache(task_runner.TypeAdapter)  # type: ignore[misc, assignment]

"""The API server of a real Airflow, for all tests of pages."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HOST = "http://testserver"


@pytest.fixture(scope="package")
def server(airflow_db: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """With an admin, a user and a viewer."""
    from airflow.api_fastapi.app import create_app, purge_cached_app

    passwords = tmp_path_factory.mktemp("auth") / "passwords.json"
    passwords.write_text(json.dumps({name: f"{name}-password" for name in ("ann", "uma", "vic")}))
    settings = {
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "ann:admin,uma:user,vic:viewer",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
    }
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, value in settings.items():
            patched.setenv(name, value)
        purge_cached_app()
        yield create_app()
        purge_cached_app()


@pytest.fixture(scope="package")
def tokens(server: Any) -> dict[str, str]:
    """User -> a token of a real login."""
    return {name: _token(server, name) for name in ("ann", "uma", "vic")}


def _token(server: Any, name: str) -> str:
    answer = client_of(server).post("/auth/token", json={"username": name, "password": f"{name}-password"})
    token: str = answer.json()["access_token"]
    return token


def client_of(server: Any) -> Any:
    from fastapi.testclient import TestClient

    return TestClient(server, base_url=HOST, follow_redirects=False)

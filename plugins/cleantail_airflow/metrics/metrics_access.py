"""Lets in who may scrape the metrics: a user of Airflow, who sees the topics that he may read, or the token's bearer.

The token is in the environment variable CLEANTAIL_METRICS_TOKEN of the API server, and opens nothing but the metrics:
Airflow's own tokens expire after a day, which no scraper likes. Without the variable only Airflow's login counts.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from typing import Annotated

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import bearer_scheme, get_user
from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials

from cleantail.home.driver_process import TOKEN_VARIABLE


async def scraper(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer_scheme)]
) -> BaseUser | None:
    """Returns the user, or None for the bearer of the token, who sees every topic.

    Raises HTTPException 401 or 403.
    """
    if credentials is not None and is_token(credentials.credentials, os.environ):
        return None
    return await get_user(request, None, credentials)


def is_token(credentials: str, env: Mapping[str, str]) -> bool:
    """Compares the credentials with the token in constant time; an empty variable is no token."""
    token = env.get(TOKEN_VARIABLE, "").strip()
    return bool(token) and hmac.compare_digest(credentials.encode(), token.encode())


Scraper = Annotated[BaseUser | None, Depends(scraper)]
SCRAPER = Depends(scraper)

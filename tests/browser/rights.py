"""Airflow's simple auth manager with one user who has rights on one topic of a group, as other auth managers can give."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

from tests.browser.office import OF_ONE_TOPIC, THE_ONE_TOPIC


class RightsOnOneTopic(SimpleAuthManager):
    def is_authorized_dag(self, *, user: Any, details: Any = None, **asked: Any) -> bool:
        of_another = details is not None and details.id not in (None, THE_ONE_TOPIC)
        if user.username == OF_ONE_TOPIC and of_another:
            return False
        return super().is_authorized_dag(user=user, details=details, **asked)

"""Maps of the JVM as Python's: in one call, where one call a key would be thousands for a topic of many partitions."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from py4j.java_gateway import JavaClass

JACKSON = "com.fasterxml.jackson.databind.ObjectMapper"
"""Writes any map as JSON; Spark has it."""


def as_dict(java_map: Any) -> dict[str, Any]:
    """Returns a Java map whose keys are texts as a dict, by one call of the JVM."""
    mapping: dict[str, Any] = json.loads(_writer(java_map._gateway_client).writeValueAsString(java_map))
    return mapping


@cache
def _writer(client: Any) -> Any:
    """Returns the writer of a JVM: there is one for each that this process talks to."""
    return JavaClass(JACKSON, client)()

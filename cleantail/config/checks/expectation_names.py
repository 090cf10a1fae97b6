"""The Great Expectations core expectations that a topic's `checks` may use, and the JSON Schema of their arguments.

A file instead of a look-up: configuration is validated where Great Expectations is not installed, and fast.
spark_jobs/quality/expectation_schemas.py makes it, and a test compares it with the installed version.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SCHEMAS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("expectation_schemas.json").read_text(encoding="utf-8")
)
"""Name -> `properties` (argument -> schema) and `required`. `x-columns` marks arguments that name columns."""
EXPECTATION_NAMES: tuple[str, ...] = tuple(SCHEMAS)

_ACRONYMS = {"kl": "KL"}  # Great Expectations writes these words in capitals


def class_name(expectation: str) -> str:
    """Returns the name of an expectation's class in `great_expectations.expectations`: `ExpectColumnToExist` for
    `expect_column_to_exist`."""
    return "".join(_ACRONYMS.get(word, word.capitalize()) for word in expectation.split("_"))


_BY_CLASS_NAME = {class_name(name): name for name in EXPECTATION_NAMES}


def expectation_name(name: str) -> str | None:
    """Returns the name in snake_case of an expectation whose name or class is `name`; None where there is no such
    expectation."""
    return name if name in EXPECTATION_NAMES else _BY_CLASS_NAME.get(name)

"""When a topic's DAG runs: by cron, after Airflow assets were updated, or by both. What `schedule:` in YAML may be."""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Discriminator, Field, Tag

from cleantail.config.schedules.cron import is_schedule
from cleantail.config.settings.config_model import Model

URI_CHARS = 1500
"""The length of the longest URI that Airflow keeps."""
RESERVED_SCHEME = "airflow"
BY_HAND = "by hand"
ASSET_SCHEME = "x-cleantail"
"""The scheme of topics' assets. Airflow leaves URIs of schemes that begin with x- as they are, and normalizes others by
rules of its providers."""

_CRON = 'five cron fields such as "*/15 * * * *", or a preset such as "@daily"'
_URI = f"URIs of Airflow assets: printable ASCII without blanks, not {RESERVED_SCHEME}://"


def _cron(text: str) -> str:
    if not is_schedule(text):
        raise ValueError("not a schedule")
    return text


def _repeated(text: str) -> str:
    if text == "@once":
        raise ValueError("once is not beside assets")
    return _cron(text)


def _asset_uri(uri: str) -> str:
    """Returns a URI that Airflow's Asset takes whatever its scheme. Passwords in it were refused before (yaml_file)."""
    if not re.fullmatch(rf"[!-~]{{1,{URI_CHARS}}}", uri):
        raise ValueError("not a URI")
    try:
        refused = urlsplit(uri).scheme.lower() == RESERVED_SCHEME
    except ValueError:  # such as an IPv6 address that does not end
        refused = True
    if refused:
        raise ValueError("not a URI of an asset")
    return uri


def _not_empty(uris: tuple[str, ...]) -> tuple[str, ...]:
    if not uris or len(set(uris)) < len(uris):
        raise ValueError("no assets, or one twice")
    return uris


Cron = Annotated[
    str,
    AfterValidator(_cron),
    Field(json_schema_extra={"x-allowed": f"{_CRON}, null, or a mapping of cron and assets"}),
]
AssetUri = Annotated[str, AfterValidator(_asset_uri)]


class AssetSchedule(Model):
    """A schedule of several parts: by cron, and whenever all the assets have been updated since the last such run."""

    cron: Annotated[str, AfterValidator(_repeated)] | None = Field(
        default=None,
        description="When it runs by the clock as well.",
        json_schema_extra={"x-allowed": f"{_CRON}; not @once"},
    )
    assets: Annotated[tuple[AssetUri, ...], Field(strict=False), AfterValidator(_not_empty)] = Field(
        default=(),
        description="Airflow assets: when all have been updated since the last such run, the DAG runs.",
        json_schema_extra={"x-allowed": f"a list of different {_URI}", "minItems": 1, "uniqueItems": True},
    )


def _form(value: Any) -> str:
    return "mapping" if isinstance(value, dict | AssetSchedule) else "text"


Schedule = Annotated[
    Annotated[Cron, Tag("text")] | Annotated[AssetSchedule, Tag("mapping")],
    Discriminator(_form),
    Field(json_schema_extra={"x-tags": ["text", "mapping"]}),
]
"""`schedule:` of a topic: a cron line or preset, or a mapping."""


def topic_asset_uri(topic: str) -> str:
    """Returns the asset that a topic updates when something of it was published."""
    return f"{ASSET_SCHEME}://{topic}"


def parts_of(schedule: str | AssetSchedule | None) -> tuple[str | None, tuple[str, ...]]:
    """Returns (cron or preset, asset URIs) of any form of schedule; (None, ()) runs only by hand."""
    if isinstance(schedule, AssetSchedule):
        return schedule.cron, schedule.assets
    return schedule, ()


def schedule_text(schedule: str | AssetSchedule | None) -> str:
    """Returns what starts a run, as `*/15 * * * *, or after x-cleantail://orders`."""
    cron, assets = parts_of(schedule)
    after = [f"after {' and '.join(assets)}"] if assets else []
    return ", or ".join([*([cron] if cron else []), *after]) or BY_HAND

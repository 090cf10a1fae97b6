"""When a topic's DAG runs: by cron, after updates of Airflow assets, or both. The values of `schedule:` in YAML."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Discriminator, Field, Tag

from cleantail.config.config_model import Model

PRESETS = ("@once", "@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly")
_FIELDS = 5
_OF_CRON = re.compile(r"[0-9a-z*,/ -]+", re.IGNORECASE)
"""Characters of a cron line.

Letters are names of months and days, and `L`, the last day. `#`, `?` and `R(…)` are specific to croniter.
"""


def is_schedule(text: str) -> bool:
    """Return whether a text is a preset such as `@daily`, or a cron line that ever fires. 31 April never does."""
    from croniter import CroniterError, croniter

    if text in PRESETS:
        return True
    if len(text.split(" ")) != _FIELDS or not _OF_CRON.fullmatch(text):
        return False
    try:
        croniter(text, datetime(2000, 1, 1, tzinfo=UTC)).get_next(float)
    except (CroniterError, ValueError):
        return False
    return True


MOST_TICKS = 1_000
"""Longest list of moments, so that a replay takes seconds. A longer list is thinned out evenly."""
_MOST_STARTS = 100_000
"""Number of moments after which a list ends, for a clock that is centuries ahead."""
_PRESETS = {"@quarterly": "0 0 1 */3 *"}
"""Airflow's presets that croniter does not have -> their cron lines."""


def run_times(schedule: str | None, start_ms: int, end_ms: int, appends_ms: Iterable[int]) -> list[int]:
    """Return the moments of runs (Unix ms) in (start, end], ascending, at most MOST_TICKS.

    Without a moment of a schedule, a run after each append represents runs by hand.
    """
    times = _scheduled(schedule, start_ms, end_ms) if schedule and schedule != "@once" else []
    if not times:
        times = sorted({*appends_ms, end_ms})
    step = -(-len(times) // MOST_TICKS)
    return times[step - 1 :: step]


def run_before(schedule: str | None, now_ms: int) -> int | None:
    """Return when (Unix ms) the run before the present one was to start, or None.

    The present run belongs to the schedule's last moment up to `now_ms`, however late it starts. The run before it
    belongs to the moment before that.
    """
    from croniter import croniter

    if not schedule or schedule == "@once":
        return None
    try:
        times = croniter(_PRESETS.get(schedule, schedule), datetime.fromtimestamp((now_ms + 1) / 1000, UTC))
        return [int(times.get_prev(float) * 1000) for _ in range(2)][1]
    except (ValueError, OverflowError, OSError):  # the clock is beyond the calendar, or the schedule too rare
        return None


def _scheduled(schedule: str, start_ms: int, end_ms: int) -> list[int]:
    """Return the moments (Unix ms) of a cron line or preset in (start, end]."""
    from croniter import croniter

    cron_times = croniter(_PRESETS.get(schedule, schedule), datetime.fromtimestamp(start_ms / 1000, UTC))
    times: list[int] = []
    while len(times) < _MOST_STARTS and (at_ms := int(cron_times.get_next(float) * 1000)) <= end_ms:
        times.append(at_ms)
    return times


URI_CHARS = 1500
"""Airflow's longest URI."""
RESERVED_SCHEME = "airflow"
BY_HAND = "by hand"
ASSET_SCHEME = "x-cleantail"
"""Scheme of topics' assets. Airflow does not normalize a URI if its scheme begins with x-."""

_CRON = 'five cron fields such as "*/15 * * * *", or a preset such as "@daily"'
_URI = f"URIs of Airflow assets: printable ASCII without blanks, not {RESERVED_SCHEME}://"


def _cron(text: str) -> str:
    if not is_schedule(text):
        raise ValueError("not a schedule")
    return text


def _repeated(text: str) -> str:
    if text == "@once":
        raise ValueError("not repeated")
    return _cron(text)


def _asset_uri(uri: str) -> str:
    """Return a URI that Airflow's Asset accepts. yaml_file has already refused passwords in the URI."""
    if not re.fullmatch(rf"[!-~]{{1,{URI_CHARS}}}", uri):
        raise ValueError("not a URI")
    try:
        refused = urlsplit(uri).scheme.lower() == RESERVED_SCHEME
    except ValueError:  # such as an IPv6 address without its closing bracket
        refused = True
    if refused:
        raise ValueError("not a URI of an asset")
    return uri


def _not_empty(uris: tuple[str, ...]) -> tuple[str, ...]:
    if not uris or len(set(uris)) < len(uris):
        raise ValueError("no assets, or the same asset twice")
    return uris


Cron = Annotated[
    str,
    AfterValidator(_cron),
    Field(json_schema_extra={"x-allowed": f"{_CRON}, null, or a mapping of cron and assets"}),
]
AssetUri = Annotated[str, AfterValidator(_asset_uri)]


class AssetSchedule(Model):
    """A schedule of several parts: by cron, and after all assets have been updated since the last such run."""

    cron: Annotated[str, AfterValidator(_repeated)] | None = Field(
        default=None,
        description="When it also runs by the clock.",
        json_schema_extra={"x-allowed": f"{_CRON}; not @once"},
    )
    assets: Annotated[tuple[AssetUri, ...], Field(strict=False), AfterValidator(_not_empty)] = Field(
        default=(),
        description="Airflow assets. The DAG runs when all have been updated since the last such run.",
        json_schema_extra={"x-allowed": f"a list of different {_URI}", "minItems": 1, "uniqueItems": True},
    )


def _form(value: Any) -> str:
    return "mapping" if isinstance(value, dict | AssetSchedule) else "text"


Schedule = Annotated[
    Annotated[Cron, Tag("text")] | Annotated[AssetSchedule, Tag("mapping")],
    Discriminator(_form),
    Field(json_schema_extra={"x-tags": ["text", "mapping"]}),
]


def topic_asset_uri(topic: str) -> str:
    """Return the asset that a topic updates after each publish."""
    return f"{ASSET_SCHEME}://{topic}"


def parts_of(schedule: str | AssetSchedule | None) -> tuple[str | None, tuple[str, ...]]:
    """Return (cron or preset, asset URIs) of a schedule; (None, ()) runs only by hand."""
    if isinstance(schedule, AssetSchedule):
        return schedule.cron, schedule.assets
    return schedule, ()


def schedule_text(schedule: str | AssetSchedule | None) -> str:
    """Return what starts a run, such as `*/15 * * * *, or after x-cleantail://orders`."""
    cron, assets = parts_of(schedule)
    after = [f"after {' and '.join(assets)}"] if assets else []
    return ", or ".join([*([cron] if cron else []), *after]) or BY_HAND

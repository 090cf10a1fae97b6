"""When a topic's DAG runs: by cron, after updates of Airflow assets, or both. Holds what `schedule:` in YAML may be."""

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
"""The characters of a cron line. Letters are for names of months and days, and for `L`, the last day; `#`, `?` and
`R(…)` are croniter's own."""


def is_schedule(text: str) -> bool:
    """Returns whether a text is a preset as `@daily`, or a cron line of lists, ranges, steps, and names of months and
    days, of which a next moment comes: there is no 31 April."""
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
"""The longest list of moments, so that a history is replayed in seconds whatever its schedule. Of a longer list evenly
spaced moments are taken."""
_MOST_STARTS = 100_000
"""The number of moments after which a list ends, where the clock is centuries ahead."""
_PRESETS = {"@quarterly": "0 0 1 */3 *"}
"""Airflow's presets that the cron library does not know -> their cron lines."""


def run_times(schedule: str | None, start_ms: int, end_ms: int, appends_ms: Iterable[int]) -> list[int]:
    """Returns the moments of runs (Unix ms) in (start, end], ascending, at most MOST_TICKS.

    Without a schedule, or where the schedule has no moment in the interval, a run after each append stands for a
    person's.
    """
    times = _scheduled(schedule, start_ms, end_ms) if schedule and schedule != "@once" else []
    if not times:
        times = sorted({*appends_ms, end_ms})
    step = -(-len(times) // MOST_TICKS)
    return times[step - 1 :: step]


def run_before(schedule: str | None, now_ms: int) -> int | None:
    """Returns when (Unix ms) the run before the present one was to start, or None.

    The present run is that of the schedule's last moment up to `now_ms`, however long it waited to start. So the run
    before it is that of the last moment but one.
    """
    from croniter import croniter

    if not schedule or schedule == "@once":
        return None
    try:
        times = croniter(_PRESETS.get(schedule, schedule), datetime.fromtimestamp((now_ms + 1) / 1000, UTC))
        return [int(times.get_prev(float) * 1000) for _ in range(2)][1]
    except (ValueError, OverflowError, OSError):  # a clock that no calendar has, or too seldom a schedule
        return None


def _scheduled(schedule: str, start_ms: int, end_ms: int) -> list[int]:
    """Returns the moments (Unix ms) of a cron line or preset in (start, end]."""
    from croniter import croniter

    cron_times = croniter(_PRESETS.get(schedule, schedule), datetime.fromtimestamp(start_ms / 1000, UTC))
    times: list[int] = []
    while len(times) < _MOST_STARTS and (at_ms := int(cron_times.get_next(float) * 1000)) <= end_ms:
        times.append(at_ms)
    return times


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

"""The page's templates, and in which words they show numbers and times."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cleantail import human
from cleantail.config.run_schedule import schedule_text
from cleantail.rounds.round_work import clocks_differ

HERE = Path(__file__).parent


def _templates() -> Environment:
    """Everything that is filled in is escaped, in every template; a name that is not there is an error."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "size": human.size,
        "instant": human.instant,
        "duration": human.duration,
        "ago": human.ago,
        "readable_reason": human.readable_reason,
        "schedule_text": schedule_text,
        "count": "{:,}".format,
        "ratio": "{:.2f}".format,
        "px": "{:.1f}".format,
        "clocks_differ": clocks_differ,
    }
    return made


TEMPLATES = _templates()

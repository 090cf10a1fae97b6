"""The page's templates, the filters by which they show numbers and times, and where its style sheets are."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cleantail import human
from cleantail.config.run_schedule import schedule_text
from cleantail.rounds.evidence_row import clocks_differ

HERE = Path(__file__).parent
STATIC = HERE / "static"
"""The folder of the style sheets, scripts and images of the pages."""


def _templates() -> Environment:
    """Makes the templates' environment: it escapes whatever is filled in, and a name that is not there is an error."""
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
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
    return environment


TEMPLATES = _templates()

"""Writes the generated parts of README.md: `python -m cleantail.readme`. A test pins them."""

from __future__ import annotations

import re
from pathlib import Path

from cleantail.config_reference import reference_markdown
from cleantail.events import MEANING
from cleantail.metrics import metrics_markdown
from cleantail.rules import RULES

README = Path(__file__).resolve().parents[1] / "README.md"


def rules_markdown() -> str:
    """The checks of every round as a table."""
    rows = [f"| `{measure}` | {rule} |" for measure, rule in RULES.items()]
    return "\n".join(["| measure | rule |", "|---|---|", *rows]) + "\n"


def events_markdown() -> str:
    """What alerts can be about as a table."""
    rows = [f"| `{event.value}` | {meaning} |" for event, meaning in MEANING.items()]
    return "\n".join(["| event | when |", "|---|---|", *rows]) + "\n"


def filled(text: str) -> str:
    """The README's text with its generated parts as they should be."""
    parts = {
        "rules": rules_markdown(),
        "events": events_markdown(),
        "metrics": metrics_markdown(),
        "reference": reference_markdown(),
    }
    for name, part in parts.items():
        pattern = rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)"
        text = re.sub(pattern, lambda m, part=part: f"{m[1]}{part}{m[2]}", text, flags=re.DOTALL)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    README.write_text(filled(README.read_text()))

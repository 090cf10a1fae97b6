"""Writes the generated parts of pages in docs/: `python -m docs_site.generated`. A test compares them.

A generated part is between `<!-- generated: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from cleantail.config.alert_channels import MEANING
from cleantail.config.config_reference import reference_markdown
from cleantail.lake.client_properties import NAMES
from cleantail.log.rules import RULES
from cleantail.watch.glossary import glossary_markdown
from cleantail.watch.metrics import metrics_markdown
from docs_site.command_reference import as_markdown

ROOT = Path(__file__).resolve().parents[1]


def pages() -> Iterator[Path]:
    """Yield the Markdown files at the top of the repository, and the pages of docs/."""
    yield from sorted(ROOT.glob("*.md"))
    yield from sorted((ROOT / "docs").rglob("*.md"))


def rules_markdown() -> str:
    """Return the checks of every round as a table."""
    rows = [f"| `{measure}` | {rule} |" for measure, rule in RULES.items()]
    return "\n".join(["| measure | rule |", "|---|---|", *rows]) + "\n"


def events_markdown() -> str:
    """Return the events of alerts as a table."""
    rows = [f"| `{event.value}` | {meaning} |" for event, meaning in MEANING.items()]
    return "\n".join(["| event | when |", "|---|---|", *rows]) + "\n"


def property_names_markdown() -> str:
    """Return the properties that the two catalog clients name differently, as a table."""
    rows = [f"| `{row.java}` | `{row.pyiceberg}` | {row.note} |" for row in NAMES]
    return "\n".join(["| Java (Spark) | PyIceberg | value |", "|---|---|---|", *rows]) + "\n"


def generated_parts() -> Mapping[str, str]:
    """Return the name of each generated part -> its Markdown, made from the models that the code uses."""
    return {
        "rules": rules_markdown(),
        "events": events_markdown(),
        "metrics": metrics_markdown(),
        "reference": reference_markdown(),
        "commands": as_markdown(),
        "property names": property_names_markdown(),
        "glossary": glossary_markdown(),
    }


def filled(text: str) -> str:
    """Return a page's text with its generated parts renewed."""
    for name, part in generated_parts().items():
        pattern = rf"(?<=<!-- generated: {name} -->\n).*?(?=<!-- end -->)"
        text = re.sub(pattern, part.replace("\\", r"\\"), text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    for page in pages():
        page.write_text(filled(page.read_text()))

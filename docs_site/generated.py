"""Write the generated parts of pages in docs/: `python -m docs_site.generated`. A test compares them.

A generated part is between `<!-- generated: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from cleantail.config.alert_channels import MEANING
from cleantail.lake.client_properties import NAMES
from cleantail.log.rules import RULES
from cleantail.watch.glossary import GLOSSARY
from cleantail.watch.metrics import METRICS, Metric
from docs_site.command_reference import as_markdown
from docs_site.config_reference import reference_markdown

ROOT = Path(__file__).resolve().parents[1]


def pages() -> Iterator[Path]:
    """Yield the Markdown files at the top of the repository, and the pages of docs/."""
    yield from sorted(ROOT.glob("*.md"))
    yield from sorted((ROOT / "docs").rglob("*.md"))


def generated_parts() -> Mapping[str, str]:
    """Return the name of each generated part -> its Markdown, made from the models that the code uses."""
    names = ((f"`{row.java}`", f"`{row.pyiceberg}`", row.note) for row in NAMES)
    return {
        "rules": _table(("measure", "rule"), ((f"`{measure}`", rule) for measure, rule in RULES.items())),
        "events": _table(("event", "when"), ((f"`{event.value}`", meaning) for event, meaning in MEANING.items())),
        "metrics": _table(("metric", "kind", "labels", "sent by the task", "meaning"), map(_metric, METRICS)),
        "reference": reference_markdown(),
        "commands": as_markdown(),
        "property names": _table(("Java (Spark)", "PyIceberg", "value"), names),
        "glossary": _table(("word", "meaning"), GLOSSARY.items()),
    }


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (f"| {' | '.join(row)} |" for row in (head, *rows))
    first = next(lines)
    return "\n".join([first, "|" + "---|" * len(head), *lines]) + "\n"


def _metric(metric: Metric) -> Sequence[str]:
    name = f"`{metric.name}`{' (Kafka)' if metric.kafka else ''}"
    return name, metric.kind, ", ".join(metric.labels) or "-", metric.sent_by or "-", metric.meaning


def filled(text: str) -> str:
    """Return a page's text with its generated parts renewed."""
    for name, part in generated_parts().items():
        pattern = rf"(?<=<!-- generated: {name} -->\n).*?(?=<!-- end -->)"
        text = re.sub(pattern, part.replace("\\", r"\\"), text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    for page in pages():
        page.write_text(filled(page.read_text()))

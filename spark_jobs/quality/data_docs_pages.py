"""Data Docs as Great Expectations builds them here: our own renderers and pages in its site.

Its own pages take styles and scripts from the internet, say "Data asset: None" and write what was found in the data as
it is into their HTML. These name topic, partitions, kind, round and status in words, hold no script, and escape every
text. Great Expectations makes the renderers and the view by the names in SITE.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from cleantail.human import counted
from cleantail.rounds.checked.check_results import kept_result, observed_text
from spark_jobs.quality import data_docs_html
from spark_jobs.quality.data_docs_html import GENERATOR
from spark_jobs.quality.evaluation_errors import error_in

HERE = __name__
SHOWN_CHARS = 300
NEWEST = 300
"""Validations on the index; older pages stay where they are."""
ALONE = 8
"""So many logs that broke a rule have a validation of their own; further ones have one together."""
HEAD_CHARS = 2000
"""In the beginning of a page it says who made it."""
VIEW = {"module_name": data_docs_html.__name__, "class_name": "Page"}
SITE: dict[str, Any] = {
    "class_name": "SiteBuilder",
    "show_how_to_buttons": False,
    "store_backend": {
        "class_name": "TupleFilesystemStoreBackend",
        "base_directory": "uncommitted/data_docs/local_site/",
    },
    "site_index_builder": {
        "class_name": "DefaultSiteIndexBuilder",
        "validation_results_limit": NEWEST,
        "renderer": {"module_name": HERE, "class_name": "IndexRenderer"},
        "view": VIEW,
    },
    "site_section_builders": {
        "expectations": "None",
        "validations": {
            "class_name": "DefaultSiteSectionBuilder",
            "source_store_name": "validation_results_store",
            "renderer": {"module_name": HERE, "class_name": "ValidationRenderer"},
            "view": VIEW,
        },
    },
}
SUITES = {"round": "rules of the round", "records": "the topic's own checks"}
"""Name of a suite -> what it checks."""
SUBJECT = "cleantail"
PARTITION_UNKNOWN = "partition not recorded"
SEPARATOR = " · "
NAMED = 8
"""So many partitions are named one by one."""


def subject(kind: str, partitions: Sequence[int]) -> dict[str, Any]:
    """Returns what each expectation carries as its `meta`: GX hands nothing else back with the results."""
    return {SUBJECT: {"kind": kind, "partitions": sorted(partitions)}}


def batch_name(partitions: Sequence[int]) -> str:
    """Returns `partition 3`, `partitions 0, 1` or `40 partitions`."""
    if len(partitions) == 1:
        return f"partition {partitions[0]}"
    some = len(partitions) <= NAMED
    return f"partitions {', '.join(map(str, partitions))}" if some else counted(len(partitions), "partition")


def apart(red: Sequence[int], logs: Sequence[int]) -> list[list[int]]:
    """Groups the logs by validation: those that broke a rule have one each, and where they are too many the rest share
    one."""
    green = [p for p in logs if p not in red]
    return [group for group in [*([p] for p in red[:ALONE]), list(red[ALONE:]), green] if group]


def build(context: Any, index: Path, results: Sequence[Any]) -> None:
    """Writes the pages of these validations and the index; those of an earlier version are all written anew."""
    ours = index.exists() and GENERATOR in index.read_text(errors="replace")[:HEAD_CHARS]
    context.build_data_docs(resource_identifiers=list(results) if ours else None)


class ValidationRenderer:
    """GX's renderer of one validation. The topic is the name of the directory of the GX project."""

    def __init__(self, data_context: Any) -> None:
        self._topic = _topic_of(data_context)

    def render(self, validation: Any) -> dict[str, Any]:
        """Returns what Page shows of an ExpectationSuiteValidationResult."""
        run = validation.meta["run_id"]
        run = run if isinstance(run, Mapping) else run.to_json_dict()
        round_name, checked = str(run["run_name"]), _utc(str(run["run_time"]))
        kind, partitions = _subject_of(validation)
        what, status = SUITES.get(validation.suite_name, validation.suite_name), _status(validation.success)
        passed = sum(bool(result.success) for result in validation.results)
        return {
            "topic": self._topic,
            "title": SEPARATOR.join((self._topic, partitions, f"{kind} {round_name}", what, status)),
            "heading": f"{self._topic}, {partitions}: {status}",
            "up": "../../../../index.html",
            "facts": [
                ("Status", status),
                ("Topic", self._topic),
                ("Partitions", partitions),
                ("Kind", kind),
                ("Round", round_name),
                ("Checked", f"{checked} UTC"),
                ("Suite", what),
                ("Expectations", f"{passed} of {len(validation.results)} met"),
            ],
            "head": ["Status", "Expectation", "Severity", "Observed"],
            "rows": [_result_row(result) for result in validation.results],
        }


class IndexRenderer:
    """GX's renderer of the index: one line a validation, newest first."""

    def __init__(self, data_context: Any) -> None:
        self._topic = _topic_of(data_context)
        self._site = Path(data_context.root_directory) / SITE["store_backend"]["base_directory"]

    def render(self, links: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what Page shows of GX's list of links."""
        return {
            "topic": self._topic,
            "title": f"{self._topic} · Data Docs",
            "heading": f"Data Docs of {self._topic}",
            "up": "",
            "facts": [],
            "head": ["Status", "Partitions", "Kind", "Round", "Checked (UTC)", "Suite"],
            "rows": [self._row(link) for link in links.get("validations_links", ())],
        }

    def _row(self, link: Mapping[str, Any]) -> list[dict[str, Any]]:
        """GX's list has neither kind nor partitions: the title of the page has them."""
        title = title_in(self._site / unquote(link["filepath"]))
        _, partitions, round_, suite, status = title or ("", PARTITION_UNKNOWN, str(link["run_name"]), "", "")
        kind, _, name = round_.rpartition(" ")
        return [
            {"text": status or _status(link["validation_success"]), "status": True},
            {"text": partitions, "href": link["filepath"]},
            *({"text": text} for text in (kind, name, _utc(str(link["run_time"])), suite)),
        ]


def title_in(page: Path) -> tuple[str, ...] | None:
    """Returns (topic, partitions, kind and round, suite, status) as the title of a validation's page has them."""
    with page.open(errors="replace") as text:
        title = re.search("<title>(.*?)</title>", text.read(HEAD_CHARS), re.DOTALL)
    parts = tuple(unescape(title[1]).split(SEPARATOR)) if title else ()
    return parts if len(parts) == 5 else None


def _topic_of(data_context: Any) -> str:
    return Path(data_context.root_directory).parent.name


def _subject_of(validation: Any) -> tuple[str, str]:
    """Returns the kind of the round and its partitions as people read them. What an earlier version has checked does
    not say them."""
    metas = [result.expectation_config.meta or {} for result in validation.results]
    subject_meta = next((meta[SUBJECT] for meta in metas if SUBJECT in meta), None)
    return (
        (subject_meta["kind"], batch_name(subject_meta["partitions"]))
        if subject_meta
        else ("kind not recorded", PARTITION_UNKNOWN)
    )


def _status(success: Any) -> str:
    return "passed" if success else "failed"


def _utc(at: str) -> str:
    """Returns a moment, which GX writes in ISO's form with a zone, as UTC."""
    try:
        return datetime.fromisoformat(at).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return at


def _result_row(result: Any) -> list[dict[str, Any]]:
    config = result.expectation_config
    severity = str(getattr(config.severity, "value", config.severity) or "critical")
    kwargs = [f"{k}: {_short(v)}" for k, v in config.kwargs.items() if k not in ("batch_id", "severity")]
    rule = (config.meta or {}).get("rule")
    name = {"text": config.kwargs["column"], "points": [rule]} if rule else {"text": config.type, "points": kwargs}
    return [{"text": _status(result.success), "status": True}, name, {"text": severity}, _observed(result)]


def _observed(result: Any) -> dict[str, Any]:
    """Returns what an expectation observed, as a text; where it could not be evaluated, the reason. Of records it shows
    nothing but counts and offsets: what an earlier version has left in the store is stripped by the same rule."""
    if error := error_in(result):
        return {"text": _short(error)}
    result_document, config = result.result or {}, result.expectation_config
    is_rule = bool((config.meta or {}).get("rule"))
    rows = result_document.get("unexpected_index_list", [] if result.success else None)
    if is_rule and rows is not None:
        column = config.kwargs.get("column")
        return {
            "text": "" if rows else "0 violations",
            "points": [f"partition {r['partition']}: {r.get(column)} violations" for r in rows],
        }
    return {"text": _short(observed_text(kept_result(config.type, config.kwargs, result_document)) or "–")}


def _short(value: Any) -> str:
    """Returns the value on one line of bounded length."""
    text = str(value)
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"

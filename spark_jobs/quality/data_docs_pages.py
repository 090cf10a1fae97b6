"""Says what the pages of Data Docs show: results of Great Expectations, in our own words.

Its own pages take styles and scripts from the internet, say "Data asset: None" and write what was found in the data as
it is into their HTML. These name topic, partitions, kind, round and status in words, hold no script, and escape every
text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cleantail.home.home_folder import HEAD_CHARS
from cleantail.human import counted
from cleantail.rounds.check_results import kept_result, observed_text
from spark_jobs.quality.evaluation_errors import error_in

SHOWN_CHARS = 300
ALONE = 8
"""So many logs that broke a rule have a validation of their own; further ones have one together."""
SUITES = {"round": "rules of the round", "records": "the topic's own checks"}
"""Name of a suite -> what it checks."""
SUBJECT = "cleantail"
PARTITION_UNKNOWN = "partition not recorded"
SEPARATOR = " · "
NAMED = 8
"""So many partitions are named one by one."""


def subject(kind: str, partitions: Sequence[int]) -> dict[str, Any]:
    """Returns what each expectation carries as its `meta`: Great Expectations hands nothing else back with the
    results."""
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


def validation_content(topic: str, validation: Any) -> dict[str, Any]:
    """Returns what the page of an ExpectationSuiteValidationResult shows."""
    run = validation.meta["run_id"].to_json_dict()
    round_name, checked = str(run["run_name"]), _utc(str(run["run_time"]))
    kind, partitions = _subject_of(validation)
    what, status = SUITES.get(validation.suite_name, validation.suite_name), _status(validation.success)
    passed = sum(bool(result.success) for result in validation.results)
    return {
        "topic": topic,
        "title": SEPARATOR.join((topic, partitions, f"{kind} {round_name}", what, status)),
        "heading": f"{topic}, {partitions}: {status}",
        "up": "../../../../index.html",
        "facts": [
            ("Status", status),
            ("Topic", topic),
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


@dataclass(frozen=True, slots=True)
class ListedPage:
    """Describes a page as the index lists it. `path`: relative to the index, validations/SUITE/ROUND/TIME/BATCH.html;
    `title`: (topic, partitions, kind and round, suite, status), empty where the page is of an earlier version."""

    path: str
    title: tuple[str, ...] = ()

    @classmethod
    def of(cls, site: Path, file: Path) -> ListedPage:
        """Reads the title of a page."""
        return cls(file.relative_to(site).as_posix(), title_in(file) or ())


def index_content(topic: str, pages: Iterable[ListedPage]) -> dict[str, Any]:
    """Returns what the index shows: a line for each of these pages."""
    return {
        "topic": topic,
        "title": f"{topic} · Data Docs",
        "heading": f"Data Docs of {topic}",
        "up": "",
        "facts": [],
        "head": ["Status", "Partitions", "Kind", "Round", "Checked (UTC)", "Suite"],
        "rows": [_index_row(page) for page in pages],
    }


def _index_row(listed: ListedPage) -> list[dict[str, Any]]:
    """Returns the line of a page, whose title says of what it is."""
    suite_name, round_name, time = listed.path.split("/")[-4:-1]
    _, partitions, round_, suite, status = listed.title or ("", PARTITION_UNKNOWN, round_name, suite_name, "")
    kind, _, name = round_.rpartition(" ")
    return [
        {"text": status or "not recorded", "status": True},
        {"text": partitions, "href": quote(listed.path)},
        *({"text": text} for text in (kind, name, _utc(time), suite)),
    ]


def title_in(page: Path) -> tuple[str, ...] | None:
    """Returns (topic, partitions, kind and round, suite, status) as the title of a validation's page has them."""
    with page.open(errors="replace", encoding="utf-8") as text:
        title = re.search("<title>(.*?)</title>", text.read(HEAD_CHARS), re.DOTALL)
    parts = tuple(unescape(title[1]).split(SEPARATOR)) if title else ()
    return parts if len(parts) == 5 else None


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
    """Returns a moment in ISO's form with a zone, long or short, as UTC."""
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

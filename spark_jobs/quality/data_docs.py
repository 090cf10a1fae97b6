"""What is kept of a topic's validations: files of results, and pages of Data Docs, here and in a store.

No key or value of a record gets into them. A result is stripped as soon as it is there, and whoever reads results
(findings, Data Docs) has the same object: so nothing ever sees more than what is stored. The files are those of Great
Expectations' own store: its JSON, at SUITE/ROUND/TIME/BATCH.json.

Great Expectations' own pages take styles and scripts from the internet, say "Data asset: None" and write what was found
in the data as it is into their HTML. Ours name topic, partitions, kind, round and status in words, hold no script, and
escape every text. Its own builder copies a megabyte of fonts and pictures for each topic, and looks at every page that
it has ever written. Ours writes what is new, and an index of the newest.

The driver writes the copies in a store (platform.data_docs), by the properties and the login with which it opens the
files of the warehouse. A driver on a cluster begins with an empty folder each time, so the list of the pages lies in
the store too, beside the index.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment

from cleantail.codec import Codec
from cleantail.config.platform import Platform
from cleantail.errors import TableError
from cleantail.home.home_folder import FOLDER, GENERATOR, HEAD_CHARS, make_folder, results_of, site_of
from cleantail.human import counted
from cleantail.lake.exchange import read_document, write_document
from cleantail.rounds.check_results import kept_result, observed_text
from spark_jobs.quality.evaluation import MEASURES, error_in, error_info


def strip(validation: Any) -> None:
    """Leaves of a validation of records what may be kept: counts and offsets. Measures are counts by partition."""
    if validation.suite_name == MEASURES:
        return
    for result in validation.results:
        config = result.expectation_config
        result.exception_info = error_info(result)
        result.result = kept_result(config.type, config.kwargs, result.result or {})
        result.rendered_content = None


def place_of(validation: Any, suffix: str) -> Path:
    """Returns where a file of the validation is, relative to the folder of all."""
    suite, run = validation.suite_name, validation.meta["run_id"]
    return Path(suite, *run.to_tuple(), f"{suite}-{suite}{suffix}")  # its data source and asset have its name


def write_result(store: Path, validation: Any) -> None:
    """Writes the result as JSON."""
    text = json.dumps(validation.to_json_dict(), indent=2, sort_keys=True)
    write_whole(store / place_of(validation, ".json"), text)


def write_whole(file: Path, text: str) -> None:
    """Writes a file that others read meanwhile: as it was, or as it is now."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, file)


_STYLE = """
:root { color-scheme: light dark; --line: #8886; --red: #b42318; --green: #1f6b3f; --link: #1557b0; }
@media (prefers-color-scheme: dark) { :root { --red: #ff9a90; --green: #8fdcae; --link: #8ab4f8; } }
body { font: 14px/1.5 system-ui, sans-serif; margin: 16px; max-width: 1200px; }
h1 { font-size: 20px; } a { color: var(--link); }
table { border-collapse: collapse; margin: 12px 0; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: 5px 10px; text-align: left; vertical-align: top; }
table.facts { width: auto; } td { overflow-wrap: anywhere; } ul { margin: 4px 0; padding-left: 18px; }
.failed { color: var(--red); font-weight: 600; } .passed { color: var(--green); }
"""
_PAGE = (
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
"""
    + GENERATOR
    + """
<title>{{ title }}</title>
<style>"""
    + _STYLE
    + """</style>
</head>
<body>
{% if up %}<p><a href="{{ up }}">All validations of {{ topic }}</a></p>{% endif %}
<h1>{{ heading }}</h1>
{% if facts %}<table class="facts">
{% for name, value in facts %}
<tr><th scope="row">{{ name }}</th><td{% if name == "Status" %} class="{{ value }}"{% endif %}>{{ value }}</td></tr>
{% endfor %}
</table>{% endif %}
<table>
<thead><tr>{% for name in head %}<th scope="col">{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in rows %}
<tr>
{% for cell in row %}
<td{% if cell.status %} class="{{ cell.text }}"{% endif %}>
{% if cell.href %}<a href="{{ cell.href }}">{{ cell.text }}</a>{% else %}{{ cell.text }}{% endif %}
{% if cell.points %}<ul>{% for point in cell.points %}<li>{{ point }}</li>{% endfor %}</ul>{% endif %}
</td>
{% endfor %}
</tr>
{% endfor %}
</tbody>
</table>
</body>
</html>
"""
)
_TEMPLATE = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(_PAGE)


def page(content: Mapping[str, Any]) -> str:
    """Returns a page as HTML, whole and without scripts; every text is escaped."""
    return _TEMPLATE.render(content)


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


NEWEST = 300
"""Validations on the index; older pages stay where they are."""


def write_pages(site: Path, topic: str, validations: Iterable[Any]) -> list[Path]:
    """Writes the pages of these validations, and the index again. Returns the pages."""
    index, written = site / "index.html", []
    for validation in validations:
        html = page(validation_content(topic, validation))
        file = site / "validations" / place_of(validation, ".html")
        write_whole(file, html)
        written.append(file)
    write_whole(index, page(index_content(topic, [ListedPage.of(site, file) for file in _newest(site)])))
    return written


def _newest(site: Path) -> list[Path]:
    """Returns the newest pages, newest first, by the time in their path: validations/SUITE/ROUND/TIME/BATCH.html."""
    pages = (site / "validations").glob("*/*/*/*.html")
    return sorted(pages, key=lambda file: file.parts[-2], reverse=True)[:NEWEST]


LIST = "pages.json"
_LIST_JSON: Codec[tuple[ListedPage, ...]] = Codec(tuple[ListedPage, ...])
logger = logging.getLogger("cleantail.expectations")


@dataclass(frozen=True)
class DocsStore:
    """Describes the folder of one topic's Data Docs in a store."""

    platform: Platform
    topic: str

    @classmethod
    def of(cls, platform: Platform, topic: str) -> DocsStore | None:
        """Returns the topic's folder, None where the platform names no store."""
        return cls(platform, topic) if platform.data_docs else None

    @property
    def index(self) -> str:
        """Returns the address of the index."""
        return self._address("index.html")

    def copy(self, site: Path, written: Iterable[Path]) -> None:
        """Copies these pages of a site, and lists them in the index of the store. A failure of it fails no round."""
        try:
            self._copy(site, list(written))
        except Exception as error:  # whatever the store's client raises; its text is of the store and not ours
            logger.warning("Data Docs were not copied to %s: %s", self.platform.data_docs, type(error).__name__)

    def _copy(self, site: Path, written: list[Path]) -> None:
        # 1. the pages, so that no index lists one that is not there
        for file in written:
            self._write(file.relative_to(site).as_posix(), file.read_text(encoding="utf-8"))
        # 2. the list, newest first
        pages = {listed.path: listed for listed in self._listed()}
        pages |= {listed.path: listed for listed in (ListedPage.of(site, file) for file in written)}
        newest = sorted(pages.values(), key=lambda listed: listed.path.split("/")[-2], reverse=True)[:NEWEST]
        self._write(LIST, _LIST_JSON.text(tuple(newest)))
        # 3. the index
        self._write("index.html", page(index_content(self.topic, newest)))

    def _listed(self) -> tuple[ListedPage, ...]:
        text = read_document(self.platform, self._address(LIST))
        try:
            return _LIST_JSON.value(text or "[]", LIST)
        except TableError:  # half of one, which a killed driver has left
            return ()

    def _write(self, name: str, text: str) -> None:
        write_document(self.platform, self._address(name), text)

    def _address(self, name: str) -> str:
        return f"{(self.platform.data_docs or '').rstrip('/')}/{self.topic}/{name}"


_WRITING: dict[Path, threading.Thread] = {}
"""Who writes Data Docs, by directory."""
_PROBLEMS: dict[str, str] = {}
"""Why Data Docs were not written, by the address of their index."""


def data_docs_problem(address: str) -> str | None:
    """Wait until this process has written Data Docs, and return why those with an index there were not; None if they
    were."""
    for thread in list(_WRITING.values()):
        thread.join()
    return _PROBLEMS.get(address)


class Project:
    """Holds the validations of one look at a topic, until they are written. Directory:
    CLEANTAIL_HOME/data_docs/<topic>."""

    def __init__(self, home: Path, topic: str, store: DocsStore | None = None) -> None:
        """Takes whose validations these are. `store`: where Data Docs are copied to, None for nowhere."""
        self._home, self._topic = home, topic
        self._store = store
        self._root = home / FOLDER / topic
        self._validations: list[Any] = []

    @property
    def data_docs(self) -> str:
        """Returns where the index is that others can read: in the store, where there is one."""
        return self._store.index if self._store else str(site_of(self._home, self._topic) / "index.html")

    @property
    def validations(self) -> int:
        """Returns how many validations were made, and not forgotten."""
        return len(self._validations)

    def keep(self, validation: Any) -> list[Any]:
        """Takes a validation in, without what records hold, and returns the result of each of its expectations."""
        strip(validation)
        self._validations.append(validation)
        return list(validation.results)

    def forget_all_after(self, count: int) -> None:
        """Forgets the validations of several logs of which one failed: each log then has one of its own, and Data Docs
        show those."""
        del self._validations[count:]

    def begin_data_docs(self) -> None:
        """Writes what was validated, and pages of it, beside what follows. The next audit of the topic waits for it,
        and so does the end of the process."""
        before = _WRITING.get(self._root)
        _WRITING[self._root] = threading.Thread(target=self._write, args=(before,), name="cleantail-data-docs")
        _WRITING[self._root].start()

    def _write(self, before: threading.Thread | None) -> None:
        """Writes results and Data Docs. A failure of it fails no round, since the results are in the evidence table
        too."""
        if before is not None:
            before.join()
        try:
            make_folder(self._home, FOLDER, self._topic)
            store = results_of(self._home, self._topic)
            for validation in self._validations:
                write_result(store, validation)
            site = site_of(self._home, self._topic)
            written = write_pages(site, self._topic, self._validations)
            if self._store is not None:
                self._store.copy(site, written)
            _PROBLEMS.pop(self.data_docs, None)
        except Exception as e:  # else the thread would end in silence
            # of another error than a disk's the text may quote what was checked
            _PROBLEMS[self.data_docs] = str(e) if isinstance(e, OSError) else type(e).__name__
            logger.warning("Data Docs were not written: %s", _PROBLEMS[self.data_docs])

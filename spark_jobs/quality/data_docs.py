"""Store a topic's validations: result files and Data Docs pages, in a local folder and in an optional store.

The files never contain a key or value of a record. A result is stripped as soon as it exists, and findings and Data
Docs read the stripped object. The files have the format of Great Expectations' own store: JSON at
SUITE/ROUND/TIME/BATCH.json.

The pages replace Great Expectations' own, which load styles and scripts from the internet, show "Data asset: None",
and write values of the data into their HTML. These pages have the topic, partitions, kind, round and status, contain
no script, and escape every text. Only new pages and an index of the newest are written. Great Expectations' builder
reads every page again, and copies a megabyte of fonts and pictures for each topic.

The driver copies pages to the store (platform.data_docs) with the properties and login of the warehouse's files. A
driver on a cluster starts with an empty folder, so the list of pages is also in the store.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import logging
import os
import re
import shutil
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
from cleantail.config.topic import Topic
from cleantail.errors import TableError
from cleantail.home.home_folder import FOLDER, GENERATOR, HEAD_CHARS, make_folder, results_of, site_of
from cleantail.human import counted
from cleantail.lake.exchange import read_document, write_document
from cleantail.log.work_units import round_name
from cleantail.rounds.check_results import kept_result, observed_text
from spark_jobs.quality.time_limit import MEASURES, error_in, error_info


def strip(validation: Any) -> None:
    """Remove all but counts and offsets from a validation of records. Measures are counts anyway."""
    if validation.suite_name == MEASURES:
        return
    for result in validation.results:
        config = result.expectation_config
        result.exception_info = error_info(result)
        result.result = kept_result(config.type, config.kwargs, result.result or {})
        result.rendered_content = None


def place_of(validation: Any, suffix: str) -> Path:
    """Return the path of a file of the validation, relative to the folder of all validations."""
    suite, run = validation.suite_name, validation.meta["run_id"]
    return Path(suite, *run.to_tuple(), f"{suite}-{suite}{suffix}")  # data source and asset are named like the suite


def write_whole(file: Path, text: str) -> None:
    """Write a file atomically, for concurrent readers."""
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
    """Render a whole HTML page without scripts. Every text is escaped."""
    return _TEMPLATE.render(content)


SHOWN_CHARS = 300
ALONE = 8
"""Maximum number of failed logs with their own validation. Further ones share one."""
ROUND_FOLDER = re.compile(r"\d{8}T\d{6}_\d{3}_")
"""The beginning of the name of a round (cleantail.log.work_units.round_name)."""
SUITES = {"round": "rules of the round", "records": "the topic's own checks"}
SUBJECT = "cleantail"
PARTITION_UNKNOWN = "partition not recorded"
SEPARATOR = " · "
NAMED = 8
"""Maximum number of partitions that are listed."""


def subject(kind: str, partitions: Sequence[int], records: int | None = None) -> dict[str, Any]:
    """Return the `meta` of an expectation, the only input that Great Expectations returns with the results. `records`:
    how many the round found in these partitions, None if the suite counts them itself."""
    counts = {} if records is None else {"records": records}
    return {SUBJECT: {"kind": kind, "partitions": sorted(partitions), **counts}}


def batch_name(partitions: Sequence[int]) -> str:
    """Return `partition 3`, `partitions 0, 1` or `40 partitions`."""
    if len(partitions) == 1:
        return f"partition {partitions[0]}"
    if len(partitions) <= NAMED:
        return f"partitions {', '.join(map(str, partitions))}"
    return counted(len(partitions), "partition")


def apart(red: Sequence[int], logs: Sequence[int]) -> list[list[int]]:
    """Group logs by validation: each of the first ALONE failed ones, the other failed ones, the passed ones."""
    green = [p for p in logs if p not in red]
    return [group for group in [*([p] for p in red[:ALONE]), list(red[ALONE:]), green] if group]


def validation_content(topic: str, validation: Any) -> dict[str, Any]:
    """Return the content of the page of an ExpectationSuiteValidationResult."""
    run = validation.meta["run_id"].to_json_dict()
    round_name, checked = str(run["run_name"]), _utc(str(run["run_time"]))
    kind, partitions = _subject_of(validation)
    what, status = SUITES.get(validation.suite_name, validation.suite_name), _status(validation.success)
    passed = sum(bool(result.success) for result in validation.results)
    # pages and logs count every check, also of one expectation on several partitions
    is_one = partitions == PARTITION_UNKNOWN or partitions.startswith("partition ")
    met = f"{passed} of {len(validation.results)} met{'' if is_one else f', each on {partitions}'}"
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
            ("Expectations", met),
        ],
        "head": ["Status", "Expectation", "Severity", "Observed"],
        "rows": [_result_row(result) for result in validation.results],
    }


@dataclass(frozen=True, slots=True)
class ListedPage:
    """A page in the index.

    path   relative to the index: validations/SUITE/ROUND/TIME/BATCH.html
    title  (topic, partitions, kind and round, suite, status); empty if the page has another one
    """

    path: str
    title: tuple[str, ...] = ()

    @classmethod
    def of(cls, site: Path, file: Path) -> ListedPage:
        return cls(file.relative_to(site).as_posix(), title_in(file) or ())


def index_content(topic: str, pages: Iterable[ListedPage]) -> dict[str, Any]:
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
    suite_name, round_name, time = listed.path.split("/")[-4:-1]
    _, partitions, round_, suite, status = listed.title or ("", PARTITION_UNKNOWN, round_name, suite_name, "")
    kind, _, name = round_.rpartition(" ")
    return [
        {"text": status or "not recorded", "status": True},
        {"text": partitions, "href": quote(listed.path)},
        *({"text": text} for text in (kind, name, _utc(time), suite)),
    ]


def title_in(page: Path) -> tuple[str, ...] | None:
    """Return (topic, partitions, kind and round, suite, status) from the title of a validation's page, or None."""
    with page.open(errors="replace", encoding="utf-8") as text:
        title = re.search("<title>(.*?)</title>", text.read(HEAD_CHARS), re.DOTALL)
    parts = tuple(unescape(title[1]).split(SEPARATOR)) if title else ()
    return parts if len(parts) == 5 else None


def _subject_of(validation: Any) -> tuple[str, str]:
    """Return the kind of the round and a text of its partitions. If the validation lacks them, the texts state that."""
    metas = [result.expectation_config.meta or {} for result in validation.results]
    found = next((meta[SUBJECT] for meta in metas if SUBJECT in meta), None)
    return (found["kind"], batch_name(found["partitions"])) if found else ("kind not recorded", PARTITION_UNKNOWN)


def _status(success: Any) -> str:
    return "passed" if success else "failed"


def _utc(at: str) -> str:
    """Convert a time in ISO format, with a zone, to UTC. Other texts stay."""
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
    """Return observed counts and offsets of records, or why the expectation could not be evaluated."""
    if error := error_in(result):
        return {"text": _short(error)}
    result_document, config = result.result or {}, result.expectation_config
    is_rule = bool((config.meta or {}).get("rule"))
    rows = result_document.get("unexpected_index_list", [] if result.success else None)
    if is_rule and rows is not None:
        column, records = config.kwargs.get("column"), (config.meta or {}).get(SUBJECT, {}).get("records")
        of = "" if records is None else f" in {counted(records, 'record')}"
        return {
            "text": "" if rows else f"0 violations{of}",
            "points": [f"partition {r['partition']}: {r.get(column)} violations" for r in rows],
        }
    return {"text": _short(observed_text(kept_result(config.type, config.kwargs, result_document)) or "–")}


def _short(value: Any) -> str:
    text = str(value)
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


NEWEST = 300
"""Maximum number of validations in the index. Older pages stay until their retention ends."""


def write_pages(site: Path, topic: str, validations: Iterable[Any]) -> list[Path]:
    """Write the pages of these validations, and the index. Returns the pages."""
    written = []
    for validation in validations:
        file = site / "validations" / place_of(validation, ".html")
        write_whole(file, page(validation_content(topic, validation)))
        written.append(file)
    # SUITE/ROUND/TIME/BATCH.html; only the newest rounds are opened, because a year has tens of thousands
    rounds = heapq.nlargest(NEWEST, (site / "validations").glob("*/*"), key=lambda folder: folder.name)
    pages = (file for folder in rounds for file in folder.glob("*/*.html"))
    newest = sorted(pages, key=lambda file: file.parts[-2], reverse=True)[:NEWEST]
    write_whole(site / "index.html", page(index_content(topic, [ListedPage.of(site, file) for file in newest])))
    return written


def remove_results(topic: Topic, until_ms: int) -> int:
    """Remove results and pages of rounds past cleantail.evidence.retention.ms, by the clock in their folder's name.
    Returns the number of files. Pages in a store stay."""
    home, before_ms = topic.platform.home, until_ms - topic.config.cleantail_evidence_retention_ms
    oldest, site, removed = round_name(max(before_ms, 0), 0), site_of(home, topic.topic), 0
    for kept in (results_of(home, topic.topic), site / "validations"):
        for folder in kept.glob("*/*"):
            if ROUND_FOLDER.match(folder.name) and folder.name < oldest and not folder.is_symlink():
                removed += sum(file.is_file() for file in folder.rglob("*"))
                shutil.rmtree(folder)
    if removed:
        for thread in list(_WRITING.values()):  # a thread may be writing the same index
            thread.join()
        write_pages(site, topic.topic, ())
    return removed


def stored_results_bytes(topic: Topic) -> int:
    """Return the bytes of the topic's results and pages in the home."""
    total = 0
    for folder, _, names in os.walk(results_of(topic.platform.home, topic.topic).parent):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # a page gets its final name when it is complete
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


LIST = "pages.json"
_LIST_JSON: Codec[tuple[ListedPage, ...]] = Codec(tuple[ListedPage, ...])
logger = logging.getLogger("cleantail.expectations")


@dataclass(frozen=True)
class DocsStore:
    """The folder of one topic's Data Docs in a store."""

    topic: Topic

    @classmethod
    def of(cls, topic: Topic) -> DocsStore | None:
        """Return the topic's folder, or None if the platform has no store."""
        return cls(topic) if topic.platform.data_docs else None

    @property
    def index(self) -> str:
        return self._address("index.html")

    def copy(self, site: Path, written: Iterable[Path]) -> None:
        """Copy these pages of a site, and add them to the store's index. A failure is only logged."""
        try:
            self._copy(site, list(written))
        except Exception as error:  # any error of the store's client; its text is not safe to log
            logger.warning("Data Docs were not copied to %s: %s", self.topic.platform.data_docs, type(error).__name__)

    def _copy(self, site: Path, written: list[Path]) -> None:
        # 1. the pages, so that the index never lists a missing one
        for file in written:
            self._write(file.relative_to(site).as_posix(), file.read_text(encoding="utf-8"))
        # 2. the list, newest first
        pages = {listed.path: listed for listed in self._listed()}
        pages |= {listed.path: listed for listed in (ListedPage.of(site, file) for file in written)}
        newest = sorted(pages.values(), key=lambda listed: listed.path.split("/")[-2], reverse=True)[:NEWEST]
        self._write(LIST, _LIST_JSON.text(tuple(newest)))
        # 3. the index
        self._write("index.html", page(index_content(self.topic.topic, newest)))

    def _listed(self) -> tuple[ListedPage, ...]:
        text = read_document(self.topic.platform, self._address(LIST))
        try:
            return _LIST_JSON.value(text or "[]", LIST)
        except TableError:  # a killed driver left it incomplete
            return ()

    def _write(self, name: str, text: str) -> None:
        write_document(self.topic.platform, self._address(name), text)

    def _address(self, name: str) -> str:
        return f"{(self.topic.platform.data_docs or '').rstrip('/')}/{self.topic.topic}/{name}"


_WRITING: dict[Path, threading.Thread] = {}
"""Folder -> thread that writes its Data Docs."""
_PROBLEMS: dict[str, str] = {}
"""Address of an index -> why its Data Docs were not written."""


def data_docs_problem(address: str) -> str | None:
    """Wait until this process has written all Data Docs. Returns why those of this index were not written, or None."""
    for thread in list(_WRITING.values()):
        thread.join()
    return _PROBLEMS.get(address)


class Project:
    """The validations of one check of a topic, for its folder in CLEANTAIL_HOME/data_docs, and a copy in `store`."""

    def __init__(self, home: Path, topic: str, store: DocsStore | None = None) -> None:
        self._home, self._topic = home, topic
        self._store = store
        self._root = home / FOLDER / topic
        self._validations: list[Any] = []

    @property
    def data_docs(self) -> str:
        """Return the address of the index: in the store, if there is one."""
        return self._store.index if self._store else str(site_of(self._home, self._topic) / "index.html")

    @property
    def validations(self) -> int:
        return len(self._validations)

    def keep(self, validation: Any) -> list[Any]:
        """Strip and keep a validation. Returns the result of each of its expectations."""
        strip(validation)
        self._validations.append(validation)
        return list(validation.results)

    def forget_all_after(self, count: int) -> None:
        """Forget later validations, which covered several logs: Data Docs show one per log after a failure."""
        del self._validations[count:]

    def begin_data_docs(self) -> None:
        """Write results and Data Docs in the background. The topic's next check and the end of the process wait."""
        before = _WRITING.get(self._root)
        _WRITING[self._root] = threading.Thread(target=self._write, args=(before,), name="cleantail-data-docs")
        _WRITING[self._root].start()

    def _write(self, before: threading.Thread | None) -> None:
        """Write results and Data Docs. A failure does not fail the round: the evidence table has the results too."""
        if before is not None:
            before.join()
        try:
            make_folder(self._home, FOLDER, self._topic)
            store = results_of(self._home, self._topic)
            for validation in self._validations:
                text = json.dumps(validation.to_json_dict(), indent=2, sort_keys=True)
                write_whole(store / place_of(validation, ".json"), text)
            site = site_of(self._home, self._topic)
            written = write_pages(site, self._topic, self._validations)
            if self._store is not None:
                self._store.copy(site, written)
            _PROBLEMS.pop(self.data_docs, None)
        except Exception as e:  # otherwise the thread would end silently
            # Only the text of a disk error is safe to log: others may quote record data.
            _PROBLEMS[self.data_docs] = str(e) if isinstance(e, OSError) else type(e).__name__
            logger.warning("Data Docs were not written: %s", _PROBLEMS[self.data_docs])

"""`cleantail adopt TABLE`: says what an existing table of a sink is, writes its topic's YAML and takes it over."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from cleantail.columns import Columns
from cleantail.config import ConfigError, Platform, Topic, claims_of, load_topic, scan_topics
from cleantail.console import print_json
from cleantail.errors import CleantailError, TableError
from cleantail.import_config import validated, write_file
from cleantail.name_claims import Claim, problem_of_new
from cleantail.topic_table import COLUMNS

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from cleantail.adoption import Found
    from cleantail.layouts import Layout


def add_arguments(made: argparse.ArgumentParser) -> None:
    made.add_argument("table", metavar="TABLE", help="namespace.name in the catalog")
    made.add_argument("--topic", metavar="T", help="the topic's name (default: what the table tells)")
    made.add_argument(
        "--column", action="append", default=[], metavar="NAME=COLUMN", help="as key=id, or key=struct.field"
    )
    made.add_argument(
        "--upgrade", action="store_true", help="upgrade a table of format version 1 or 2 to version 3, for good"
    )
    made.add_argument("--dry-run", action="store_true", help="only say what was found and what would be changed")


def run(arguments: argparse.Namespace, platform: Platform) -> int:
    """Nothing is changed before everything is known to be right; adopting again changes nothing."""
    from cleantail import adoption
    from cleantail.inspect_table import inspect

    written = _written(arguments.table, arguments.config)
    table = _load(arguments.table, platform)
    layout = _layout(table, arguments.column, written)
    columns = _columns(layout)
    found = inspect(table, layout, columns)
    name = _topic_name(arguments, written, found)
    unsafe, unseen = _unsafe(table, platform)
    wrong = [*adoption.problems(found, name, columns, arguments.upgrade), *unsafe]
    if columns is None or wrong:
        return _refuse(arguments, found, layout, name, wrong, unseen)
    file = _file(arguments, written, name, columns)
    text = "# Adopted: its sink fills this table, Cleantail compacts it in place.\n" + yaml.safe_dump(
        adoption.topic_data(name, arguments.table, columns), sort_keys=False
    )
    if not written:
        _require_free(file, arguments, platform)
    topic = load_topic(file, arguments.config, os.environ) if written else validated(text, file, arguments.config)
    in_table = adoption.changes(found, name, columns, arguments.upgrade)
    changes = in_table + ([] if written else [f"{file.name} in {file.parent}"])
    _report(arguments, found, layout, name, [], changes, unseen)
    if arguments.dry_run:
        print(text, end="") if not arguments.json and not written else None
        return 0
    if in_table:
        _adopt(topic, platform, arguments.upgrade)
    if not written:
        write_file(file, text)
    return 0


def _written(table: str, config_dir: Path) -> tuple[Path, Topic] | None:
    """The topic that says it has this table, with its file."""
    found = [(file, t) for file, t in scan_topics(config_dir, os.environ) if isinstance(t, Topic) and t.table == table]
    return found[0] if found else None


def _load(name: str, platform: Platform) -> Table:
    from pyiceberg.exceptions import NoSuchTableError

    from cleantail.catalogs import open_catalog, unreachable

    if name.count(".") != 1:
        raise CleantailError(f"{name!r} is not a table: namespace.name, as redpanda.orders")
    try:
        return open_catalog(platform, os.environ).load_table(name)
    except NoSuchTableError:
        raise TableError(f"there is no table {name} in catalog {platform.catalog.name}") from None
    except Exception as e:
        raise unreachable(platform, e) from None


def _layout(table: Table, settings: list[str], written: tuple[Path, Topic] | None) -> Layout:
    """What is given counts first, then the YAML, then what the names of the columns tell."""
    from cleantail.layouts import guess_layout

    given = dict(written[1].columns.paths) if written and written[1].columns else {}
    for setting in settings:
        name, equals, path = setting.partition("=")
        if name not in COLUMNS or not equals or not path:
            raise CleantailError(f"--column {setting}: NAME=COLUMN, where NAME is one of {', '.join(COLUMNS)}")
        given[name] = path
    return guess_layout(table.schema().column_names, given)


def _columns(layout: Layout) -> Columns | None:
    """None where a column that every record needs is not known, which the findings say."""
    try:
        return Columns.model_validate(dict(layout.paths))
    except ValidationError:
        return None


def _topic_name(arguments: argparse.Namespace, written: tuple[Path, Topic] | None, found: Found) -> str:
    if written:
        if arguments.topic not in (None, written[1].topic):
            raise CleantailError(f"{written[0]} says that {arguments.table} is the table of topic {written[1].topic}")
        return written[1].topic
    told = found.topics[0] if len(found.topics) == 1 else None
    return str(arguments.topic or found.owner or told or arguments.table.partition(".")[2])


def _file(arguments: argparse.Namespace, written: tuple[Path, Topic] | None, name: str, columns: Columns) -> Path:
    """The topic's file. Raises CleantailError where one is there that says something else."""
    file: Path = arguments.config / "topics" / f"{name}.yaml"
    if written:
        file, topic = written
        if topic.columns is None or topic.columns.paths != columns.paths:
            lines = "\n".join(f"  {column}: {path}" for column, path in columns.paths.items())
            raise CleantailError(f"{file} maps other columns; nothing was changed. Write into it:\ncolumns:\n{lines}")
        return file
    others = [
        f
        for f, t in scan_topics(arguments.config, os.environ)
        if f == file or (isinstance(t, Topic) and t.topic == name)
    ]
    if others:
        raise CleantailError(
            f"{others[0]} has topic {name} with another table; nothing was changed. Give another name with --topic, or "
            f"write `table: {arguments.table}` and `columns:` into it"
        )
    return file


def _require_free(file: Path, arguments: argparse.Namespace, platform: Platform) -> None:
    """Raises ConfigError where the topic that would be written and one that is there would take a name from each
    other."""
    problem = problem_of_new(
        Claim(file, arguments.table), claims_of(arguments.config, os.environ), platform.catalog.namespace
    )
    if problem:
        raise ConfigError(file, [replace(problem, line=None)])


def _adopt(topic: Topic, platform: Platform, upgrade: bool) -> None:
    from spark_jobs.adopt import adopt_table
    from spark_jobs.session import start_session

    adopt_table(start_session(platform, f"cleantail adopt {topic.topic}"), topic, platform, upgrade)


def _unsafe(table: Table, platform: Platform) -> tuple[list[str], str]:
    """Why files of others could be deleted as the table's own, and what could not be looked at."""
    from cleantail import neighbours
    from cleantail.adoption import own_table_problems

    name, location, unseen = ".".join(table.name()[-2:]), table.location(), ""
    said = own_table_problems(name, table.properties)
    try:
        unseen = neighbours.require_own_place(table.catalog, platform, table)
    except TableError as e:
        said.append(str(e))
    try:
        neighbours.require_own_metadata_log(name, location, table.metadata)
        if neighbours.may_delete_files(table.properties):
            neighbours.require_inner_files(name, location, neighbours.named_files(table))
    except TableError as e:
        said.append(str(e))
    return said, unseen


def _refuse(
    arguments: argparse.Namespace, found: Found, layout: Layout, name: str, wrong: list[str], unseen: str
) -> int:
    """What was found, and why that is not enough; for machines both in one document."""
    text = f"{arguments.table} cannot be adopted; nothing was changed:\n- " + "\n- ".join(wrong)
    if arguments.json:
        print_json({"ok": False, "error": text} | _document(found, layout.paths, name, wrong, [], []))
    else:
        _report(arguments, found, layout, name, wrong, [], unseen)
    print(f"error: {text}", file=sys.stderr)
    return TableError.exit_code


def _report(
    arguments: argparse.Namespace,
    found: Found,
    layout: Layout,
    name: str,
    wrong: list[str],
    changes: list[str],
    unseen: str,
) -> None:
    from cleantail import adoption

    columns = _columns(layout)
    said = adoption.advice(found, columns, arguments.upgrade) if columns else []
    said += [f"{unseen}: whether their folders are this table's, too, is not known"] if unseen else []
    if arguments.json:
        print_json(_document(found, layout.paths, name, wrong, changes, said))
        return
    print("\n".join(adoption.describe(found, layout.paths)))
    for text in said:
        print(f"note: {text}")
    if not wrong:
        verb = "would be changed" if arguments.dry_run else "changed"
        print(f"topic {name}; {verb}: {'; '.join(changes) or 'nothing, it is adopted already'}")


def _document(
    found: Found, paths: Mapping[str, str], name: str, wrong: list[str], changes: list[str], said: list[str]
) -> dict[str, Any]:
    more = {"topic": name, "mapped": dict(paths), "problems": wrong, "changes": changes, "notes": said}
    return asdict(found) | {"records": found.records} | more

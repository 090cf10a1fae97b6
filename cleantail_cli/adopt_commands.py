"""`adopt` and `convert-deletes`: commands for an existing table that a sink fills."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml
from pydantic import ValidationError

from cleantail.adopt import adoption
from cleantail.adopt.adoption import ForeignTable, Layout, guess_layout, required
from cleantail.adopt.equality_deletes import CONVERTED_JSON, Converted
from cleantail.adopt.inspect_table import fitting, inspect
from cleantail.config.claims import Claim, problem_of_new
from cleantail.config.loading import claims_of, load_topic, scan_topics
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.config.topic_table import COLUMNS, ORDER, Columns, Deleted, columns_of_texts
from cleantail.errors import CleantailError, ConfigError, TableError
from cleantail.human import counted
from cleantail.kafka.import_config import validated, write_file
from cleantail.lake import neighbours
from cleantail.lake.catalogs import load_named
from cleantail.lake.metadata_guards import require_data_alone
from cleantail.lake.records.topic_columns import columns_of_properties
from cleantail.lake.repairable_deletes import ForeignDeletes, foreign_deletes, require_parquet_files
from cleantail.lake.storage_locations import OwnFolders, oldest_own_file_ms, require_safe_commits
from cleantail_cli import parameters
from cleantail_cli.command import Invocation, command
from cleantail_cli.long_work import spark_session
from cleantail_cli.output import ConsoleOutput, Lines
from cleantail_cli.parameters import column_names

if TYPE_CHECKING:
    from pyiceberg.table import Table


@command(
    "adopt",
    click.argument("table", metavar="TABLE", help="namespace.name in the catalog."),
    click.option("--topic", "name", metavar="T", help="The topic's name (default: from the table)."),
    click.option(
        "--column",
        "columns",
        multiple=True,
        metavar="NAME=COLUMN",
        shell_complete=column_names,
        help="Map a column: key=id, key=struct.field, or key=tenant,id for a key of several columns. headers= leaves "
        "headers unmapped. May be repeated.",
    ),
    click.option(
        "--deleted",
        "deletes",
        metavar="COLUMN=TEXT",
        help="The column that marks deletes, and its values in deletes: op=d, __deleted=true, op=d,x.",
    ),
    click.option(
        "--upgrade", is_flag=True, help="Upgrade a table of format version 1 or 2 to version 3. This cannot be undone."
    ),
    parameters.dry_run,
    examples=["cleantail adopt redpanda.orders --dry-run", "cleantail adopt sink.bills --column key=id --upgrade"],
)
def adopt(
    call: Invocation,
    table: str,
    name: str | None,
    columns: tuple[str, ...],
    deletes: str | None,
    upgrade: bool,
    dry_run: bool,
) -> int:
    """Take over an existing table of a sink, in place.

    All checks come before the first change. Adopting a table again changes nothing.
    """
    # 1. Read the table, and choose the topic
    written = _written(table, call.config)
    loaded = load_named(call.platform, table)
    layout, deleted = fitting(loaded, _layout(loaded, columns, written)), _deleted(loaded, deletes, written)
    mapped = _columns(layout, deleted)
    foreign = inspect(loaded, layout, mapped)
    if any(map(layout.may_leave_out, foreign.unfit)):
        for column in filter(layout.may_leave_out, foreign.unfit):
            layout = layout.without(column, foreign.unfit[column])
        mapped = _columns(layout, deleted)
        foreign = inspect(loaded, layout, mapped)
    topic = _topic_name(table, name, written, foreign)
    # 2. Find what prevents the adoption
    unsafe, unseen = _unsafe(loaded, call.platform)
    report = Adopted(table, topic, foreign, layout.paths, mapped, upgrade, unseen)
    problems = [*adoption.problems(foreign, topic, mapped, upgrade), *unsafe]
    if mapped is None or problems:
        refused = replace(report, problems=tuple(problems))
        call.output.show(refused)
        call.output.error(refused.refusal)
        return TableError.exit_code
    # 3. Adopt it
    _take_over(call, replace(report, dry_run=dry_run), mapped, written)
    return 0


def _take_over(call: Invocation, report: Adopted, columns: Columns, written: tuple[Path, Topic] | None) -> None:
    """Report the changes and make them: first in the table, then the topic's file."""
    file = _file(call.config, report.table, written, report.topic, columns)
    text = "# Adopted: its sink fills this table, Cleantail compacts it in place.\n" + yaml.safe_dump(
        adoption.topic_data(report.topic, report.table, columns), sort_keys=False
    )
    if not written:
        _require_free(file, report.table, call)
    topic = load_topic(file, call.config) if written else validated(text, file, call.config)
    in_table = adoption.changes(report.foreign, report.topic, columns, report.upgrade)
    changes = in_table + ([] if written else [f"{file.name} in {file.parent}"])
    call.output.show(replace(report, changes=tuple(changes), text="" if written else text))
    if report.dry_run:
        return
    if in_table:
        _adopt(call, topic, report.upgrade)
    if written:
        return
    try:
        write_file(file, text, new=True)
    except FileExistsError:
        raise CleantailError(
            f"{file} was created by another process in the meantime, and was not changed. Table {report.table} was "
            "adopted. Run the command again: it checks that the file fits the table"
        ) from None


def _written(table: str, config_dir: Path) -> tuple[Path, Topic] | None:
    """Return the file and the topic that name this table, None if no file does."""
    topics = scan_topics(config_dir)
    return next(((file, t) for file, t in topics if isinstance(t, Topic) and t.table == table), None)


def _layout(table: Table, settings: Sequence[str], written: tuple[Path, Topic] | None) -> Layout:
    """Map the columns: by --column, else by the YAML or the adopted table, else by their names."""
    present = _present(table, written)
    paths = dict.fromkeys(COLUMNS, "") | present.texts if present else {}
    for setting in settings:
        name, equals, path = setting.partition("=")
        if name not in (*COLUMNS, ORDER) or not equals:
            names = ", ".join((*COLUMNS, ORDER))
            raise CleantailError(f"--column {setting}: must be NAME=COLUMN, or NAME= for none; NAME is one of {names}")
        paths[name] = path
    return guess_layout(table.schema().column_names, paths)


def _columns(layout: Layout, deleted: Deleted | None) -> Columns | None:
    """Return the columns. None if a required one is not mapped. Raises CleantailError for contradicting columns."""
    try:
        return columns_of_texts(layout.paths, deleted)
    except ValidationError as e:
        if set(required(layout.paths)) <= set(layout.paths):
            error = e.errors()[0]
            context = error.get("ctx", {})
            raise CleantailError(f"--column {context.get('key', '')}: {context.get('allowed', error['msg'])}") from None
        return None


def _present(table: Table, written: tuple[Path, Topic] | None) -> Columns | None:
    """Return the mapping in the YAML, else in the table's properties."""
    return (written[1].columns if written else None) or columns_of_properties(table.properties)


def _deleted(table: Table, setting: str | None, written: tuple[Path, Topic] | None) -> Deleted | None:
    """Return the column that marks deletes: by --deleted, else by the YAML or the adopted table."""
    if setting is None:
        present = _present(table, written)
        return present.deleted if present else None
    column, _, texts = setting.partition("=")
    try:
        return Deleted(column=column, values=tuple(texts.split(",")))
    except ValidationError:
        raise CleantailError(
            f"--deleted {setting}: must be COLUMN=TEXT or COLUMN=TEXT,TEXT; a text has 1 to 64 of the characters a-z "
            "A-Z 0-9 _ . -"
        ) from None


def _topic_name(table: str, name: str | None, written: tuple[Path, Topic] | None, foreign: ForeignTable) -> str:
    """Return the topic's name: from the YAML that names the table, else from --topic, else from the table."""
    if written:
        if name not in (None, written[1].topic):
            raise CleantailError(
                f"--topic {name}: {written[0]} already names table {table}, for topic {written[1].topic}. Leave out "
                "--topic, or remove the table from that file"
            )
        return written[1].topic
    only_topic = foreign.topics[0] if len(foreign.topics) == 1 else None
    return str(name or foreign.owner or only_topic or table.partition(".")[2])


def _file(config: Path, table: str, written: tuple[Path, Topic] | None, name: str, columns: Columns) -> Path:
    """Return the topic's file. Raises CleantailError if an existing file contradicts the table."""
    file = config / "topics" / f"{name}.yaml"
    if written:
        file, topic = written
        if topic.columns is None or topic.columns != columns:
            lines = "\n".join(f"  {line}" for line in yaml.safe_dump(columns.as_data, sort_keys=False).splitlines())
            raise CleantailError(f"{file} maps other columns; nothing was changed. Write into it:\ncolumns:\n{lines}")
        return file
    others = [f for f, t in scan_topics(config) if f == file or (isinstance(t, Topic) and t.topic == name)]
    if others:
        raise CleantailError(
            f"{others[0]} has topic {name} with another table; nothing was changed. Give another name with --topic, or "
            f"write `table: {table}` and `columns:` into it"
        )
    return file


def _require_free(file: Path, table: str, call: Invocation) -> None:
    """Raise ConfigError if the new topic and an existing topic would claim the same name."""
    catalog = call.platform.catalog
    problem = problem_of_new(Claim.of(file, table, catalog), claims_of(call.config), catalog)
    if problem:
        raise ConfigError(file, [replace(problem, line=None)])


def _adopt(call: Invocation, topic: Topic, upgrade: bool) -> None:
    from spark_jobs.round.intake.adopt import adopt_table

    name = f"cleantail adopt {topic.topic}"
    with call.output.progress() as progress, spark_session(call.platform, name, progress) as spark:
        progress("changing the table")
        adopt_table(spark, topic, upgrade)


def _unsafe(table: Table, platform: Platform) -> tuple[list[str], str]:
    """Return the reasons why files of other tables might be deleted, and a text about what could not be checked."""
    name, location, unseen = ".".join(table.name()[-2:]), table.location(), ""
    problems = adoption.cleantail_table_problems(name, table.properties)
    try:
        unseen = neighbours.require_separate_folder(table.catalog, platform, table)
        oldest_own_file_ms(table)
    except TableError as e:
        problems.append(str(e))
    try:
        require_data_alone(name, table.properties)
        require_safe_commits(table)
        if neighbours.may_delete_files(table.properties):
            # before a manifest is opened: the metadata could name a list of manifests on any store or host
            neighbours.require_inner_files(name, location, neighbours.named_by_metadata(table))
            neighbours.require_inner_files(name, location, neighbours.named_files(table))
        else:
            files = (task.file.file_path for task in table.scan().plan_files())
            OwnFolders(name, location, platform.imported_folders).require(files)
    except TableError as e:
        problems.append(str(e))
    return problems, unseen


@command(
    "convert-deletes",
    click.argument("table", metavar="TABLE", help="namespace.name in the catalog."),
    parameters.dry_run,
    examples=["cleantail convert-deletes sink.orders --dry-run", "cleantail convert-deletes sink.orders"],
)
def convert_deletes(call: Invocation, table: str, dry_run: bool) -> int:
    """Turn a table's equality deletes into deletion vectors; in format version 2 into position deletes.

    Sinks in upsert mode write deletes by column values, which a round cannot replace. This command finds the records
    that they delete, and replaces the deletes in one commit. Readers see the same records before and after. Position
    deletes of several data files are split into one per data file.
    """
    loaded = load_named(call.platform, table)
    require_parquet_files(loaded)
    deletes, done = foreign_deletes(loaded), None
    if deletes.any and not dry_run:
        from spark_jobs.convert import convert_deletes as convert

        name = f"cleantail convert-deletes {table}"
        with call.output.progress() as progress, spark_session(call.platform, name, progress) as spark:
            progress("converting deletes")
            done = convert(spark, call.platform, table)
    call.output.show(_converted(table, deletes, done))
    return 0


def _converted(table: str, found: ForeignDeletes, done: Converted | None) -> Lines:
    """Return the answer of `convert-deletes`. `done`: None if nothing was changed."""
    counts = {f"found_{name}": count for name, count in asdict(found).items()}
    document = {"table": table, "converted": done is not None, **counts, **(CONVERTED_JSON.plain(done) if done else {})}
    if not found.any:
        return Lines(document, [f"{table}: no delete file applies to several data files; nothing was changed"])
    rows = counted(found.equality_rows, "row")
    shared = counted(found.shared_position_deletes, "position delete file")
    deletes = counted(found.equality_deletes, "equality delete file")
    end = "nothing was changed: --dry-run"
    if done:
        hidden, files = counted(done.hidden_records, "record"), counted(done.data_files, "data file")
        seen = f"readers see {counted(done.live_records, 'record')}, as before"
        end = f"converted in snapshot {done.snapshot_id}: the new deletes hide {hidden} in {files}; {seen}"
    return Lines(document, [f"{table}: {deletes} with {rows}, and {shared} for several data files", end])


@dataclass(frozen=True)
class Adopted:
    """Answer of `adopt`: facts about the table, and the changes. `text`: the new YAML, "" without one."""

    table: str
    topic: str
    foreign: ForeignTable
    paths: Mapping[str, str]
    columns: Columns | None
    upgrade: bool
    unseen: str
    problems: Sequence[str] = ()
    changes: Sequence[str] = ()
    dry_run: bool = False
    text: str = ""

    @property
    def refused(self) -> bool:
        return bool(self.problems) or self.columns is None

    @property
    def refusal(self) -> str:
        return f"{self.table} cannot be adopted; nothing was changed:\n- " + "\n- ".join(self.problems)

    def document(self) -> dict[str, Any]:
        head = {"ok": False, "error": self.refusal} if self.refused else {}
        notes = [] if self.refused else self._notes()
        changes, problems = list(self.changes), list(self.problems)
        more = {"topic": self.topic, "mapped": dict(self.paths), "problems": problems, "changes": changes}
        records = None if self.foreign.files is None else self.foreign.records
        return head | asdict(self.foreign) | {"records": records} | more | {"notes": notes}

    def print_on(self, page: ConsoleOutput) -> None:
        page.line("\n".join(adoption.describe(self.foreign, self.paths)))
        for text in self._notes():
            page.line(f"note: {text}")
        if not self.refused:
            verb = "would be changed" if self.dry_run else "changed"
            changes = "; ".join(self.changes) or "nothing, because the table was already adopted"
            page.line(f"topic {self.topic}; {verb}: {changes}")
        if self.dry_run and self.text:
            page.line(self.text.removesuffix("\n"))
        if self.changes and not self.dry_run:
            page.line(
                f"next: `cleantail plan {self.topic}` prints the due work; a new DAG is paused until you unpause it"
            )

    def _notes(self) -> list[str]:
        notes = adoption.advice(self.foreign, self.columns, self.upgrade) if self.columns else []
        unseen = f"{self.unseen}, so it is unknown whether they share this table's folder"
        return notes + ([unseen] if self.unseen else [])

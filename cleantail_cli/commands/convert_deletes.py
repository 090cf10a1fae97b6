"""`cleantail convert-deletes TABLE`: a sink's equality deletes become deletes of one data file each."""

from __future__ import annotations

import click

from cleantail_cli import parameters
from cleantail_cli.command import Invocation, command
from cleantail_cli.reports.adoption import DeletesConverted
from cleantail_cli.spark import spark_session


@command(
    "convert-deletes",
    click.argument("table", metavar="TABLE", help="namespace.name in the catalog."),
    parameters.dry_run,
    examples=["cleantail convert-deletes sink.orders --dry-run", "cleantail convert-deletes sink.orders"],
)
def convert_deletes(call: Invocation, table: str, dry_run: bool) -> int:
    """Make deletion vectors of a table's equality deletes; position deletes in format version 2.

    Sinks in upsert mode write deletes by values of columns, which a round cannot replace. The records that they remove
    are looked for, readers see the same table before and after, and one commit puts the new deletes in place of the old
    ones. Position deletes of several data files become such of one each.
    """
    from cleantail.lake.catalogs import load_named
    from cleantail.lake.runs.foreign_deletes import foreign_deletes, require_parquet_files

    loaded = load_named(call.platform, table)
    require_parquet_files(loaded)
    deletes, done = foreign_deletes(loaded), None
    if deletes.any and not dry_run:
        from spark_jobs.conversion.convert import convert_deletes as convert

        name = f"cleantail convert-deletes {table}"
        with call.output.progress() as progress, spark_session(call.platform, name, progress) as spark:
            progress("converting deletes")
            done = convert(spark, call.platform, table)
    call.output.show(DeletesConverted(table, deletes, done))
    return 0

"""`jars`: finds Spark's jars, or fetches them, into a folder that all homes share."""

from __future__ import annotations

import os
from pathlib import Path

import click

from cleantail_cli.command import Invocation, command


@command(
    "jars",
    click.option("--s3", is_flag=True, help="Those of an object store as well; else where the warehouse is on one."),
    click.option(
        "--from",
        "source",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Take them from a folder instead, on a machine without a network.",
    ),
    click.option(
        "--repository",
        "repositories",
        multiple=True,
        metavar="URL",
        help="A Maven repository to ask for what Maven Central does not give; may be repeated.",
    ),
    configured=False,
    examples=["cleantail jars", "cleantail jars --from /mnt/jars"],
)
def jars(call: Invocation, s3: bool, source: Path | None, repositories: tuple[str, ...]) -> int:
    """Find Spark's jars, or fetch them once.

    Into CLEANTAIL_JARS, else a cache that all homes of a user share. All bytes are compared with the SHA-256 that
    Cleantail's list has. Nothing is fetched where platform.spark.jars leaves the jars to the cluster.
    """
    from cleantail.lake.catalog_settings import jars_directory, needs_mysql, needs_s3
    from cleantail.lake.jars.jar_fetching import fetch, listed_jars, problems, take
    from cleantail.lake.jars.jar_list import kinds_of, mixed_versions, spark_version
    from cleantail_cli.reports.jars import Jars

    spark = spark_version()
    if warning := mixed_versions():
        call.output.warning(warning)
    if call.platform.spark.jars_of_cluster:
        call.output.show(Jars(spark, None, (), fetched=False))
        return 0
    directory = jars_directory(call.platform, os.environ)
    kinds = kinds_of(spark, s3 or needs_s3(call.platform), needs_mysql(call.platform))
    missing = problems(directory, kinds)
    if missing and source is not None:
        take(source, directory, kinds)
    elif missing:
        with call.output.progress() as progress:
            progress("fetching jars")
            fetch(directory, kinds, repositories)
    call.output.show(Jars(spark, directory, listed_jars(kinds), fetched=bool(missing)))
    return 0

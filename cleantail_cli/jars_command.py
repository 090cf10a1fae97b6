"""`jars`: find or fetch Spark's jars, into a folder that all homes of a user share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from cleantail.human import counted
from cleantail.lake.jar_list import Jar, fetch, kinds_of, listed_jars, mixed_versions, problems, spark_version, take
from cleantail.lake.spark_settings import jars_directory, needs_mysql, needs_s3
from cleantail_cli.command import Invocation, command
from cleantail_cli.output import ConsoleOutput


@command(
    "jars",
    click.option("--s3", is_flag=True, help="Include the jars for a warehouse on an object store."),
    click.option(
        "--from",
        "source",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Take the jars from a folder, on a machine without a network.",
    ),
    click.option(
        "--repository",
        "repositories",
        multiple=True,
        metavar="URL",
        help="A Maven repository for jars that Maven Central does not have; may be repeated.",
    ),
    configured=False,
    examples=["cleantail jars", "cleantail jars --from /mnt/jars"],
)
def jars(call: Invocation, s3: bool, source: Path | None, repositories: tuple[str, ...]) -> int:
    """Find or download the jars that Spark needs.

    They are stored in CLEANTAIL_JARS, else in a cache that all homes of a user share. Every jar is checked against the
    SHA-256 in Cleantail's list. If platform.spark.jars leaves the jars to the cluster, none are fetched.
    """
    spark = spark_version()
    if warning := mixed_versions():
        call.output.warning(warning)
    if call.platform.spark.jars_of_cluster:
        call.output.show(Jars(spark, None, (), fetched=False))
        return 0
    directory = jars_directory(call.platform)
    kinds = kinds_of(spark, s3 or needs_s3(call.platform), needs_mysql(call.platform))
    missing = problems(directory, kinds)
    if missing and source is not None:
        take(source, directory, kinds)
    elif missing:
        with call.output.progress() as progress:
            progress("fetching jars")
            fetch(directory, kinds, repositories, call.platform.env)
    call.output.show(Jars(spark, directory, listed_jars(kinds), fetched=bool(missing)))
    return 0


@dataclass(frozen=True)
class Jars:
    """Answer of `jars`. `directory` is None if the cluster has the jars."""

    spark: str
    directory: Path | None
    jars: Sequence[Jar]
    fetched: bool

    def document(self) -> dict[str, Any]:
        return {
            "ok": True,
            "spark": self.spark,
            "directory": None if self.directory is None else str(self.directory),
            "fetched": self.fetched,
            "jars": [{"name": jar.name, "sha256": jar.sha256, "bytes": jar.bytes} for jar in self.jars],
        }

    def tell(self, page: ConsoleOutput) -> None:
        if self.directory is None:
            page.line("platform.spark.jars is cluster: the cluster has the jars, and none are fetched")
            return
        for jar in self.jars:
            page.line(jar.name)
        what = "fetched" if self.fetched else "found"
        page.line(f"Spark {self.spark}: {counted(len(self.jars), 'jar')} {what}, SHA-256 checked, in {self.directory}")

"""`cleantail upgrade`: configuration and state of an earlier version become those of this one."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cleantail.cli import parameters
from cleantail.cli.command import Invocation, command
from cleantail.cli.progress import Progress
from cleantail.cli.spark import spark_session
from cleantail.config.platform import Platform

if TYPE_CHECKING:
    from cleantail.upgrade.plan import UpgradePlan

KEPT = "upgrades"
"""Folder of CLEANTAIL_HOME with what upgrades have replaced."""


@command(
    "upgrade",
    parameters.dry_run,
    checked=False,
    examples=["cleantail upgrade --dry-run", "cleantail upgrade"],
)
def upgrade(call: Invocation, dry_run: bool) -> int:
    """Bring what an earlier version has left up to this one.

    Keys of the configuration that are gone, columns and properties of tables, columns of the evidence, Data Docs. What
    it replaces is kept below CLEANTAIL_HOME. A second upgrade finds nothing. Exit code 2 where something is left that
    only a person can do.
    """
    from cleantail.cli.reports.upgrade import Upgraded
    from cleantail.upgrade.plan import planned

    with call.output.progress() as progress:
        progress("reading metadata")
        plan = planned(call.config, os.environ)
        kept = None
        if plan.any_to_do and not dry_run:
            kept = _change(call.config, plan, progress)
    report = Upgraded(plan.changes, not dry_run, kept, plan.platform is not None)
    call.output.show(report)
    return 2 if report.left else 0


def _change(config: Path, plan: UpgradePlan, progress: Progress) -> Path:
    """Makes the changes, in the order in which they are told; returns the folder with what was replaced."""
    from cleantail.home.private_files import make_folder
    from cleantail.upgrade.config_files import write

    # 1. what it is about to do, so that it is known whatever happens then
    kept = make_folder(plan.home, KEPT, datetime.now(UTC).strftime("%Y%m%dT%H%M%S_%f"))
    (kept / "changes.json").write_text(json.dumps([asdict(change) for change in plan.changes], indent=1) + "\n")
    # 2. the configuration, by which everything after it is found
    write(config, plan.edits, kept / "config")
    # 3. the catalog, and what lies beside it
    if plan.platform is not None:
        _change_state(plan, plan.platform, progress)
    return kept


def _change_state(plan: UpgradePlan, platform: Platform, progress: Progress) -> None:
    from cleantail.home.locks import exclusive

    if plan.catalog.tables:
        from spark_jobs.iceberg.tables import TopicTable
        from spark_jobs.round.upkeep.earlier_table import upgrade_table

        with spark_session(platform, "cleantail upgrade", progress) as spark:
            for needed in progress.counting(plan.catalog.tables, "table"):
                table = TopicTable.of(spark, needed.topic, platform)
                with exclusive(platform.home, f"round-{needed.topic.topic}"):
                    upgrade_table(table, needed.tombstone, needed.properties)
    if plan.catalog.evidence:
        from spark_jobs.round.evidence_store import evidence_table

        evidence_table(platform)
    if plan.docs:
        from spark_jobs.quality.data_docs_site import renew_pages

        progress("making Data Docs anew")
        for topic in plan.docs:
            renew_pages(platform.home, topic)

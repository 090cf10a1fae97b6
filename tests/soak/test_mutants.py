"""The soak finds what a change of the product breaks: each mutant below within ten minutes. `make test-deep` runs it.

A mutant is a copy of the checkout in which each of its texts is replaced by another one. The soak runs as a user
starts it, without any option for the mutant, until its first finding.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from soak.site import ROOT

WITHIN_MINUTES = 10
COMMITS, RECLAIM = "spark_jobs/iceberg/commits.py", "spark_jobs/round/reclaim.py"
LOCATIONS = "cleantail/lake/storage_locations.py"
MUTANTS = {
    "an append to the evidence is sent again after it was taken": [
        ("cleantail/lake/own_tables.py", "return settled(change, taken)", "return settled(change, lambda: table.refresh() and None)"),
    ],
    "another topic's table is taken": [
        ("cleantail/lake/catalogs.py", "if owner != topic.topic:", "if owner is None:"),
    ],
    "a branch of another machine is stale at once": [
        ("spark_jobs/iceberg/tables.py", "time.time() - STALE_BRANCH_S - waits_s", "time.time()"),
    ],
    "a file that another machine ingested meanwhile is ingested again": [
        (COMMITS, "if faster := sorted(name for name in properties if name in there):", "if faster := []:"),
    ],
    "aborted records are read": [
        ("cleantail/kafka/source_topic.py", '"isolation.level": isolation,', '"isolation.level": "read_uncommitted",'),
    ],
    "a commit takes 409 for yes": [
        (
            COMMITS,
            "            error = refused(e)\n",
            "            error = refused(e)\n            if 'CommitFailedException' in kinds_of(e):\n                return metadata\n",
        ),
    ],
    "a commit takes 409 for no": [
        (COMMITS, "return next((metadata for metadata in sent if _is_taken(metadata, table)), None)", "return None"),
    ],
    "a publish does not miss rewritten files": [
        (COMMITS, "    delta.validateDataFilesExist(referenced)\n", ""),
    ],
    "a publish does not validate": [
        (COMMITS, '"newRowDelta").validateFromSnapshot(since).validateDeletedFiles()', '"newRowDelta")'),
        (COMMITS, "    delta.validateDataFilesExist(referenced)\n", ""),
    ],
    "a reclaim deletes files of a round that waits": [
        (RECLAIM, "max(table.topic.config.cleantail_orphan_retention_ms, MIN_ORPHAN_AGE_MS)", "0"),
    ],
    "a read of Kafka does not notice another one": [
        (COMMITS, "if text != advance.before or not same_files:", "if False:"),
    ],
    "a reclaim deletes files of others": [
        (LOCATIONS, "elif uuid is not None and not _is_refused_creation(file, table):", "elif False:"),
    ],
    "a reclaim takes a side table of others": [
        ("cleantail/lake/catalogs.py", " and table.properties.get(PROPERTY_SIDE_OF) == topic.topic:", ":"),
    ],
    "a rollback forgets later appends": [
        (COMMITS, "added_by(iceberg, s)) for s in rollback.appends]", "added_by(iceberg, s)) for s in ()]"),
    ],
    "a tombstone does not wait for a reader": [
        ("cleantail/log/horizons.py", "past_readers(horizon, now_ms, hold_offset, hold_cap_ms) else", "True else"),
    ],
    "a tombstone goes before its horizon": [
        ("cleantail/log/horizons.py", "return min(now_ms + configs.delete_retention_ms, LONG_MAX)", "return now_ms"),
    ],
}  # fmt: skip


def test_the_product_has_the_texts_that_mutants_replace():
    counts = {
        (file, text): (ROOT / file).read_text().count(text) for edits in MUTANTS.values() for file, text, _ in edits
    }
    assert {place: count for place, count in counts.items() if count != 1} == {}


@pytest.mark.deep
@pytest.mark.integration
@pytest.mark.spark
@pytest.mark.timeout(60 * WITHIN_MINUTES + 300)
@pytest.mark.parametrize("name", MUTANTS)
def test_the_soak_finds_a_mutant(name, tmp_path):
    mutate(tmp_path / "checkout", name)
    found = first_finding(tmp_path / "checkout", tmp_path / "failures")
    print(f"{name}: {found}")
    assert found, f"the soak did not find it in {WITHIN_MINUTES} minutes: {name}"


@pytest.mark.deep
@pytest.mark.integration
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_shrunk_history_fails_until_the_product_is_mended(tmp_path):
    checkout, failures = tmp_path / "checkout", tmp_path / "failures"
    mutate(checkout, "a publish does not miss rewritten files")
    assert soak(checkout, failures, "--scenario", "S6a") == 1
    assert soak(checkout, failures, "--shrink", str(failures / "S6a.json")) == 1
    again = "--replay", str(failures / "S6a.short.json")
    assert soak(checkout, failures, *again) == 1
    copy_checkout(checkout)
    assert soak(checkout, failures, *again) == 0


def mutate(checkout: Path, name: str) -> None:
    copy_checkout(checkout)
    for file, text, other in MUTANTS[name]:
        source = (checkout / file).read_text()
        assert source.count(text) == 1, f"{file} has changed: {text}"
        (checkout / file).write_text(source.replace(text, other))


def soak(checkout: Path, failures: Path, *options: str) -> int:
    """Run the soak in a checkout to its end, and return its exit code."""
    command = [sys.executable, "-m", "soak", "--no-kafka", "--save", str(failures), *options]
    return subprocess.run(command, cwd=checkout, env=environment(checkout), check=False).returncode


def environment(checkout: Path) -> dict[str, str]:
    home = os.environ.get("CLEANTAIL_HOME") or str(ROOT / ".cleantail")
    return {**os.environ, "CLEANTAIL_HOME": home, "PYTHONPATH": str(checkout), "PYTHONUNBUFFERED": "1"}


def copy_checkout(to: Path) -> None:
    """Copy what git knows, as it is now."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def first_finding(checkout: Path, failures: Path) -> str | None:
    """Run the soak in a checkout until it reports a finding, and return the finding's first lines with its time."""
    command = [sys.executable, "-m", "soak", "--minutes", str(WITHIN_MINUTES), "--save", str(failures)]
    began = time.monotonic()
    with subprocess.Popen(
        command, cwd=checkout, env=environment(checkout), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                print(line, end="")
                if re.search(r": FINDING, \d+ acts", line):
                    said = "".join(itertools.islice(process.stdout, 3))
                    return f"after {time.monotonic() - began:.0f} s: {line}{said}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()  # it ends with what it started, and reports that
    return None

"""No command deletes what another process may have made: each call that deletes is listed here, with its proof of
ownership. A new one fails this test until its proof is written down."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("cleantail", "cleantail_cli", "spark_jobs", "plugins", "dags")
CALLS = {
    "unlink", "rmtree", "rmdir", "removedirs", "deleteFile", "deleteFiles", "delete_file", "dropTable", "drop_table",
    "purge_table", "drop_namespace", "dropNamespace", "drop_view", "dropView", "removeBranch", "removeTag", "removeRef",
    "expireSnapshots", "ExpireSnapshots", "expireSnapshotId", "removeSnapshots", "deleteOrphanFiles", "removeDeletes", "remove_properties",
    "update_namespace_properties", "dropTableData", "rewriteDataFiles", "newDelete", "replace", "remove", "delete",
}  # fmt: skip
ON_DISK = {"io", "_io", "os", "store", "update"}
"""`remove` and `delete` count where they are called on one of these; other objects have them too."""
STATEMENT = re.compile(
    r"\b(DROP (TABLE|VIEW|NAMESPACE|COLUMN)|DELETE FROM|CREATE OR REPLACE VIEW|INSERT OVERWRITE|TRUNCATE)\b"
)


def deletions() -> Iterator[tuple[str, str]]:
    """Yields (module, call), of every call that deletes."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            for node in ast.walk(ast.parse(path.read_text())):
                text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
                if "\n" not in text and (statement := STATEMENT.search(text)):
                    yield name, statement[0]
                if text in CALLS and not text.islower():  # the name of a Java method, which `new_update` calls
                    yield name, text
                of = node if isinstance(node, ast.Attribute) else None
                if of is None or of.attr not in CALLS:
                    continue
                on = of.value.attr if isinstance(of.value, ast.Attribute) else getattr(of.value, "id", "")
                if of.attr in ("remove", "delete", "replace") and on not in ON_DISK:
                    continue
                yield name, of.attr


OWNED = {
    "cleantail_cli/class_archive.py": {
        "unlink": "the archive of classes of this checkout's jars: a cache that `cleantail jars` makes again",
    },
    "cleantail/erasure/request_files.py": {"unlink": "a request that was recorded just before; the file has keys"},
    "cleantail/home/driver_process.py": {"unlink": "named by a hash of the task, which has one try at a time"},
    "cleantail/home/text_cache.py": {
        "DELETE FROM": "a cache: what goes is read again from the catalog",
        "unlink": "a cache that SQLite calls damaged",
    },
    "cleantail/kafka/import_config.py": {"unlink": "has this process's number in its name"},
    "cleantail/lake/catalogs.py": {"DROP COLUMN": "part of a message"},
    "cleantail/lake/exchange.py": {"delete": "has the name that this task has made for its application"},
    "cleantail/lake/jar_list.py": {"unlink": "the part of a download, under a name of this process"},
    "cleantail/lake/own_namespace.py": {
        "update_namespace_properties": "a position that a person forgets by its name, a release that is compared first, or a question that is set",
    },
    "cleantail/rounds/pack_results.py": {"unlink": "files of packs, whose time has passed"},
    "cleantail/sources/digest_cache.py": {
        "DELETE FROM": "digests of files that are gone",
        "unlink": "a cache that SQLite calls damaged",
    },
    "spark_jobs/convert.py": {"removeBranch": "has this conversion's name, with the nanosecond of its start"},
    "cleantail/home/stdin_copies.py": {"rmtree": "copies whose process has ended: this one took its lock"},
    "spark_jobs/engine/task_records.py": {
        "DROP TABLE": "in a database of this task",
        "rmtree": "a temporary folder that this task has made",
    },
    "spark_jobs/engine/written_files.py": {"delete": "a file under a UUID of this task, which no commit names yet"},
    "spark_jobs/engine/rewrite_task.py": {
        "delete": "files under UUIDs of this task, which no commit names yet",
    },
    "spark_jobs/iceberg/commits.py": {
        "deleteFile": "a change of the table: Iceberg refuses it if the file is not there any more",
        "newDelete": "files of our own side table whose rows are past their time",
        "remove": "properties that are planned on the metadata onto which alone they are committed",
        "removeBranch": "names of ours end in the nanosecond of their creation; a failed round's branch has the round's",
        "removeDeletes": "a change of the table, validated from the snapshot that was read",
        "removeSnapshots": "only branches of ours that the same commit drops lead there, and `main` was never there",
        "removeRef": "`main` in a rollback, which is committed only onto the metadata that was planned on",
    },
    "spark_jobs/iceberg/file_removal.py": {
        "deleteFiles": "below the table's own folder, and of no snapshot that the table has",
        "deleteOrphanFiles": "finds only: what it finds is deleted as above, older than a day",
        "expireSnapshotId": "a snapshot that cannot be read and that no reference is at, or that reaches an erased key",
        "expireSnapshots": "past the topic's retention, and only while `main` is where it was: require_same_main",
        "removeBranch": "of ours, at the snapshot that was seen: it reaches an erased key, for which a person asked",
        "removeTag": "as removeBranch",
    },
    "spark_jobs/round/evidence.py": {
        "unlink": "rows of this process, or of one that has ended, which are appended now"
    },
    "spark_jobs/iceberg/session.py": {"rmtree": "temporary folders that this process has made"},
    "spark_jobs/quality/data_docs.py": {
        "replace": "the same document, newer: its name says of which round it is",
        "rmtree": "folders of rounds among the topic's own results and pages, by the name that only a round has",
    },
    "spark_jobs/round/latest_view.py": {
        "CREATE OR REPLACE VIEW": "the topic's own view, made from the table at any time"
    },
    "spark_jobs/round/mend.py": {"removeDeletes": "vectors of the snapshot that was read, validated from it"},
    "spark_jobs/round/reclaim.py": {"rewriteDataFiles": "rows stay; Iceberg validates the files"},
    "spark_jobs/engine/table_files.py": {
        "deleteFile": "files under UUIDs of this run or ingestion, before their commit, or after it was refused and is not there",
    },
}
"""Module -> call that deletes -> why nothing of another process goes with it."""


def test_each_call_that_deletes_has_its_proof_of_ownership():
    found: dict[str, set[str]] = {}
    for module, call in deletions():
        found.setdefault(module, set()).add(call)
    assert found == {module: set(proofs) for module, proofs in OWNED.items()}


def test_a_table_and_a_namespace_are_dropped_by_no_command():
    listed = [(module, call) for module, calls in OWNED.items() for call in calls]
    assert not {call for _, call in listed} & {"dropTable", "drop_table", "purge_table", "drop_namespace"}
    assert not [module for module, call in listed if call == "DROP TABLE" and "task_records" not in module]

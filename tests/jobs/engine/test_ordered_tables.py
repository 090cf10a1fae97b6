"""Adopted tables without offsets: the highest version of a key wins, ties by row lineage. What survives is compared with
a model that knows nothing of lineage: it has the records in the order in which they were committed."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

import pytest

from cleantail.lake.catalogs import open_catalog
from spark_jobs.round.check_and_publish import publish_or_start_over
from spark_jobs.round.run import Run
from tests.jobs.conftest import settings
from tests.jobs.iceberg.test_format_2 import full
from tests.jobs.round.intake.test_adopt import HOUR, NOW, files_of
from tests.jobs.round.test_held_rounds import checked_round

COLUMNS = "n int, ver bigint, ms bigint, k string, v string"
SELECT = ["p AS n", "o AS ver", "ms", "k", "v"]
MAPPED = ("order=ver", "timestamp=ms", "key=k", "value=v")
V3 = "'format-version'='3'"


def arguments(mapped=MAPPED):
    return [x for pair in mapped for x in ("--column", pair)]


def batch(first, count, keys=5, late=0):
    """Records with ties (neighbours have one version) and late versions; each has a number of its own."""
    return [
        (
            n,
            n // 2 - (late if n % 3 == 0 else 0),
            NOW - 5 * HOUR + n,
            f"k{n * 7 % keys}",
            None if n % 11 == 4 else f"v{n}",
        )
        for n in range(first, first + count)
    ]


def winners(records):
    """By the rule: of each key the record with the highest version, of equal ones the last committed; none is lowest."""
    best: dict[str, tuple[Any, ...]] = {}
    for n, ver, _, k, v in records:
        rank = (ver is not None, ver or 0)
        if k not in best or rank >= best[k][0]:
            best[k] = (rank, n, v)
    return {k: (n, v) for k, (_, n, v) in best.items()}


def alive(records):
    return {k: v for k, (_, v) in winners(records).items() if v is not None}


@dataclass
class Orderless:
    """A table without offsets, its topic, and all records that were committed to it, in their order."""

    workshop: Any
    spark: Any
    name: str
    table: str
    records: list[tuple[Any, ...]]

    def append(self, *groups):
        for rows in groups:
            made = self.spark.createDataFrame(list(rows), "p int, o bigint, ms bigint, k string, v string").coalesce(1)
            made.selectExpr(*SELECT).writeTo(full(self.table)).append()
            self.records += rows

    def stored(self):
        """The numbers of the records that any reader of the table sees, by key."""
        found: dict[str, list[int]] = {}
        for row in self.spark.table(full(self.table)).collect():
            found.setdefault(row.k, []).append(row.n)
        return {k: sorted(numbers) for k, numbers in found.items()}

    def compact(self, now=NOW, *more):
        result = self.workshop.json("compact", self.name, "--now", now, "--force", *more)
        assert result["ok"], result
        return result

    def require_stored(self):
        """One record a key: the winner, for readers of the table."""
        assert self.stored() == {k: [n] for k, (n, _) in winners(self.records).items()}

    def require_winners(self, now=NOW):
        """One record a key: the winner, for readers of the table and for those of Cleantail's views alike."""
        self.require_stored()
        self.require_view(self.require_latest(now))

    def require_proof(self):
        assert self.workshop.json("check", self.name)["ok"]

    def views(self):
        return {row.viewName for row in self.spark.sql("SHOW VIEWS IN cleantail.sinks").collect()}

    def require_state(self, now=NOW):
        """The state in Python and in the view, which the first round makes, at the same offsets."""
        latest = self.require_latest(now)
        if f"{self.name}_latest" in self.views():
            self.require_view(latest)

    def require_latest(self, now):
        latest = [json.loads(line) for line in self.workshop.ok("latest", self.name, "--now", now).splitlines()]
        assert {r["key"]: r["payload"] for r in latest} == alive(self.records)
        return latest

    def require_view(self, latest):
        """There is a view, and it has the state and the offsets of `latest`."""
        view = self.spark.table(f"{full(self.table)[:-1]}_latest`").collect()
        assert {bytes(r.key).decode(): bytes(r.value).decode() for r in view} == alive(self.records)
        assert {bytes(r.key).decode(): r.offset for r in view} == {r["key"]: r["offset"] for r in latest}

    def rewrite(self, *options):
        """What a stranger does who knows nothing of rounds."""
        extra = "".join(f", '{k}', '{v}'" for k, v in zip(options[::2], options[1::2], strict=True))
        self.spark.sql(
            f"CALL cleantail.system.rewrite_data_files(table => '{self.table}', options => map('rewrite-all', 'true'{extra}))"
        )

    def offsets(self):
        return {r["payload"]: r["offset"] for r in self.workshop.read(self.name)}


@pytest.fixture
def orderless(workshop, spark, lake):
    """Makes a table and its topic."""

    def make(name, groups, version=3, **config):
        table = lake(name, COLUMNS, groups, SELECT, "", f"'format-version'='{version}'")
        upgrade = ["--upgrade"] if version < 3 else []
        workshop.ok("adopt", table, "--topic", name, *arguments(), *upgrade)
        settings(workshop, name, **config)
        return Orderless(workshop, spark, name, table, [r for group in groups for r in group])

    return make


def test_a_table_without_offsets_is_adopted_compacted_checked_and_read(workshop, spark, lake):
    groups = [batch(0, 12), batch(12, 12, late=4), batch(24, 12, late=9)]
    table = lake("orderless", COLUMNS, groups, SELECT, "", V3)
    found = workshop.json("adopt", table, "--topic", "orderless", *arguments(), "--dry-run")
    assert found["records"] == 36 and found["mapped"]["order"] == "ver" and not found["lacks_row_ids"]
    assert any("the highest ver of a key wins, then the later commit" in note for note in found["notes"])
    out = workshop.ok("adopt", table, "--topic", "orderless", *arguments())
    assert "partition 0: 36 records, without offsets" in out
    settings(workshop, "orderless")
    assert "nothing, because the table was already adopted" in workshop.ok("adopt", table)
    topic = Orderless(workshop, spark, "orderless", table, [r for group in groups for r in group])
    assert [r["payload"] for r in workshop.read("orderless")] == [
        v for *_, v in topic.records
    ]  # as they were committed
    before = files_of(spark, table)
    topic.compact()
    topic.require_winners()
    topic.require_proof()
    assert files_of(spark, table) == before


def test_rounds_go_on_where_the_last_one_ended_and_late_versions_lose(orderless):
    """Of equal versions in one file and in one commit the later place wins. An update in place is a new record."""
    tied = [(100 + n, 7, NOW - 5 * HOUR, f"t{n % 2}", f"v{n}") for n in range(9)]
    without = [(109, None, NOW - 5 * HOUR, "t0", "none"), (110, None, NOW - 5 * HOUR, "new", "only")]
    topic = orderless("ordered_rounds", [batch(0, 12) + tied[:5], batch(12, 12) + tied[5:], without])
    topic.compact()
    stored = topic.stored()
    assert (stored["t0"], stored["t1"], stored["new"]) == ([108], [107], [110])
    topic.spark.sql(f"UPDATE {full(topic.table)} SET v = 'updated', n = n + 10 WHERE k IN ('t0', 't1')")
    topic.records[:] = [r for r in topic.records if r[3] not in ("t0", "t1")]
    topic.records += [(118, 7, NOW - 5 * HOUR, "t0", "updated"), (117, 7, NOW - 5 * HOUR, "t1", "updated")]
    more = [(120, 7, NOW - 5 * HOUR, "t0", "tie"), (121, 6, NOW - 5 * HOUR, "t1", "late")]
    topic.append(batch(24, 7, late=30), batch(31, 5, late=7) + more)
    topic.require_state()
    topic.compact(NOW + 24)
    topic.require_stored()
    [log] = topic.workshop.json("status", topic.name, "--now", NOW + 60)["topics"][topic.name]
    assert log["first_dirty_offset"] == log["log_end_offset"]


def test_a_stranger_s_rewrite_between_rounds_moves_places_and_no_offset(orderless):
    topic = orderless("ordered_rewrite", [batch(0, 12), batch(12, 12, late=5)])
    topic.compact()
    topic.append(batch(24, 12, late=6))
    kept = topic.offsets()
    topic.rewrite()
    assert topic.offsets() == kept
    topic.append(batch(36, 6, late=20))
    topic.rewrite("use-starting-sequence-number", "false")
    topic.compact(NOW + 1)
    topic.require_winners(NOW + 1)


def test_a_rewrite_that_forgets_row_ids_loses_nothing(orderless):
    topic = orderless("ordered_forgotten", [batch(0, 12), batch(12, 12, late=5)])
    topic.compact()
    topic.append(batch(24, 12, late=6))
    stored = topic.spark.table(full(topic.table))
    topic.spark.createDataFrame(stored.collect(), stored.schema).coalesce(1).createOrReplaceTempView("forgotten")
    topic.spark.sql(f"INSERT OVERWRITE {full(topic.table)} SELECT * FROM forgotten")
    topic.compact(NOW + 1)
    topic.require_stored()


@pytest.mark.deep
def test_of_equal_versions_from_before_an_upgrade_the_last_committed_wins(orderless):
    """The data sequence number alone decides. Of tables of version 3
    test_rounds_go_on_where_the_last_one_ended_and_late_versions_lose holds the rule."""
    groups = [[(n, 1, NOW - HOUR, "a", f"v{n}"), (n + 1, 1, NOW - HOUR, "b", f"v{n + 1}")] for n in (0, 2, 4)]
    topic = orderless("ordered_upgraded", groups, 2)
    assert [r["payload"] for r in topic.workshop.read(topic.name)] == [f"v{n}" for n in range(6)]
    topic.rewrite()
    topic.append([(6, 1, NOW - HOUR, "a", "last")])
    topic.compact()
    topic.require_stored()


def test_a_table_written_by_pyiceberg_is_upgraded_on_request_and_compacted(workshop, spark):
    import pyarrow as pa

    spark.sql("CREATE NAMESPACE IF NOT EXISTS cleantail.sinks")
    catalog = open_catalog(workshop.platform())
    schema = pa.schema(
        [
            ("n", pa.int32()),
            ("meta", pa.struct([("at", pa.timestamp("us", "UTC"))])),
            ("k", pa.string()),
            ("v", pa.string()),
        ]
    )
    table = catalog.create_table("sinks.ordered_py", schema)
    records = [(n, (NOW - HOUR + ver) * 1000, ms, k, v) for n, ver, ms, k, v in batch(0, 30, late=3)]
    for rows in (records[:11], records[11:12], records[12:]):
        columns = list(zip(*rows, strict=True))
        times = pa.array(columns[1], pa.timestamp("us", "UTC"))
        data = [
            pa.array(columns[0], pa.int32()),
            pa.StructArray.from_arrays([times], ["at"]),
            *map(pa.array, columns[3:]),
        ]
        table.append(pa.table(data, schema=schema))
    mapped = arguments(("order=meta.at", "timestamp=meta.at", "key=k", "value=v"))
    code, _, err = workshop.run("adopt", "sinks.ordered_py", "--topic", "ordered_py", *mapped)
    assert (
        code == 2
        and "they are made from row lineage, which version 3 has. --upgrade makes it 3, which cannot be undone" in err
    )
    out = workshop.ok("adopt", "sinks.ordered_py", "--topic", "ordered_py", *mapped, "--upgrade")
    assert "format version 2 -> 3" in out and "a commit without records, with which Iceberg assigns row ids" in out
    settings(workshop, "ordered_py")
    topic = Orderless(workshop, spark, "ordered_py", "sinks.ordered_py", records)
    topic.compact()
    topic.require_winners()


def test_a_round_is_undone_and_reclaim_keeps_offsets(orderless):
    """Tombstones go at their horizon in
    test_logs_by_a_partition_column_deletes_by_a_mark_and_late_versions_of_the_deleted."""
    topic = orderless(
        "ordered_undone", [batch(0, 24), batch(24, 12, late=5)], **{"cleantail.reclaim.deleted.ratio": 0.05}
    )
    topic.compact()
    assert topic.workshop.json("rollback", topic.name)["ok"]
    assert sorted(n for found in topic.stored().values() for n in found) == [n for n, *_ in topic.records]
    topic.compact(NOW + 500)
    offsets, before = topic.offsets(), files_of(topic.spark, topic.table)
    topic.workshop.ok("reclaim", topic.name, "--now", NOW + 500)
    topic.require_stored()
    assert topic.offsets() == offsets
    assert not set(files_of(topic.spark, topic.table)) & set(before)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(7))
def test_a_history_of_appends_rounds_and_rewrites_leaves_the_winners(orderless, seed):
    """test_a_stranger_s_rewrite_between_rounds_moves_places_and_no_offset holds the rule, and of reclaims
    test_a_round_is_undone_and_reclaim_keeps_offsets; here more orders of these acts."""
    chance, numbers = random.Random(seed), iter(range(1000))

    def group():
        return [
            (
                next(numbers),
                chance.choice([None, *range(6)]),
                NOW,
                f"k{chance.randrange(9)}",
                chance.choice(["x", "y", None]),
            )
            for _ in range(chance.randrange(1, 12))
        ]

    topic = orderless(f"ordered_history{seed}", [group(), group()])
    for step in range(1, 13):
        act = chance.choice(("append", "append", "round", "rewrite", "reclaim"))
        if act == "append":
            topic.append(group())
        elif act == "round":
            # no tombstone has reached its horizon by then
            topic.compact(NOW + step)
        elif act == "rewrite":
            topic.rewrite()
        else:
            topic.workshop.ok("reclaim", topic.name, "--now", NOW + step)
        topic.require_state(NOW + step)
    topic.compact(NOW + 20)
    topic.require_winners(NOW + 20)
    topic.require_proof()


def test_logs_by_a_partition_column_deletes_by_a_mark_and_late_versions_of_the_deleted(workshop, spark, lake):
    """Of each partition and key the highest version, as fields of a struct; a mark deletes, whatever the value is."""
    columns = "n int, part int, source struct<lsn: bigint>, ms bigint, k string, op string, v string"
    select = [
        "p AS n",
        "p % 2 AS part",
        "named_struct('lsn', o) AS source",
        "ms",
        "k",
        "coalesce(v, 'd') AS op",
        "'x' AS v",
    ]
    rows = [(n, n // 3, NOW - HOUR + n, f"k{n % 5}", "d" if n % 7 == 6 else "u") for n in range(40)]
    table = lake("ordered_marks", columns, [rows[:25], rows[25:]], select, "PARTITIONED BY (part)", V3)
    mapped = arguments(("partition=part", "order=source.lsn", "timestamp=ms", "key=k", "value=v"))
    workshop.ok("adopt", table, "--topic", "ordered_marks", *mapped, "--deleted", "op=d")
    settings(workshop, "ordered_marks", **{"cleantail.tombstone.lateness.ms": 10 * HOUR})

    def expected(records):
        logs = [
            [(n, ver, ms, k, None if op == "d" else "x") for n, ver, ms, k, op in records if n % 2 == p] for p in (0, 1)
        ]
        return list(map(winners, logs))

    def stored():
        seen = [(r.part, r.k, (r.n, None if r.op == "d" else "x")) for r in spark.table(full(table)).collect()]
        assert len({s[:2] for s in seen}) == len(seen)
        return [{k: found for part, k, found in seen if part == p} for p in (0, 1)]

    assert workshop.json("compact", "ordered_marks", "--now", NOW, "--force")["ok"]
    assert stored() == expected(rows)
    workshop.ok("compact", "ordered_marks", "--now", NOW + 5000, "--force")
    gone = {(p, k): found for p, log in enumerate(expected(rows)) for k, found in log.items() if found[1] is None}
    alive_in_logs = [{k: f for k, f in log.items() if f[1] is not None} for log in expected(rows)]
    assert gone and stored() == alive_in_logs
    # what was deleted at a higher version stays so: the ledger knows the version, though the tombstone is gone
    (p, k), _ = next(iter(gone.items()))
    late = spark.createDataFrame([(100 + p, 0, NOW, k, "u")], "p int, o bigint, ms bigint, k string, v string")
    late.selectExpr(*select).writeTo(full(table)).append()
    view = spark.table("cleantail.sinks.ordered_marks_latest").collect()
    shown = [{bytes(r.key).decode() for r in view if r.partition == p} for p in (0, 1)]
    assert shown == [set(log) for log in alive_in_logs]
    assert workshop.json("compact", "ordered_marks", "--now", NOW + 6000, "--force")["ok"]
    assert stored() == alive_in_logs


@pytest.mark.deep
def test_a_rewrite_between_check_and_publish_starts_the_round_over(workshop, orderless, table_of):
    """As of any table: test_a_delete_of_another_engine_between_check_and_publish_starts_the_round_over holds the rule,
    and test_a_stranger_s_rewrite_between_rounds_moves_places_and_no_offset that of places."""
    topic = orderless("ordered_between", [batch(0, 12), batch(12, 12, late=5)])
    table, _platform = table_of(topic.name), workshop.platform()
    checked = checked_round(workshop, table)
    topic.rewrite()
    topic.append([(24, 99, NOW, "k0", "came meanwhile")])
    done = publish_or_start_over(Run(table), checked)
    assert done.published == (0,)
    best = winners(topic.records[:24])
    assert topic.stored() == {k: [n, *([24] if k == "k0" else [])] for k, (n, _) in best.items()}

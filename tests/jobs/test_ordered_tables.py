"""Adopted tables without offsets: the highest version of a key wins, ties by row lineage. What survives is compared with
a model that knows nothing of lineage: it has the records in the order in which they were committed."""

from __future__ import annotations

import json

from tests.jobs.conftest import settings
from tests.jobs.test_adopt import HOUR, NOW
from tests.jobs.test_format_2 import full

COLUMNS = "n int, ver bigint, ms bigint, k string, v string"
SELECT = ["p AS n", "o AS ver", "ms", "k", "v"]
MAPPED = ("order=ver", "timestamp=ms", "key=k", "value=v")


def arguments(mapped=MAPPED):
    return [x for pair in mapped for x in ("--column", pair)]


def winners(records):
    """By the rule: of each key the record with the highest version, of equal ones the last committed."""
    best = {}
    for n, ver, _, k, v in records:
        if k not in best or ver >= best[k][0]:
            best[k] = (ver, n, v)
    return {k: (n, v) for k, (_, n, v) in best.items()}


def stored(spark, table):
    return {r.k: (r.n, r.v) for r in spark.table(full(table)).collect()}


def batch(first, count, keys=5, late=0):
    """Records with ties (two neighbours have one version) and late versions; each has a number of its own."""
    return [
        (
            n,
            (n // 2) - (late if n % 3 == 0 else 0),
            NOW - 5 * HOUR + n,
            f"k{n * 7 % keys}",
            None if n % 11 == 4 else f"v{n}",
        )
        for n in range(first, first + count)
    ]


def test_a_table_without_offsets_is_adopted_compacted_checked_and_read(workshop, spark, lake):
    groups = [batch(0, 12), batch(12, 12, late=4), batch(24, 12, late=9)]
    records = [r for group in groups for r in group]
    table = lake("orderless", COLUMNS, groups, SELECT, "", "'format-version'='3'")
    found = workshop.json("adopt", table, "--topic", "orderless", *arguments(), "--dry-run")
    assert found["records"] == 36 and found["mapped"]["order"] == "ver"
    print(workshop.ok("adopt", table, "--topic", "orderless", *arguments()))
    settings(workshop, "orderless")
    assert workshop.run("check-config")[0] == 0
    assert len(workshop.read("orderless")) == 36
    print(workshop.ok("plan", "orderless", "--now", NOW))
    result = workshop.json("compact", "orderless", "--now", NOW, "--force")
    assert result["ok"], result
    assert stored(spark, table) == winners(records)
    assert spark.table(full(table)).count() == len(winners(records))
    assert workshop.json("check", "orderless")["ok"]
    alive = {k: v for k, (_, v) in winners(records).items() if v is not None}
    latest = [json.loads(line) for line in workshop.ok("latest", "orderless", "--now", NOW).splitlines()]
    assert {r["key"]: r["payload"] for r in latest} == alive
    view = spark.table("cleantail.sinks.orderless_latest").collect()
    assert {bytes(r.key).decode(): bytes(r.value).decode() for r in view} == alive
    assert {bytes(r.key).decode(): r.offset for r in view} == {r["key"]: r["offset"] for r in latest}

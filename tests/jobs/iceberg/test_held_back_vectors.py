"""What a held-back log has lost on its branch no reader of main sees, whichever library it reads with."""

from __future__ import annotations

from cleantail.lake.catalogs import load_table, open_catalog
from tests.jobs.round.test_rounds import NOW, record

LETTERS = {"expectation": "expect_column_values_to_match_regex", "kwargs": {"column": "key", "regex": "^[a-z]+$"}}


def test_pyiceberg_reads_every_record_of_a_blocked_log_next_to_a_published_one(workshop):
    """PyIceberg takes all vectors of a Puffin file that it opens, those of other logs too."""
    red = [{**record(n, "1", f"v{n}"), "partition": 0} for n in range(4)]
    green = [{**record(n, "a", f"v{n}"), "partition": 1} for n in range(4)]
    topic = workshop.topic("held-back-vectors", checks=[LETTERS])
    workshop.ok("ingest", topic, "--file", workshop.file("held-back-vectors.jsonl", [*red, *green]))
    assert workshop.run("compact", topic, "--now", NOW)[0] == 1
    platform = workshop.platform()
    rows = load_table(open_catalog(platform), workshop.find(topic)).scan().to_arrow().to_pylist()
    found = sorted((row["partition"], row["offset"]) for row in rows)
    assert found == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 3)]

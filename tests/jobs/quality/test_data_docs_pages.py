"""Data Docs by the real Great Expectations: what they name, and that nothing of the data becomes markup."""

from __future__ import annotations

import re

import pytest

from spark_jobs.quality import data_docs
from spark_jobs.quality.data_docs import ALONE, apart, batch_name
from tests.jobs.round.test_rounds import NOW, record

HOSTILE = '<script>alert(1)</script><img src=x onerror=alert(2)><meta http-equiv="refresh" content="0">'
LETTERS = {"expectation": "expect_column_values_to_match_regex", "kwargs": {"column": "key", "regex": "^[a-z]+$"}}


def pages_of(workshop, topic):
    """Path in the site -> HTML, once all of it is written."""
    for writer in list(data_docs._WRITING.values()):
        writer.join()
    site = workshop.platform().home / "data_docs" / topic / "gx/uncommitted/data_docs/local_site"
    return {str(file.relative_to(site)): file.read_text() for file in site.rglob("*.html")}


def titles(pages):
    return {re.search("<title>(.*?)</title>", html)[1] for html in pages.values()}


NO_SCRIPT = {
    "expectation": "expect_column_values_to_not_match_regex",
    "kwargs": {"column": "key", "regex": "<script>a"},
}


def test_each_validation_names_topic_partition_kind_round_and_status_and_no_hostile_value_is_in_it(workshop):
    """What a producer wrote is not there at all; what the topic's YAML says is, escaped."""
    topic = workshop.topic("docs", checks=[LETTERS, NO_SCRIPT])
    own = [record(i, "k", f"v{i}", partition=p) for p in (0, 1) for i in range(3)]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [*own, record(3, HOSTILE, "v", partition=1)]))
    code, out, _ = workshop.run("compact", topic, "--now", NOW)
    assert code == 1 and re.search(r"(\d+) of \d+ checks passed \(\d+ rules on 2 partitions\)", out)
    round_name = workshop.evidence(topic)[0]["round"]
    pages = pages_of(workshop, topic)
    of_round = f"compact {round_name}"
    assert titles(pages) == {
        "docs · Data Docs",
        f"docs · partitions 0, 1 · {of_round} · rules of the round · passed",
        f"docs · partition 0 · {of_round} · the topic&#39;s own checks · passed",
        f"docs · partition 1 · {of_round} · the topic&#39;s own checks · failed",
    }
    assert any("regex: &lt;script&gt;a" in html and ", at offset 3" in html for html in pages.values())
    assert any("0 violations in 7 records" in html for html in pages.values())
    assert any("0 of 1 record" in html for html in pages.values())
    met = {found[1] for html in pages.values() if (found := re.search(r"\d+ of \d+ met(.*?)<", html))}
    assert met == {"", ", each on partitions 0, 1"}
    for html in pages.values():
        assert "alert(" not in html and "onerror" not in html
        assert not re.search("<script|<img|<meta http-equiv|None|DATAFRAME|https?://", html)
    index = re.sub(r"\s*\n\s*", "", pages["index.html"])
    assert [text in index for text in (">failed<", ">passed<", ">partition 1</a>", "compact")] == [True] * 4
    for target in re.findall('href="([^"]+)"', index):
        assert target in pages


@pytest.mark.parametrize(
    ("red", "logs", "groups"),
    [
        ([1], [0, 1, 2], [[1], [0, 2]]),
        ([0, 1], [0, 1], [[0], [1]]),
        (list(range(10)), list(range(10)), [*([p] for p in range(ALONE)), [8, 9]]),
    ],
)
def test_logs_that_broke_a_rule_are_shown_alone_up_to_a_number(red, logs, groups):
    assert apart(red, logs) == groups


def test_names_of_many_partitions_stay_short():
    assert [batch_name(list(range(n))) for n in (1, 2, 40)] == ["partition 0", "partitions 0, 1", "40 partitions"]

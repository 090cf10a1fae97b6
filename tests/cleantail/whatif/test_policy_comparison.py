"""`plan --set` and `plan --diff` on real tables: what they compare, what they print, and what they refuse."""

import json
import time

import pyarrow as pa
import pytest

from cleantail_cli import main
from cleantail_cli.plan_command import plain

NOW = int(time.time() * 1000) + 2 * 86_400_000
RULES = "topic: {}\nschedule: null\nconfig:\n  segment.ms: 1\n"


@pytest.fixture
def run(project, capsys):
    """Runs a command over the project's configuration: (exit code, stdout, stderr)."""

    def command(*arguments):
        code = main([*arguments, "--config", str(project / "config"), "--now", str(NOW)])
        return (code, *capsys.readouterr())

    return command


@pytest.fixture
def history(orders_table):
    """Ten records, then two more, and evidence of a round that dropped four of the first ten."""
    records = [(0, o, 1_000 + o, b"k%d" % (o % 6), None if o == 9 else b"v") for o in range(12)]
    orders_table.append(*records[:10]).append(*records[10:])
    row = {
        "topic": "orders", "partition": 0, "round": "r", "kind": "compact", "now_ms": 1,
        "checked_at_ms": int(time.time() * 1000), "first_dirty_offset": 0, "end_offset": 10, "records_in": 10,
        "records_out": 6, "deleted": json.dumps({"superseded": 4}), "passed": True, "checks": "[]", "outcome": "checked", "note": "",
    }  # fmt: skip
    unpublished = row | {"round": "rejected"}
    answer = {"checked_at_ms": row["checked_at_ms"] + 1}
    answers = [row | answer | {"outcome": "published"}, unpublished | answer | {"outcome": "rejected"}]
    rows = pa.Table.from_pylist([row, unpublished, *answers])
    orders_table.catalog.create_table("cleantail.cleantail_evidence", rows.schema).append(rows)
    return orders_table


def other(project, text, name="base"):
    """A second configuration directory with one topic file."""
    topics = project / name / "topics"
    topics.mkdir(parents=True)
    (topics / "orders.yaml").write_text(text)
    return str(project / name)


def test_two_policies_are_compared_on_the_appends_of_the_table(history, project, run):
    text = RULES.format("orders") + "  min.cleanable.dirty.ratio: 0.9\n"
    (project / "config" / "topics" / "orders.yaml").write_text(text)
    code, out, _ = run("plan", "orders", "--set", "min.cleanable.dirty.ratio=0.1", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["changes"] == {"min.cleanable.dirty.ratio": {"before": 0.9, "after": 0.1}}
    assert [found[side]["outcome"]["rounds"] for side in ("before", "after")] == [1, 2]
    assert [found[side]["outcome"]["superseded"] for side in ("before", "after")] == [4, 5]
    assert [found[side]["outcome"]["basis"] for side in ("before", "after")] == ["measured", "estimated"]
    assert found["observed_rounds"] == 1
    assert 1.9 < found["days"] < 2.1
    assert found["after"]["rounds_per_day"] == found["after"]["outcome"]["whole_days_rounds"] / found["whole_days"]
    assert [found[side]["due"] for side in ("before", "after")] == [[0], [0]]  # the table itself knows of no round


@pytest.mark.parametrize("told", ["evidence", "table"])
def test_a_round_that_was_undone_counts_no_more(history, run, told):
    """The one observed round is undone; the process that did it may have died before the evidence had its row."""
    if told == "table":
        history.append((0, 12, 1, b"a", b"v"), summary={"cleantail.operation": "rollback", "cleantail.undone": "r0,r"})
    else:
        table = history.catalog.load_table("cleantail.cleantail_evidence")
        row = table.scan().to_arrow().to_pylist()[0]
        now_ms = int(time.time() * 1000) + 5
        row |= {"round": "undid r0, r", "kind": "rollback", "outcome": "published", "checked_at_ms": now_ms}
        table.append(pa.Table.from_pylist([row], table.schema().as_arrow()))
    code, out, _ = run("plan", "orders", "--set", "min.cleanable.dirty.ratio=0.1", "--json")
    found = json.loads(out)
    assert (code, found["observed_rounds"]) == (0, 0)
    assert "no round was published yet" in found["note"]
    assert [found[side]["outcome"]["superseded"] for side in ("before", "after")] == [None, None]


def test_people_get_a_table_that_says_what_is_measured_and_what_is_estimated(history, run):
    code, out, _ = run("plan", "orders", "--set", "max.compaction.lag.ms=1000", "--set", "segment.bytes=2000000")
    assert code == 0
    assert "max.compaction.lag.ms: unlimited -> 1s" in out
    for row in ("rounds", "runs", "a day", "rows dropped", "bytes freed", "due now", "next expiry"):
        assert row in out
    assert "measured: known from real rounds or metadata; estimated: from the share" in out
    assert "published in that time: 1 round" in out


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        pytest.param(
            "min.cleanable.dirty.ratio=1.5", "--set: min.cleanable.dirty.ratio: 1.5 is not allowed", id="range"
        ),
        pytest.param("min.cleanable.dirty.ratio=high", '"high" is not allowed: a number in [0, 1]', id="type"),
        pytest.param("segment.ms=0x10", '"0x10" is not allowed: a whole number', id="hexadecimal"),
        pytest.param("min.cleanable.dirty=1", "did you mean min.cleanable.dirty.ratio?", id="unknown"),
        pytest.param("segment.ms", "'segment.ms' has no value: name=value", id="no value"),
        pytest.param("=3", "'' has no value", id="no name"),
        pytest.param("min.compaction.lag.ms=9223372036854775807", None, id="at the limit"),
        pytest.param("compaction.strategy=header", "compaction.strategy.header", id="over several keys"),
        pytest.param("cleanup.policy=compact,delete", None, id="a list as Kafka writes it"),
        pytest.param("cleanup.policy=keep", '"keep" is not allowed: compact, delete or compact,delete', id="enum"),
    ],
)
def test_a_setting_is_read_as_a_topics_yaml_would_be(history, run, setting, message):
    code, _, err = run("plan", "orders", "--set", setting)
    assert (code, message is None or message in err) == (0 if message is None else 2, True), err


def test_without_a_table_there_is_no_history_and_no_error(project, run):
    code, out, _ = run("plan", "orders", "--set", "segment.ms=2")
    assert (code, "nothing was ingested yet" in out) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param([], "plan needs a TOPIC, or --diff BASE_DIR to compare all topics", id="neither"),
        pytest.param(["orders", "--diff", "x"], "remove TOPIC and --set", id="both"),
        pytest.param(["--diff", "x", "--set", "a=1"], "remove TOPIC and --set", id="diff and set"),
        pytest.param(["orders", "--set", "a=1", "--force"], "remove --partition and --force", id="force"),
        pytest.param(["orders", "--set", "a=1", "--partition", "0"], "remove --partition and --force", id="partition"),
        pytest.param(["--diff", "/nowhere/base"], "/nowhere/base: no such directory", id="no base"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(project, run, arguments, message):
    code, _, err = run("plan", *arguments)
    assert (code, message in err) == (2, True), err


def test_a_difference_of_directories_is_a_comment_in_markdown(history, project, run):
    base = other(project, RULES.format("orders") + "  min.cleanable.dirty.ratio: 0.9\n")
    (project / "base" / "topics" / "gone.yaml").write_text("topic: gone\n")
    (project / "base" / "topics" / "same.yaml").write_text("topic: same\n")
    (project / "config" / "topics" / "same.yaml").write_text("topic: same\nconfig: {segment.ms: 604800000}\n")
    (project / "config" / "topics" / "new.yaml").write_text("topic: new\n")
    code, out, _ = run("plan", "--diff", base)
    assert code == 0
    assert "### Cleantail: 3 topics change" in out
    assert "| <code>min.cleanable.dirty.ratio</code> | <code>0.9</code> | <code>0.5</code> |" in out
    assert "| <code>schedule</code> | <code>none</code> | <code>\\*/15 \\* \\* \\* \\*</code> |" in out
    assert "| rounds |" in out
    assert "#### new: new" in out and "#### gone: removed" in out
    assert "same" not in out


def test_a_difference_for_machines_has_the_same(history, project, run):
    code, out, _ = run(
        "plan", "--diff", other(project, RULES.format("orders") + "  segment.bytes: 2000000\n"), "--json"
    )
    [found] = json.loads(out)["changed"]
    assert (code, found["topic"], found["changes"]["segment.bytes"]) == (
        0,
        "orders",
        {"before": 2_000_000, "after": 1 << 30},
    )


def test_nothing_changed_is_said_in_one_line(project, run):
    base = other(project, (project / "config" / "topics" / "orders.yaml").read_text())
    assert run("plan", "--diff", base)[:2] == (0, "### Cleantail: no topic's policy changes\n")


def test_a_broken_base_is_reported_and_a_broken_proposal_is_an_error(project, run):
    base = other(project, "topic: orders\nconfig: {segment.ms: 0}\n")
    code, out, _ = run("plan", "--diff", base)
    assert code == 0
    assert "Cannot be read in the base" in out and "segment.ms: 0 is not allowed" in out.replace("\\", "")
    assert "orders: new" not in out
    (project / "config" / "topics" / "orders.yaml").write_text("topic: orders\nconfig: {segment.ms: -1}\n")
    code, _, err = run("plan", "--diff", base)
    assert (code, "segment.ms: -1 is not allowed" in err) == (2, True)


def test_a_proposal_that_is_broken_hides_no_other_topic_and_is_not_taken_for_removed(project, run):
    base = other(project, "topic: orders\n")
    (project / "config" / "topics" / "orders.yaml").write_text("topic: orders\nconfig: {segment.mss: 1}\n")
    (project / "config" / "topics" / "bills.yaml").write_text("topic: bills\n")
    code, out, err = run("plan", "--diff", base)
    assert (code, "bills: new" in out, "removed" in out) == (2, True, False)
    assert "Cannot be read: " in out and "config.segment.mss: unknown key" in out.replace("\\", "")
    assert "orders.yaml:2: config.segment.mss: unknown key" in err
    code, out, _ = run("plan", "--diff", base, "--json")
    document = json.loads(out)
    assert (code, document["added"], document["removed"], len(document["broken"])) == (2, ["bills"], [], 1)


def test_a_table_that_cannot_be_read_is_told_where_its_topic_is(history, project, run):
    history.set_properties(**{"cleantail.topic": "another"})
    code, out, _ = run("plan", "--diff", other(project, RULES.format("orders")))
    assert (code, "belongs to topic another" in out) == (0, True)


def test_text_of_a_proposal_is_no_markup_in_the_comment(project, run):
    evil = "`<img src=x onerror=alert(1)>`|@everyone [click](https://evil.example) # head"
    for name in ("base", "config"):
        header = json.dumps(evil if name == "config" else "version")
        text = f"topic: orders\nconfig: {{compaction.strategy: header, compaction.strategy.header: {header}}}\n"
        (project / name / "topics").mkdir(parents=True, exist_ok=True)
        (project / name / "topics" / "orders.yaml").write_text(text)
    _, out, _ = run("plan", "--diff", str(project / "base"))
    [line] = [line for line in out.splitlines() if "everyone" in line]
    for piece in ("<img", "`<", "@everyone", "](http", "https://"):
        assert piece not in line
    assert line.replace("\\|", "").count("|") == 4
    assert plain("a|b\nc") == "a\\|b c"


def test_invisible_characters_and_markup_are_escaped_once_in_the_comment():
    line = plain("a\u202eb\u200b\u2066 @daily & <b>")
    assert line == r"a\\u202eb\\u200b\\u2066 &#64;<wbr>daily &amp; &lt;b&gt;"


def test_a_history_shorter_than_a_day_has_sums_that_are_no_rates(history, project, capsys):
    soon = str(int(time.time() * 1000) + 600_000)
    config = ["--config", str(project / "config"), "--now", soon]
    assert main(["plan", "orders", "--set", "min.cleanable.dirty.ratio=0.1", *config]) == 0
    rounds = next(line for line in capsys.readouterr().out.splitlines() if "rounds" in line and "│" in line)
    assert "(history: 10" in rounds and "a day" not in rounds and " in " not in rounds

"""What the command line promises in addition to its results: exit codes, search paths, refusals and messages."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from cleantail.lake.reader_positions import registered
from cleantail_cli import main
from cleantail_cli.parameters import CLOCK
from docs_site.command_reference import parsed

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def run(project, capsys, monkeypatch):
    """Runs a command that must not start Spark: (exit code, stdout, stderr)."""
    monkeypatch.setitem(sys.modules, "spark_jobs.iceberg.session", None)

    def command(*arguments):
        code = main([*arguments, "--config", str(project / "config")])
        return (code, *capsys.readouterr())

    return command


@pytest.fixture
def filled(orders_table):
    return orders_table.append((0, 2, 1_000, b"k", None), (0, 3, 1_000, b"k", b"v"))


# ---- where it looks


def test_the_configuration_is_that_of_the_environment_and_an_option_wins(project, capsys, monkeypatch, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("CLEANTAIL_CONFIG", str(project / "config"))
    assert main(["plan", "orders"]) == 0
    monkeypatch.setenv("CLEANTAIL_CONFIG", str(project / "absent"))
    assert main(["plan", "orders"]) == 2
    assert "no such directory: give it with --config DIR or CLEANTAIL_CONFIG" in capsys.readouterr().err
    assert main(["plan", "orders", "--config", str(project / "config")]) == 0


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"cleantail {version('cleantail')}\n"


def test_several_files_may_follow_one_option_or_each_have_its_own():
    ways = ["--file a b --file c", "--file a --file b --file c", "--file a b c"]
    assert {tuple(map(str, parsed(["ingest", "t", *way.split()]).params["files"])) for way in ways} == {("a", "b", "c")}


@pytest.mark.parametrize(
    "text",
    ["2026-11-29T14:20", "2026-11-29 14:20:00", "2026-11-29T14:20:00Z", "2026-11-29T15:20+01:00", "1795962000000"],
)
def test_a_clock_is_a_time_or_milliseconds(text):
    assert CLOCK.convert(text, None, None) == 1_795_962_000_000


# ---- nothing to do is said before Spark is started


def test_check_without_a_table_proves_nothing_and_says_so(run):
    message = "error: nothing to prove: topic orders has no table yet; run `cleantail ingest` first\n"
    assert run("check", "orders") == (2, "", message)


def test_reclaim_without_a_table_says_so(run):
    code, out, err = run("reclaim", "orders")
    assert (code, out.splitlines()[0], err) == (0, "orders: there is no table yet", "")


def test_reclaim_with_nothing_due_says_so(run, filled):
    assert run("reclaim", "orders", "--json", "--now", "5")[0] == 0
    code, out, _ = run("reclaim", "orders", "--json", "--now", "5")
    document = json.loads(out)
    assert (code, document["ok"], document["rewritten_files"]) == (0, True, 0)


# ---- readers


@pytest.mark.parametrize(
    ("partition", "offset", "says"),
    [
        pytest.param("0", "99999", "from 2 (log start) to 4 (log end: all is read)", id="beyond the end"),
        pytest.param("0", "1", "from 2 (log start) to 4", id="below the start"),
        pytest.param("7", "3", "topic orders has no partition 7: it has 0", id="unknown partition"),
    ],
)
def test_a_position_outside_the_log_is_refused_with_the_bounds(run, filled, partition, offset, says):
    code, out, err = run("reader", "set", "orders", "index", "--partition", partition, "--offset", offset)
    assert (code, out, says in err) == (2, "", True), err
    assert registered(filled.catalog, filled.topic) == ()


def test_a_reader_is_moved_back_only_where_that_is_said(run, filled):
    place = ("reader", "set", "orders", "index", "--partition", "0", "--offset")
    assert run(*place, "4")[0] == 0
    code, _, err = run(*place, "2")
    assert (code, "would move it back" in err, "--back" in err) == (2, True, True)
    assert run(*place, "2", "--back")[0] == 0
    assert [r.offset for r in registered(filled.catalog, filled.topic)] == [2]


# ---- latest


def test_latest_takes_the_name_of_a_branch_and_refuses_an_unknown_one(run, filled):
    filled.table.manage_snapshots().create_branch(filled.table.current_snapshot().snapshot_id, "kept").commit()
    filled.append((0, 4, 1_000, b"x", b"v"))
    assert [json.loads(line)["key"] for line in run("latest", "orders", "--as-of", "kept")[1].splitlines()] == ["k"]
    code, _, err = run("latest", "orders", "--as-of", "nobody")
    assert (code, "has no branch or tag nobody; it has kept, main" in err) == (2, True), err


# ---- configuration


def test_a_setting_without_effect_is_a_warning_and_not_an_error(run, project):
    (project / "config" / "topics" / "a.yaml").write_text(
        "topic: a\nconfig:\n  retention.ms: 1d\n  compaction.strategy.header: v\n"
        "schedule: {assets: [x-cleantail://orders, x-cleantail://nobody, s3://b/c]}\n"
    )
    code, _, err = run("check-config")
    file = project / "config" / "topics" / "a.yaml"
    assert (code, err.splitlines()) == (
        0,
        [
            f"warning: {file}: config.retention.ms: has no effect: cleanup.policy is compact, without delete",
            f"warning: {file}: config.compaction.strategy.header: has no effect: compaction.strategy is offset, "
            "not header",
            f"warning: {file}: schedule.assets: there is no topic nobody: x-cleantail://nobody is never updated",
        ],
    )
    assert len(json.loads(run("check-config", "--json")[1])["warnings"]) == 3


def test_a_bound_that_the_broker_s_clock_makes_void_is_a_warning(run, project):
    file = project / "config" / "topics" / "a.yaml"
    config = "{message.timestamp.type: LogAppendTime, message.timestamp.after.max.ms: 1h}"
    file.write_text(f"topic: a\nconfig: {config}\n")
    code, _, err = run("check-config")
    text = "config.message.timestamp.after.max.ms: has no effect: message.timestamp.type is LogAppendTime"
    assert (code, err.splitlines()) == (0, [f"warning: {file}: {text}"])
    file.write_text(f"topic: a\nconfig: {config.replace('LogAppendTime', 'CreateTime')}\n")
    assert run("check-config")[2] == ""


def test_files_with_aborted_data_are_a_warning(run, project):
    file = project / "config" / "topics" / "a.yaml"
    file.write_text("topic: a\nsource: {isolation: read_uncommitted}\n")
    code, _, err = run("check-config")
    text = "source.isolation: read_uncommitted: records of aborted transactions are ingested too"
    assert code == 0 and err.startswith(f"warning: {file}: {text}")
    file.write_text("topic: a\nsource: {isolation: read_committed}\n")
    assert run("check-config")[2] == ""


def test_a_wrong_line_is_named_by_its_number(run, project):
    file = project / "config" / "topics" / "a.yaml"
    file.write_text("topic: a\n\nconfig:\n  # a comment\n  segment.ms: soon\n  segment.mss: 1\n")
    err = run("check-config")[2]
    assert f"{file}:5: config.segment.ms: " in err
    assert f"{file}:6: config.segment.mss: unknown key" in err
    assert [p["line"] for p in json.loads(run("check-config", "--json")[1])["problems"]] == [5, 6]


@pytest.mark.parametrize(
    ("written", "found"),
    [
        pytest.param("segment.ms: 1d", {"segment_ms": 86_400_000}, id="day"),
        pytest.param("segment.ms: 1.5h", {"segment_ms": 5_400_000}, id="part of an hour"),
        pytest.param("segment.ms: 90 min", {"segment_ms": 5_400_000}, id="blank"),
        pytest.param("segment.ms: 250ms", {"segment_ms": 250}, id="ms"),
        pytest.param("segment.bytes: 512MiB", {"segment_bytes": 536_870_912}, id="size"),
        pytest.param("segment.ms: 7", {"segment_ms": 7}, id="plain"),
        pytest.param("segment.ms: 1GiB", None, id="size for a time"),
        pytest.param("segment.bytes: 1d", None, id="time for a size"),
        pytest.param("segment.ms: 0.0001s", None, id="no whole number"),
        pytest.param("segment.ms: 5000000000000000d", None, id="too large"),
        pytest.param("min.cleanable.dirty.ratio: 1d", None, id="neither"),
    ],
)
def test_times_and_sizes_may_have_a_unit(run, project, written, found):
    from cleantail.config.loading import find_topic

    (project / "config" / "topics" / "a.yaml").write_text(f"topic: a\nconfig:\n  {written}\n")
    code, _, err = run("check-config")
    assert (code, "is not allowed: a " in err) == (2 if found is None else 0, found is None), err
    if found is not None:
        config = find_topic("a", project / "config").config
        assert {name: getattr(config, name) for name in found} == found


def test_import_config_says_where_and_exits_2_where_nothing_was_new(run, project):
    described = project / "described.txt"
    described.write_text("Dynamic configs for topic bills are:\n  cleanup.policy=compact sensitive=false synonyms={}\n")
    file = project / "config" / "topics" / "bills.yaml"
    code, out, err = run("import-config", str(described))
    assert (code, out.splitlines()[0]) == (0, f"bills: {file} written"), err
    code, out, _ = run("import-config", str(described))
    assert (code, out) == (2, f"bills: {file} exists already and is kept; --force overwrites it\n")
    assert run("import-config", str(described), "--force")[0] == 0


# ---- as a process


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["latest", "orders", "--json"], 0),
        # latest holds the rule: these load the same libraries, or fewer
        pytest.param(["plan", "orders"], 0, marks=pytest.mark.deep),
        pytest.param(["status"], 0, marks=pytest.mark.deep),
        pytest.param(["check-config"], 0, marks=pytest.mark.deep),
        (["--version"], 0),
        (["plan", "nobody", "--json"], 2),
    ],
)
def test_a_process_says_what_is_its_own_and_no_library_does(filled, project, arguments, code):
    """With DuckDB loaded, as after a round: its module would print what it takes for leaks at the end."""
    run = "import duckdb; kept = duckdb.connect(); import builtins; builtins.kept = [kept, duckdb.sqltypes]; "
    command = [sys.executable, "-c", f"{run}from cleantail_cli import run_and_exit; run_and_exit()", *arguments]
    env = os.environ | {"CLEANTAIL_HOME": str(project / "home"), "CLEANTAIL_CONFIG": str(project / "config")}
    done = subprocess.run(command, env=env, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    own = "error: " if code else ""
    assert (done.returncode, [line for line in done.stderr.splitlines() if not (own and line.startswith(own))]) == (
        code,
        [],
    )
    assert done.stdout


def test_check_of_a_table_without_records_proves_nothing_and_says_so(run, orders_table):
    nothing = (
        "orders: no round has cleaned a record yet, so no key was checked\n"
        "orders: no offset has two different records\n"
    )
    assert run("check", "orders") == (0, nothing, "")
    assert json.loads(run("check", "orders", "--json")[1]) == {
        "topic": "orders",
        "ok": True,
        "partitions": [],
        "contradictions": [],
    }


def test_latest_of_a_table_without_records_says_where_to_go_on_from(run, orders_table):
    orders_table.append()
    code, out, err = run("latest", "orders")
    assert (code, out) == (0, "")
    assert err.endswith("; continue from: the start of every partition (the table has no records yet)\n")


@pytest.mark.parametrize("to", ["last", "5"])
def test_a_rollback_is_of_rounds_or_of_an_ingestion_and_not_of_both(run, capsys, to):
    with pytest.raises(SystemExit, match="2"):
        run("rollback", "orders", "--to", to, "--ingestion", "last")
    assert "error: --ingestion: not allowed with argument --to" in capsys.readouterr().err

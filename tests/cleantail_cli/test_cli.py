"""The command line: arguments, exit codes, and one plain message for each thing that can be wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cleantail.errors import ConflictError
from cleantail.lake.reader_positions import set_position
from cleantail.lake.records import shown_records
from cleantail.lake.records.log_records import log_records
from cleantail.log.partition_state import Horizon, PartitionState, Quarantine
from cleantail.rounds.stations import TopicOutcome
from cleantail_cli import main, plan_command, round_commands
from cleantail_cli.parameters import CLOCK

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def run(project, capsys):
    """Runs a command over the project's configuration: (exit code, stdout, stderr)."""

    def command(*arguments):
        code = main([*arguments, "--config", str(project / "config")])
        return (code, *capsys.readouterr())

    return command


@pytest.fixture
def usage(capsys):
    """Runs a command that is refused for its arguments; what it says."""

    def refused(*arguments):
        with pytest.raises(SystemExit, match="2"):
            main(arguments)
        return capsys.readouterr().err

    return refused


# ---- arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param([], "Usage: cleantail [OPTIONS] COMMAND", id="no command"),
        pytest.param(["squash"], "error: No such command 'squash'.", id="unknown command"),
        pytest.param(["compact"], "error: TOPIC is missing", id="no topic"),
        pytest.param(["plan", "orders", "--loud"], "error: No such option '--loud'.", id="unknown option"),
        pytest.param(
            ["compact", "orders", "--dry-run"],
            "error: No such option '--dry-run'. `cleantail plan TOPIC` prints what it would do.",
            id="dry run of compact",
        ),
        pytest.param(
            ["reclaim", "orders", "--dry-run"],
            "`cleantail plan TOPIC` prints what it would do",
            id="dry run of reclaim",
        ),
        pytest.param(
            ["ingest", "orders", "--dry-run"],
            "No such option '--dry-run'. It appends everything or nothing, and `cleantail rollback TOPIC --ingestion last`",
            id="dry run of ingest",
        ),
        pytest.param(["status", "--dry-run"], "No such option '--dry-run'. (`cleantail status", id="dry run of status"),
        pytest.param(["plan", "orders", "--now"], "error: Option '--now' requires an argument.", id="no value"),
        pytest.param(["plan", "orders", "--now", "-1"], "error: --now: '-1' is not", id="negative clock"),
        pytest.param(
            ["plan", "orders", "--now", "1795932130"],
            "error: --now: 1795932130 is in 1970 to 1973 as Unix ms. Did you mean seconds? Give 1795932130000 "
            "(2026-11-29T06:02:10 UTC)",
            id="clock in seconds",
        ),
        pytest.param(
            ["plan", "orders", "--now=-1"],
            "error: --now: '-1' is not an integer from 0 to 2^63 - 1",
            id="negative clock with =",
        ),
        pytest.param(
            ["plan", "orders", "--now", "1.5"], "'1.5' is not an integer from 0 to 2^63 - 1", id="clock with a point"
        ),
        pytest.param(["plan", "orders", "--now", "soon"], "'soon' is not an integer", id="clock in words"),
        pytest.param(["plan", "orders", "--now", ""], "'' is not an integer", id="empty clock"),
        pytest.param(["plan", "orders", "--now", "²"], "error: --now: '²' is not an integer", id="superscript"),
        pytest.param(["plan", "orders", "--now", str(1 << 63)], f"'{1 << 63}' is not an integer", id="clock too large"),
        pytest.param(
            ["compact", "orders", "--partition", "x"], "error: --partition: 'x' is not", id="partition in words"
        ),
        pytest.param(
            ["read", "orders", "--from-offset", "x"], "error: --from-offset: 'x' is not", id="offset in words"
        ),
        pytest.param(
            ["read", "orders", "--to-offset", "--3"], "error: --to-offset: '--3' is not an offset", id="two signs"
        ),
        pytest.param(
            ["rollback", "orders", "--to", "x"], "error: --to: 'x' is neither last nor", id="snapshot in words"
        ),
        pytest.param(
            ["ingest", "orders", "--file", "f", "--encoding", "hex"],
            "error: --encoding: 'hex' is not one of 'text', 'base64'.",
            id="unknown encoding",
        ),
    ],
)
def test_a_wrong_argument_is_named_and_exits_2(usage, arguments, message):
    assert message in usage(*arguments)


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("1767225600000", 1_767_225_600_000), (str((1 << 63) - 1), (1 << 63) - 1)]
)
def test_a_clock_is_any_instant_from_0(text, value):
    assert CLOCK.convert(text, None, None) == value


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    out = capsys.readouterr().out
    for command in ("check-config", "status", "ingest", "plan", "compact", "reclaim", "read"):
        assert command in out
    assert "Exit codes: 0 success" in out


def test_options_may_stand_before_or_after_the_command(project, capsys):
    config = ["--config", str(project / "config")]
    answers = []
    for arguments in (
        ["--json", *config, "plan", "orders", "--now", "5"],
        ["plan", "orders", "--now", "5", "--json", *config],
    ):
        assert main(arguments) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1]
    assert answers[0]["now_ms"] == 5


def test_of_two_configurations_the_one_after_the_command_wins(project, capsys):
    assert main(["--config", str(project / "absent"), "plan", "orders", "--config", str(project / "config")]) == 0
    assert main(["--config", str(project / "config"), "plan", "orders", "--config", str(project / "absent")]) == 2


def test_without_config_the_folder_is_that_of_the_working_directory(project, capsys, monkeypatch):
    monkeypatch.chdir(project)
    assert main(["plan", "orders"]) == 0


# ---- configuration


def test_a_good_configuration_is_listed(run):
    code, out, err = run("check-config")
    assert (code, err) == (0, "")
    assert "cleantail.orders" in out


def test_a_broken_topic_is_reported_together_with_the_valid_ones(run, project):
    (project / "config" / "topics" / "bad.yaml").write_text("topic: bad\nconfig:\n  segment.mss: 1\n")
    code, out, err = run("check-config", "--json")
    document = json.loads(out)
    assert (code, document["ok"]) == (2, False)
    assert [t["topic"] for t in document["topics"]] == ["orders"]
    assert [(p["key"], "segment.ms" in p["problem"]) for p in document["problems"]] == [("config.segment.mss", True)]
    assert run("check-config")[0] == 2


def test_an_unknown_topic_is_named_with_the_nearest_one(run):
    code, out, err = run("plan", "order")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert "no topic order: topics: orders (did you mean orders?)" in err


def test_a_missing_folder_names_the_option(capsys, tmp_path):
    assert main(["plan", "orders", "--config", str(tmp_path / "absent")]) == 2
    assert (
        capsys.readouterr().err
        == f"error: {tmp_path}/absent: no such directory: give it with --config DIR or CLEANTAIL_CONFIG\n"
    )


@pytest.mark.parametrize("command", ["status", "ingest --file f", "plan", "compact", "reclaim", "read"])
def test_every_command_refuses_an_unknown_topic_before_it_starts_anything(run, command):
    name, *rest = command.split()
    code, out, err = run(name, "nobody", *rest)
    assert (code, out, "no topic nobody" in err) == (2, "", True)


def test_an_error_for_machines_is_one_json_document_beside_the_message(run):
    code, out, err = run("plan", "nobody", "--json")
    document = json.loads(out)
    assert (code, set(document), document["ok"]) == (2, {"ok", "error"}, False)
    assert err == f"error: {document['error']}\n"


# ---- a table that is not there, or not reachable


@pytest.mark.parametrize("command", ["status", "plan", "compact"])
def test_before_the_first_ingest_nothing_is_due_and_nothing_is_wrong(run, command):
    code, out, _ = run(command, "orders")
    assert (code, "no records yet" in out) == (0, True)


def test_compact_with_nothing_due_starts_no_spark(run, monkeypatch):
    monkeypatch.delattr(round_commands, "_run")
    code, out, _ = run("compact", "orders", "--json", "--now", "5")
    document = json.loads(out)
    assert (code, document["ok"], document["plan"]["reason"]) == (0, True, "the table has no records yet")


def test_status_without_a_topic_is_that_of_all(run, project):
    (project / "config" / "topics" / "bills.yaml").write_text("topic: bills\n")
    code, out, _ = run("status", "--json", "--now", "7")
    none: dict[str, list[None]] = {"bills": [], "orders": []}
    assert (code, json.loads(out)) == (
        0,
        {"now_ms": 7, "topics": none, "readers": none, "sources": {}, "source_lags": {}, "broken": []},
    )


def test_status_of_all_goes_on_past_a_broken_file_and_says_so_at_the_end(run, project, orders_table):
    (project / "config" / "topics" / "aaa.yaml").write_text("topic: aaa\nconfig: {segment.mss: 1}\n")
    (project / "config" / "topics" / "bills.yaml").write_text("topic: bills\n")
    code, out, err = run("status")
    assert code == 2
    assert "orders: no records yet" in out and "bills: no records yet" in out
    assert err.startswith(f"error: {project}/config/topics/aaa.yaml:2: config.segment.mss: unknown key")
    code, out, _ = run("status", "--json", "--now", "7")
    document = json.loads(out)
    assert (code, document["topics"]) == (2, {"bills": [], "orders": []})
    [broken] = document["broken"]
    assert "aaa.yaml:2: config.segment.mss" in broken
    assert run("status", "orders")[0] == 0


def test_status_of_all_goes_on_past_a_table_that_is_another_topics(run, project, orders_table):
    (project / "config" / "topics" / "bills.yaml").write_text("topic: bills\n")
    orders_table.set_properties(**{"cleantail.topic": "other"})
    code, out, err = run("status")
    assert (code, "bills: no records yet" in out) == (2, True)
    assert err.startswith("error: orders: ")
    assert "belongs to topic other" in err


def test_a_broken_file_does_not_look_like_a_topic_of_that_name(run, project):
    (project / "config" / "topics" / "aaa.yaml").write_text("topic: aaa\nconfig: {segment.mss: 1}\n")
    row = next(line for line in run("check-config")[1].splitlines() if "aaa.yaml" in line)
    assert [cell.strip() for cell in row.split("│")[1:-1]] == ["aaa.yaml", "", "", "(broken)", "", ""]


def test_a_file_that_cannot_be_read_is_named_once(run, project):
    assert run("import-config", "none.txt")[2] == "error: none.txt cannot be read: No such file or directory\n"
    (project / "latin.txt").write_bytes("é".encode("latin-1"))
    message = f"error: {project}/latin.txt cannot be read: it is not text in UTF-8\n"
    assert run("import-config", str(project / "latin.txt"))[2] == message


def test_an_unknown_reader_is_refused_with_the_known_ones(run, orders_table):
    assert run("reader", "remove", "orders", "nobody")[2].endswith("has no reader nobody: no reader is registered\n")
    assert run("reader", "set", "orders", "cache", "--partition", "0", "--offset", "0")[0] == 0
    assert run("reader", "remove", "orders", "nobody")[2].endswith("has no reader nobody: its readers are cache\n")


def test_a_broken_defaults_file_is_reported_once(run, project):
    (project / "config" / "defaults.yaml").write_text("topic: {config: {segment.mss: 1}}\n")
    (project / "config" / "topics" / "bills.yaml").write_text("topic: bills\n")
    for command in ("status", "check-config"):
        code, out, err = run(command)
        assert (code, out, err.count("defaults.yaml:1: topic.config.segment.mss: unknown key")) == (2, "", 1)


def test_reading_before_the_first_ingest_says_what_to_do(run):
    assert run("read", "orders") == (2, "", "error: topic orders has no table yet; run `cleantail ingest` first\n")


@pytest.mark.parametrize("command", ["status", "plan", "compact", "read"])
def test_a_catalog_on_a_closed_port_is_one_plain_message(run, project, command, monkeypatch):
    (project / "config" / "defaults.yaml").write_text(
        "platform:\n  catalog:\n    type: postgres\n    uri: postgresql://127.0.0.1:1/iceberg\n    warehouse: s3://w\n"
    )
    monkeypatch.setenv("CLEANTAIL_CATALOG_USER", "me")
    monkeypatch.setenv("CLEANTAIL_CATALOG_PASSWORD", "hunter2")
    code, out, err = run(command, "orders")
    assert code == 4
    where = "catalog cleantail (postgres) at postgresql://127.0.0.1:1/iceberg"
    assert f"error: {where} cannot be reached: the connection was refused: nothing listens there\n" in err
    assert "hunter2" not in out + err
    assert "Traceback" not in err


@pytest.mark.parametrize("command", ["status", "plan", "compact", "read"])
def test_a_broken_catalog_file_is_one_plain_message(run, project, command):
    (project / "home").mkdir()
    (project / "home" / "catalog.db").write_bytes(b"no database " * 100)
    code, _, err = run(command, "orders")
    assert code == 2
    assert err.splitlines()[-1] == (
        f"error: catalog cleantail (sqlite) at sqlite:///{project}/home/catalog.db cannot be opened: "
        "the file is not a SQLite database"
    )


def test_a_table_of_another_topic_is_refused(run, orders_table):
    orders_table.set_properties(**{"cleantail.topic": "other"})
    code, _, err = run("plan", "orders")
    assert (code, "belongs to topic other; nothing was changed" in err) == (2, True)


def test_a_broken_state_is_refused_and_named(run, orders_table):
    orders_table.set_properties(**{"cleantail.partition.0": "{"})
    code, _, err = run("status", "orders")
    assert code == 2
    assert "property cleantail.partition.0 is not a partition state of version 1" in err


# ---- with data, without Spark


@pytest.fixture
def filled(orders_table):
    return orders_table.append((1, 4, 1_000, b"k", b"v"), (0, 2, 1_000, b"k", None), (0, 1, 1_000, b"\xff", b"v"))


def test_read_writes_kcat_lines_partition_by_partition_in_offset_order(run, filled):
    code, out, err = run("read", "orders")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [(x["topic"], x["partition"], x["offset"], x["key"], x["payload"]) for x in lines] == [
        ("orders", 0, 1, "/w==", "v"),
        ("orders", 0, 2, "k", None),
        ("orders", 1, 4, "k", "v"),
    ]


@pytest.mark.parametrize(
    ("arguments", "offsets"),
    [
        pytest.param(["--partition", "0"], [1, 2], id="partition 0"),
        pytest.param(["--from-offset", "2"], [2, 4], id="from an offset"),
        pytest.param(["--partition", "0", "--from-offset", "2"], [2], id="both"),
        pytest.param(["--to-offset", "2"], [1], id="to an offset, exclusive"),
        pytest.param(["--from-offset", "-1"], [2, 4], id="the last offset of each log, as kcat -o -1"),
        pytest.param(["--from-offset", "-2", "--to-offset", "-1"], [1], id="both ends counted back"),
        pytest.param(["--from-offset", "-99"], [1, 2, 4], id="further back than the log's start"),
        pytest.param(["--limit", "0"], [], id="none"),
        pytest.param(["--limit", "2"], [1, 2], id="the first two"),
        pytest.param(["--limit", "3"], [1, 2, 4], id="over two partitions"),
        pytest.param(["--limit", "9"], [1, 2, 4], id="more than there are"),
        pytest.param(["--key", "k"], [2, 4], id="a key"),
        pytest.param(["--key", "k", "--limit", "1"], [2], id="a key's first record"),
        pytest.param(["--key", "/w==", "--encoding", "base64"], [1], id="a key that is not text"),
        pytest.param(["--key", "/w=="], [], id="a key is text unless it is said to be base64"),
        pytest.param(["--key", "nobody"], [], id="no such key"),
    ],
)
def test_read_takes_a_partition_and_an_offset(run, filled, arguments, offsets):
    code, out, _ = run("read", "orders", *arguments)
    assert (code, [json.loads(line)["offset"] for line in out.splitlines()]) == (0, offsets)


def test_a_limit_leaves_no_record_out_whose_file_ends_later(run, orders_table):
    """The file of 3 and 9 ends last; its record 3 is one of the first three all the same."""
    orders_table.append((0, 3, 0, b"a", b"x"), (0, 9, 0, b"a", b"x")).append((0, 1, 0, b"a", b"x"))
    orders_table.append((0, 5, 0, b"a", b"x"), (0, 6, 0, b"a", b"x"))
    for limit, offsets in ((1, [1]), (3, [1, 3, 5]), (4, [1, 3, 5, 6]), (5, [1, 3, 5, 6, 9])):
        out = run("read", "orders", "--limit", str(limit))[1]
        assert [json.loads(line)["offset"] for line in out.splitlines()] == offsets


def test_a_few_records_are_read_from_their_files_alone(run, orders_table, monkeypatch):
    orders_table.append((0, 1, 0, b"a", b"x")).append((0, 2, 0, b"a", b"x")).append((0, 3, 0, b"a", b"x"))
    ends = []
    monkeypatch.setattr(
        shown_records, "log_records", lambda *a, **k: ends.append(k["end_offset"]) or log_records(*a, **k)
    )
    assert len(run("read", "orders", "--limit", "2")[1].splitlines()) == 2
    assert ends == [3]


def test_a_key_that_is_not_base64_is_refused_and_not_repeated(run, filled):
    code, out, err = run("read", "orders", "--key", "secret!", "--encoding", "base64")
    assert (code, out, err) == (2, "", "error: --key is not base64, as --encoding base64 requires\n")


@pytest.mark.parametrize("command", ["read", "latest", "plan", "compact"])
def test_a_partition_that_is_not_there_is_named(run, filled, command):
    code, out, err = run(command, "orders", "--partition", "7")
    assert (code, out) == (2, "")
    assert "topic orders has no partition 7: it has 0, 1" in err


def test_read_goes_back_to_a_snapshot(run, filled):
    old = filled.table.current_snapshot().snapshot_id
    filled.append((2, 9, 1_000, b"k", b"v"))
    assert len(run("read", "orders")[1].splitlines()) == 4
    assert len(run("read", "orders", "--as-of", str(old))[1].splitlines()) == 3


@pytest.mark.parametrize("partition", [[], ["--partition", "0"]], ids=["all partitions", "one partition"])
def test_read_refuses_an_unknown_snapshot(run, filled, partition):
    code, out, err = run("read", "orders", "--as-of", "5", *partition)
    assert (code, out) == (2, "")
    unknown = "no snapshot 5 in cleantail.orders: it never existed, or has expired"
    assert err == f"error: {unknown}; `cleantail history TOPIC` lists the snapshots\n"


def test_plan_decides_at_the_clock_that_is_given(run, filled):
    """segment.ms is 1: the records of 1 s are active at 1000 and cleanable at 1001."""
    early, late = (json.loads(run("plan", "orders", "--json", "--now", now)[1]) for now in ("1000", "1001"))
    assert [row["action"] for row in early["partitions"]] == ["none", "none"]
    assert [row["action"] for row in late["partitions"]] == ["compact", "compact"]
    assert late["reason"] == "2 of 2 partitions are due"


def test_plan_takes_a_partition(run, filled):
    document = json.loads(run("plan", "orders", "--json", "--now", "1001", "--partition", "1")[1])
    assert [row["partition"] for row in document["partitions"]] == [1]


def test_plan_takes_force(run, filled):
    filled.set_properties(**{"cleantail.partition.1": PartitionState(checkpoint=4).as_json()})
    config = "topic: orders\nconfig:\n  segment.ms: 1\n  min.cleanable.dirty.ratio: 1.0\n"
    (filled.platform.config_dir / "topics" / "orders.yaml").write_text(config)
    plain, forced = (json.loads(run("plan", "orders", "--json", "--now", "1001", *how)[1]) for how in ([], ["--force"]))
    assert ([len(p["units"]) for p in (plain, forced)]) == [0, 1]


def test_plan_changes_nothing_also_where_a_checkpoint_is_repaired(run, filled):
    filled.set_properties(**{"cleantail.partition.0": PartitionState(checkpoint=900).as_json()})
    before = filled.table.metadata_location
    code, out, _ = run("plan", "orders", "--json", "--now", "0")
    assert "first dirty offset 900 is above the log end 3" in out
    assert (code, filled.table.refresh().metadata_location) == (0, before)


def test_status_has_the_numbers_of_each_log(run, filled):
    ledger = PartitionState(checkpoint=3, horizons=(Horizon(3, 9_000, 1),), known_sequence_number=1)
    filled.set_properties(**{"cleantail.partition.0": ledger.as_json()})
    code, out, _ = run("status", "orders", "--json", "--now", "5")
    rows = json.loads(out)["topics"]["orders"]
    assert [(r["partition"], r["log_start_offset"], r["log_end_offset"], r["records"]) for r in rows] == [
        (0, 1, 3, 2),
        (1, 4, 5, 1),
    ]
    assert [(r["checkpoint"], r["next_horizon_ms"]) for r in rows] == [(3, 9_000), (None, None)]


def test_status_and_plan_show_readers_and_what_they_hold_until_when(run, filled):
    ledger = PartitionState(checkpoint=3, horizons=(Horizon(3, 9_000, 1, swept_to=1),), known_sequence_number=1)
    filled.set_properties(**{"cleantail.partition.0": ledger.as_json()})
    for name, offset in (("idx", 1), ("fast", 3)):
        set_position(filled.catalog, filled.topic, name, 0, offset, now_ms=7)
    hold = {"name": "idx", "partition": 0, "offset": 1, "at_ms": 7, "behind": 2, "tombstones": 1, "at_most": False}
    at = ("orders", "--now", "9000")
    for found in (
        json.loads(run("status", *at, "--json")[1])["readers"]["orders"],
        json.loads(run("plan", *at, "--json")[1])["readers"],
    ):
        assert found[1] == hold | {"until_ms": 9_000 + 7 * 86_400_000}
        assert (found[0]["name"], found[0]["tombstones"], found[0]["until_ms"]) == ("fast", 0, None)
    for command in ("status", "plan"):
        out = " ".join(run(command, *at)[1].split())
        assert "reader fast: next offset 3 of partition 0, behind by 0; blocks nothing" in out
        assert (
            "reader idx: next offset 1 of partition 0, behind by 2; blocks 1 tombstone "
            "until 1970-01-08 00:00:09 UTC" in out
        )
    words = " ".join(run("plan", *at)[1].split())
    assert (
        "tombstones: 1 tombstone past its horizon waits for reader idx (at offset 1 of partition 0) "
        "until 1970-01-08 00:00:09 UTC reclaim:" in words
    )


# ---- how it ends


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        pytest.param(ConflictError("lost the race"), 3, "error: lost the race\n", id="conflict"),
        pytest.param(KeyboardInterrupt(), 130, "interrupted; only published changes are kept\n", id="interrupt"),
    ],
)
def test_each_kind_of_error_has_its_exit_code_and_message(run, monkeypatch, raised, code, message):
    def fail(*_):
        raise raised

    monkeypatch.setattr(plan_command, "evaluated", fail)
    assert run("plan", "orders") == (code, "", message)


@pytest.mark.parametrize(("ok", "code"), [(True, 0), (False, 1)])
def test_a_failed_check_exits_1(run, filled, monkeypatch, ok, code):
    monkeypatch.setattr(round_commands, "_run", lambda *_: TopicOutcome("orders", ok))
    found, out, _ = run("compact", "orders", "--json", "--now", "1001")
    assert (found, json.loads(out)["ok"]) == (code, ok)


def test_a_defect_is_not_hidden(run, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(plan_command, "evaluated", fail)
    with pytest.raises(ZeroDivisionError, match="a defect"):
        run("plan", "orders")


def test_a_pipe_closed_by_its_reader_is_not_an_error(filled, project):
    """`cleantail read orders | head -0`: exit code 0 and nothing on stderr."""
    filled.append(*((3, n, 0, b"k", b"v" * 200) for n in range(500)))
    command = [sys.executable, "-c", "import sys; from cleantail_cli import main; sys.exit(main())"]
    env = os.environ | {"CLEANTAIL_HOME": str(project / "home")}
    arguments = ["read", "orders", "--config", str(project / "config")]
    with subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=REPOSITORY
    ) as process:
        process.stdout.close()
        err = process.stderr.read()
    assert (process.returncode, err) == (0, b"")


# ---- release


def test_release_takes_a_partition_out_of_quarantine(run, orders_table):
    held = Quarantine(0, "compact", "check failed: x", 2, 9)
    orders_table.set_properties(**{"cleantail.partition.0": PartitionState(checkpoint=1, quarantine=held).as_json()})
    code, out, _ = run("release", "orders", "0")
    assert (code, out.splitlines()[0]) == (0, "orders: partition 0 is no longer blocked; the next run retries it")
    assert "2 attempts: check failed: x" in out
    code, out, err = run("release", "orders", "0", "--json")
    assert (code, json.loads(out)["ok"]) == (2, False)
    assert "partition 0 of topic orders is not blocked" in err

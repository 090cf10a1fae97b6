"""What a job says in its log when it ends: one line of numbers and names, no wall of JSON before a reason."""

import logging
import time

import pyarrow as pa

from cleantail.config.loading import load_platform
from cleantail.home.process import keep_logs_printable
from spark_jobs.run_station import clock_of, in_short, parse_args, run_job


def test_a_result_is_logged_as_one_short_line_without_nested_values_or_data():
    result = {
        "ok": False,
        "round": "r1",
        "held_back": [1, 2],
        "checks_passed": 9,
        "measures": [{"partition": 1, "keys": 5}],
        "verdicts": [{"failures": [{"observed": "such as 'secret'"}]}],
        "sample": [{"key": "secret"}],
        "checkpoints": {"0": 5},
        "error": "said before",
        "ends": list(range(100)),
        "data_docs": "/home/" + "x" * 300,
    }
    assert in_short(result) == "ok False, round r1, held_back [1, 2], checks_passed 9"


def test_a_defect_is_logged_with_its_frames_and_without_the_text_of_its_error(tmp_path, monkeypatch, caplog):
    """And no result is written: the task then reports that its job crashed, and why."""
    config = topic_at(tmp_path, monkeypatch)

    def work(_):
        return {}["a key " + "of a record"]

    code = run_job(parse_args(["reclaim", *config, "--result", str(tmp_path / "result.json")]), work)
    assert (code, (tmp_path / "result.json").exists()) == (1, False)
    [said] = [r.getMessage() for r in caplog.records if (r.name, r.levelname) == ("cleantail.job", "ERROR")]
    assert "in work" in said and said.rstrip().endswith("KeyError")
    assert "a key of a record" not in caplog.text


def test_an_arrow_error_is_logged_and_returned_without_the_value_that_it_quotes(tmp_path, monkeypatch, caplog):
    config = topic_at(tmp_path, monkeypatch)
    code = run_job(
        parse_args(["reclaim", *config, "--result", str(tmp_path / "result.json")]),
        lambda _: pa.array(["of " + "a record"]).cast(pa.int64()),
    )
    assert code == 4
    result = (tmp_path / "result.json").read_text()
    assert "pyarrow.lib.ArrowInvalid" in result and "pyarrow.lib.ArrowInvalid" in caplog.text
    assert "of a record" not in result + caplog.text


def topic_at(place, monkeypatch):
    """Arguments of a job whose topic has no table yet."""
    monkeypatch.setenv("CLEANTAIL_HOME", str(place / "home"))
    monkeypatch.delenv("CLEANTAIL_DEBUG", raising=False)
    (place / "config" / "topics").mkdir(parents=True)
    (place / "config" / "topics" / "orders.yaml").write_text("topic: orders\n")
    return ["--config", str(place / "config"), "--topic", "orders"]


def test_names_that_others_wrote_command_no_terminal_in_a_jobs_log(tmp_path, monkeypatch, caplog):
    """Whatever logs them: the call itself need not think of it."""
    config, usual = topic_at(tmp_path, monkeypatch), logging.getLogRecordFactory()

    def work(_):
        logging.getLogger("cleantail.file_removal").warning("%s stays", "s3://b/\x1b[31m\nx ERROR forged")
        return {"ok": True}

    try:
        assert run_job(parse_args(["reclaim", *config]), work) == 0
    finally:
        logging.setLogRecordFactory(usual)
    assert "s3://b/[31m\n  x ERROR forged stays" in caplog.messages


def test_a_log_record_made_from_a_dictionary_is_logged():
    """structlog, and so each process of Airflow, makes records without a name and fills them afterwards."""
    usual = logging.getLogRecordFactory()
    try:
        keep_logs_printable("cleantail")
        record = logging.makeLogRecord({"name": "aiosmtpd.smtp", "msg": "%r EOF", "args": (("127.0.0.1", 1),)})
        assert record.getMessage() == "('127.0.0.1', 1) EOF"
    finally:
        logging.setLogRecordFactory(usual)


def test_a_clock_that_came_through_an_xcom_counts_only_if_the_platform_allows_one(tmp_path, monkeypatch):
    """`reclaim` went by it: nothing expired, and its evidence said 1970."""
    config = topic_at(tmp_path, monkeypatch)
    arguments = parse_args(["reclaim", *config, "--now", "1000000"])
    before_ms = int(time.time() * 1000)
    assert clock_of(arguments, load_platform(arguments.config)) >= before_ms
    (arguments.config / "defaults.yaml").write_text("platform: {allow_clock: true}\n")
    assert clock_of(arguments, load_platform(arguments.config)) == 1_000_000

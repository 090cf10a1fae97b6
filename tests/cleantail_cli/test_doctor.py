"""`cleantail doctor`: every check runs, nothing is changed, no secret is printed, and each fault has its next step."""

import json
import os

import pytest

from cleantail import doctor
from cleantail.errors import CleantailError, OutsideError
from cleantail_cli import main
from cleantail_cli.installation_commands import airflow_is_set_up

NOBODY = "127.0.0.1:1"
"""An address at which nothing listens."""


@pytest.fixture
def no_airflow(project, monkeypatch):
    """An environment without an Airflow, also if other tests of this process have set one up."""
    monkeypatch.setattr(doctor, "ANSWERED_WITHIN_MS", 1000)
    monkeypatch.setenv("AIRFLOW_HOME", str(project / "no-airflow"))
    for name in [name for name in os.environ if name.startswith("AIRFLOW__DATABASE__")]:
        monkeypatch.delenv(name)


@pytest.fixture
def run(project, capsys, no_airflow):
    """Runs doctor: (exit code, part -> state and text of its findings)."""

    def command(config=None):
        code = main(["doctor", "--json", "--config", str(config or project / "config")])
        document = json.loads(capsys.readouterr().out)
        assert document["ok"] == (code == 0)
        return code, {f"{each['part']} {each['of']}".strip(): each for each in document["checks"]}

    return command


def write(project, defaults="", **topics):
    (project / "config" / "defaults.yaml").write_text(defaults)
    for name, text in topics.items():
        (project / "config" / "topics" / f"{name}.yaml").write_text(f"topic: {name}\n{text}")


def files(folder):
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_sound_installation_is_ok_before_and_after_its_first_table_and_nothing_is_written(run, project):
    before = files(project)
    code, found = run()
    assert code == 0, found
    assert {name: each["state"] for name, each in found.items() if each["state"] != "ok"} == {"airflow": "not examined"}
    assert "does not exist yet: the first run makes it" in found["catalog cleantail"]["text"]
    assert files(project) == before


def test_a_topic_table_is_read_together_with_its_store(run, orders_table, project):
    table = orders_table.append((0, 1, 1_000, b"k", b"v")).table
    assert run()[1]["table orders"]["text"] == "cleantail.orders and its store can be read"
    (project / "home" / "catalog.db").chmod(0o600)
    os.remove(table.metadata_location.removeprefix("file:"))
    code, found = run()
    assert (code, found["table orders"]["state"], found["jars"]["state"]) == (2, "wrong", "ok")
    assert "its metadata is missing" in found["table orders"]["text"]


def test_all_checks_run_although_each_of_several_fails(run, project, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(project / "no-java"))
    monkeypatch.setenv("CLEANTAIL_JARS", str(project / "no-jars"))
    defaults = f"platform: {{catalog: {{type: rest, uri: 'http://{NOBODY}'}}, spark: {{master: 'spark://{NOBODY}', "
    write(project, f"{defaults}insecure: true}}}}\n", pay=f"source: {{kafka: {{bootstrap.servers: '{NOBODY}'}}}}\n")
    write(project, (project / "config" / "defaults.yaml").read_text(), bad="config: {segment.sm: 1}\n")
    code, found = run()
    wrong = {name: each for name, each in found.items() if each["state"] == "wrong"}
    assert code == 2
    assert wrong.keys() == {"configuration bad.yaml", "catalog cleantail", "kafka pay", "spark master", "jars", "java"}
    assert all(each["next_step"] for each in wrong.values())
    assert "nothing listens there" in wrong["catalog cleantail"]["text"]
    assert "Connection refused" in wrong["kafka pay"]["text"]
    assert "nothing was appended" not in wrong["kafka pay"]["text"]
    assert wrong["jars"]["next_step"] == "run `cleantail jars`"


def test_a_problem_of_an_external_system_has_its_own_exit_code(run, project):
    write(project, f"platform: {{catalog: {{type: rest, uri: 'http://{NOBODY}'}}}}\n")
    assert run()[0] == OutsideError.exit_code


def test_without_a_configuration_the_next_step_is_init(run, project):
    code, found = run(project / "nowhere")
    assert (code, found["configuration"]["state"], found["pyspark"]["state"]) == (2, "wrong", "ok")
    assert found["configuration"]["next_step"].startswith("`cleantail init` writes one")


def test_a_state_that_cannot_be_written_or_is_open_to_others_is_named(run, project, monkeypatch):
    (project / "home").mkdir(mode=0o755)
    assert "is open to users other than" in run()[1]["state"]["text"]
    (project / "file").write_text("")
    monkeypatch.setenv("CLEANTAIL_HOME", str(project / "file" / "home"))
    assert "cannot be written" in run()[1]["state"]["text"]


def test_a_secret_is_shown_neither_of_the_environment_nor_of_a_file(run, project, monkeypatch, capsys):
    monkeypatch.setenv("CLEANTAIL_KAFKA_BOOTSTRAP_SERVERS", NOBODY)
    monkeypatch.setenv("CLEANTAIL_KAFKA_SASL_PASSWORD", "OPEN-SESAME")
    monkeypatch.setenv("CLEANTAIL_CATALOG_TOKEN", "OPEN-SESAME")
    write(project, f"platform: {{catalog: {{type: rest, uri: 'http://{NOBODY}'}}}}\n", pay="source: {kafka: {}}\n")
    write(project, (project / "config" / "defaults.yaml").read_text(), bad="config: {segment.ms: OPEN-SESAME}\n")
    code, found = run()
    assert (code, found["configuration bad.yaml"]["text"].endswith("bad.yaml:2: config.segment.ms")) == (2, True)
    assert "OPEN-SESAME" not in json.dumps(found)


def test_a_python_of_another_kind_is_refused_for_the_tasks(run, project, monkeypatch):
    python = project / "python"
    python.write_text("#!/bin/sh\necho '3.2 has cleantail'\n")
    python.chmod(0o700)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    found = run()[1]["workers' python"]
    assert (found["state"], f"{python} is Python 3.2, and the driver runs on 3." in found["text"]) == ("wrong", True)


def test_an_unexpected_error_is_a_finding_without_its_text():
    def check():
        raise RuntimeError("OPEN-SESAME")

    finding = doctor.checked("part", "", "", check)
    assert (finding.state, finding.text) == (doctor.WRONG, "the check failed: RuntimeError")


@pytest.mark.parametrize(
    ("codes", "expected"), [((), 0), ((OutsideError,), 4), ((OutsideError, CleantailError), 2), ((CleantailError,), 2)]
)
def test_the_exit_code_is_that_of_what_a_person_has_to_correct(codes, expected):
    findings = [doctor.Finding("part", "", doctor.WRONG, "", exit_code=code.exit_code) for code in codes]
    assert doctor.exit_code_of([*findings, doctor.Finding("part", "", doctor.OK, "")]) == expected


def test_people_read_two_columns_wrapped_between_words(project, capsys, monkeypatch, no_airflow):
    monkeypatch.setenv("COLUMNS", "80")
    write(project, "", pay=f"source: {{kafka: {{bootstrap.servers: '{NOBODY}'}}}}\n")
    assert main(["doctor", "--config", str(project / "config")]) == 4
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ok    configuration           2 topics in"
    assert lines[-1] == "1 of 11 checks found something wrong"
    assert next(line for line in lines if "next: " in line).startswith(" " * 30 + "next: start the brokers")


def test_an_airflow_is_looked_for_without_importing_it(tmp_path):
    assert not airflow_is_set_up({"AIRFLOW_HOME": str(tmp_path)})
    (tmp_path / "airflow.cfg").write_text("")
    assert airflow_is_set_up({"AIRFLOW_HOME": str(tmp_path)})
    assert airflow_is_set_up({"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "sqlite://", "AIRFLOW_HOME": "/nowhere"})

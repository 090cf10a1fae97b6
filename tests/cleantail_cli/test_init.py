"""`cleantail init`: what it writes is valid, is what the docs show, and replaces nothing."""

import ast
import re
from pathlib import Path

import pytest

from cleantail.config.loading import load_topics
from cleantail_cli import main
from cleantail_cli.installation_commands import DAG_FILE, DAGS

PAGE = (Path(__file__).parents[2] / "docs" / "installing.md").read_text()


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs init for a configuration that does not exist yet: (exit code, stdout, stderr)."""
    monkeypatch.setenv("CLEANTAIL_HOME", str(tmp_path / "home"))

    def command(*arguments):
        code = main(["init", *arguments, "--config", str(tmp_path / "config")])
        return (code, *capsys.readouterr())

    return command


def tree(folder):
    return {file: file.read_text() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param([], ("files", "landing/orders/*.jsonl", None), id="files"),
        pytest.param(["--path", "landing/a b/*.jsonl"], ("files", "landing/a b/*.jsonl", None), id="files named"),
        pytest.param(["--kafka", "kafka_default"], ("kafka", None, "kafka_default"), id="connection"),
        pytest.param(["--kafka", "a:1,b:2"], ("kafka", None, "a:1,b:2"), id="brokers"),
        pytest.param(["--table", "redpanda.orders"], ("table", None, "redpanda.orders"), id="table of a sink"),
    ],
)
def test_the_files_of_each_source_are_a_valid_configuration(run, tmp_path, source, expected):
    assert run("orders", *source)[0] == 0
    assert main(["check-config", "--config", str(tmp_path / "config")]) == 0
    (topic,) = load_topics(tmp_path / "config")
    kafka, table = topic.source.kafka, topic.source.table
    named = (kafka.connection or kafka.bootstrap_servers) if kafka else table.name if table else None
    assert (topic.topic, topic.source.type, topic.source.path, named) == ("orders", *expected)


def test_existing_files_are_kept_and_a_second_topic_joins_the_first(run, tmp_path):
    assert run("orders", "--dags", str(tmp_path / "dags"))[0] == 0
    before = tree(tmp_path)
    code, out, _ = run("orders", "--kafka", "kafka_default", "--dags", str(tmp_path / "dags"))
    assert (code, out.count("exists already and is kept"), tree(tmp_path)) == (2, 3, before)
    assert run("users")[0] == 0
    assert [topic.topic for topic in load_topics(tmp_path / "config")] == ["orders", "users"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["../orders"], "topic: \"../orders\" is not allowed", id="a name that leads out of the folder"),
        pytest.param(["a\nb: 1"], "is not allowed", id="a name that would be YAML"),
        pytest.param(["orders", "--path", "x\n  kafka: {}"], "is not allowed", id="a path that would be YAML"),
        pytest.param(["orders", "--kafka", "k", "--path", "p"], "a topic has one source", id="two sources"),
        pytest.param(["cleantail_doctor"], "another name: Cleantail has its own DAG of this name", id="the name of our DAG"),
        pytest.param(["orders", "--kafka", "mine"], "platform.kafka_connections", id="a connection of others"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_refused_and_nothing_is_written(run, tmp_path, arguments, message):
    code, _, err = run(*arguments)
    assert (code, message in err, tree(tmp_path)) == (2, True, {}), err


def test_the_dag_file_is_the_one_that_the_docs_show_and_python_reads_the_directory_as_it_is(run, tmp_path):
    [shown] = re.findall(r"<!-- example: dags -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert DAGS.format(config='"/etc/cleantail/config"') == shown
    config = tmp_path / 'ä "𝄞\\'
    assert main(["init", "orders", "--dags", str(tmp_path), "--config", str(config)]) == 0
    constants = [
        node.value for node in ast.walk(ast.parse((tmp_path / DAG_FILE).read_text())) if isinstance(node, ast.Constant)
    ]
    assert constants == [str(config)] * 2


def test_the_output_names_the_command_that_unpauses_the_dag(run):
    assert "airflow dags unpause orders" in run("orders")[1]

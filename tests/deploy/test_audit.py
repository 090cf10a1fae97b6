"""`make audit` queries a service that answers, and fails if no service does."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from tests.cleantail.rest_catalog import JsonHandler, served

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def audit():
    loader = SourceFileLoader("audit_of_bin", str(ROOT / "bin" / "audit"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def answers(audit, monkeypatch):
    """answers(pypi, osv): what these answer, as (status, document); a COMMAND that prints its arguments, and its end."""

    class Services(JsonHandler):
        said: dict[str, tuple[int, object]] = {}

        def do_GET(self):
            self.answer(*self.said["pypi"])

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(*self.said["osv"])

    with served(Services) as (_, address):
        monkeypatch.setattr(audit, "WITHIN_S", 5)
        for name, (_, body, key) in dict(audit.SERVICES).items():
            monkeypatch.setitem(audit.SERVICES, name, (f"{address}/{name}", body, key))

        def run(pypi, osv, code=0):
            Services.said = {"pypi": pypi, "osv": osv}
            text = f"import sys; print('asked', *sys.argv[1:]); sys.exit({code})"
            return audit.main([sys.executable, "-c", text])

        yield run


GOOD = {"pypi": (200, {"vulnerabilities": [{"id": "x"}]}), "osv": (200, {"vulns": [{"id": "x"}]})}
MUTE = [
    pytest.param((404, {}), id="not-there"),
    pytest.param((200, {"info": {}}), id="an-index-without-data"),
    pytest.param((200, {"vulnerabilities": [], "vulns": []}), id="an-index-that-knows-none"),
    pytest.param((200, ["x"]), id="something-else"),
    pytest.param((503, {}), id="out-of-order"),
]


@pytest.mark.parametrize("mute", MUTE)
def test_the_audit_reports_that_it_did_not_run_if_no_service_answers(answers, mute, capfd):
    assert answers(mute, mute) == 3
    out, err = capfd.readouterr()
    assert "asked" not in out and "NOT RUN" in err and "nothing was checked" in err


@pytest.mark.parametrize("mute", MUTE)
def test_osv_is_asked_where_the_index_has_no_data(answers, mute, capfd):
    assert answers(mute, GOOD["osv"]) == 0
    assert "asked --vulnerability-service osv" in capfd.readouterr().out


@pytest.mark.parametrize("code", [0, 1])
def test_the_end_of_the_audit_is_that_of_its_tool(answers, code, capfd):
    assert answers(GOOD["pypi"], (500, {}), code) == code
    assert "asked --vulnerability-service pypi" in capfd.readouterr().out


def test_make_runs_the_audit_and_hides_no_failure():
    [line] = [line for line in (ROOT / "Makefile").read_text().splitlines() if "pip-audit" in line]
    assert line.startswith("\tbin/audit $(BIN)/uv tool run --from 'pip-audit==") and "--strict" in line
    assert "||" not in line and not line.startswith("\t-")

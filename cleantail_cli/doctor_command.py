"""`doctor`: examine the installation. If an Airflow was set up here, examine its connections, channels and DAGs too.

Airflow's part runs in a separate process (`cleantail_airflow.tasks.doctor_task`), because importing Airflow creates its
configuration and writes to stdout.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from cleantail.doctor import OK, UNKNOWN, WRONG, Finding, examine, exit_code_of
from cleantail.errors import OutsideError
from cleantail.human import counted
from cleantail_cli.command import Invocation, command
from cleantail_cli.output import ConsoleOutput, line_width

AIRFLOW_WITHIN_S = 600
STATE_CHARS, LABEL_CHARS = 6, 24
_SHOWN = {OK: "ok", WRONG: "WRONG", UNKNOWN: "-"}


@command(
    "doctor",
    click.option("--send-test", is_flag=True, help="Send a test message to each alert channel. Needs Airflow."),
    configured=False,
    checked=False,
    examples=["cleantail doctor", "cleantail doctor --send-test"],
)
def doctor(call: Invocation, send_test: bool) -> int:
    """Examine everything that a run needs, and name the next step for what is wrong.

    It checks configuration, state, catalogs, store, tables, the Kafka topics, Spark, jars, Java and Python. If Airflow
    is set up here, it also checks connections, alert channels, plugin and DAGs. Nothing is changed. All checks run,
    even after one failed. The exit code is 2 if something is wrong on this machine or in the configuration, and 4 if
    only something outside is wrong.
    """
    with call.output.progress() as progress:
        progress("examining the installation")
        env = call.platform.env
        findings = _with_airflow(call.config, send_test, env) if airflow_is_set_up(env) else _alone(call.config, env)
    call.output.show(Examination(findings))
    return exit_code_of(findings)


def airflow_is_set_up(env: Mapping[str, str]) -> bool:
    """Return whether this environment has an Airflow with a configuration. Does not import Airflow."""
    home = Path(env.get("AIRFLOW_HOME") or Path.home() / "airflow")
    configured = any(name.startswith("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN") for name in env)
    return find_spec("airflow") is not None and (configured or (home / "airflow.cfg").is_file())


def _alone(config: Path, env: Mapping[str, str]) -> list[Finding]:
    text = "no Airflow is set up here (AIRFLOW_HOME has no airflow.cfg): run this where its scheduler or a worker runs"
    return [*examine(config, env), Finding("airflow", "", UNKNOWN, text)]


def _with_airflow(config: Path, send_test: bool, env: Mapping[str, str]) -> list[Finding]:
    """Return all findings of a process that reads connections as Airflow's own servers do."""
    arguments = [
        "-m",
        "cleantail_airflow.tasks.doctor_task",
        str(config.absolute()),
        *(["--send-test"] if send_test else []),
    ]
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            env={**env, "_AIRFLOW_PROCESS_CONTEXT": "server"},
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=AIRFLOW_WITHIN_S,
        )
        return [Finding(**finding) for finding in json.loads(done.stdout.rpartition("\n\0")[2])]
    except (subprocess.TimeoutExpired, ValueError) as e:
        text = f"Airflow's part could not be examined: {type(e).__name__}"
        step = f"run `{Path(sys.executable).name} {' '.join(arguments)}` and read its error"
        return [*examine(config, env), Finding("airflow", "", WRONG, text, step, OutsideError.exit_code)]


@dataclass(frozen=True)
class Examination:
    """Answer of `doctor`: a finding for each check."""

    findings: Sequence[Finding]

    def document(self) -> dict[str, Any]:
        return {"ok": exit_code_of(self.findings) == 0, "checks": [each.as_json() for each in self.findings]}

    def tell(self, page: ConsoleOutput) -> None:
        for finding in self.findings:
            page.line("\n".join(_lines(finding, line_width())))
        wrong = sum(finding.state == WRONG for finding in self.findings)
        checks = counted(len(self.findings), "check")
        page.line(f"{wrong} of {checks} found something wrong" if wrong else f"nothing is wrong: {checks}")


def _lines(finding: Finding, width: int) -> list[str]:
    """Return the finding in two columns, wrapped between words."""
    label = finding.label
    texts = [*finding.text.splitlines(), *([f"next: {finding.next_step}"] if finding.next_step else [])]
    begin = STATE_CHARS + LABEL_CHARS
    lines = textwrap.TextWrapper(max(width - begin, 30), break_long_words=False, break_on_hyphens=False)
    parts = [part for text in texts for part in lines.wrap(text) or [""]]
    head = f"{_SHOWN[finding.state]:{STATE_CHARS}}{label:{LABEL_CHARS - 1}} "
    first = [head.rstrip()] if len(label) >= LABEL_CHARS else [f"{head}{parts.pop(0)}"]
    return [*first, *(f"{'':{begin}}{part}" for part in parts)]

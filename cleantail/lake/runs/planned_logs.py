"""Says what a run is to do with one log, and why, as a plan shows it. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from cleantail.log.due_work import Retention
from cleantail.log.log_state import LogState
from cleantail.log.triggers import Decision


@dataclass(frozen=True, slots=True)
class PlannedLog:
    """Holds the state of a log and what was decided for it. `keyless`: what will become of its records without a key,
    in words; empty where it has none."""

    log: LogState
    decision: Decision
    retention: Retention
    keyless: str = ""

    @property
    def action(self) -> str:
        """Returns compact, retain (only the log start moves) or none."""
        return "compact" if self.decision.compact else "retain" if self.retention.due else "none"

    def as_json(self) -> dict[str, Any]:
        """Returns numbers and texts of our own making: what a task may pass on through XCom."""
        return {
            "action": self.action,
            **asdict(self.decision),
            "retention": self.retention.reason,
            "warnings": list(self.log.warnings),
            "keyless": self.keyless,
        }

    def lines(self) -> list[str]:
        """Returns the decision on one line, and a line for each warning: for the log of a task."""
        name = f"  partition {self.log.partition:>3}"
        span = f"[{self.decision.first_dirty_offset}, {self.decision.end_offset})"
        warnings = [f"{name}  warning  {text}" for text in self.log.warnings]
        return [f"{name}  {self.action:<8} {span:<24} {self.decision.reason}", *warnings]

"""Ids of tasks that are not stations (cleantail.rounds.stations), and the name of the XCom that `evaluate` writes."""

from __future__ import annotations

ALERT, OUTCOME, ROLLBACK = "alert", "outcome", "rollback"
RUN_PACK = "run_pack"
"""The task of a group's DAG that does all the work of a pack. The stations after it show the results."""
PLAN = "plan"
"""The XCom of `evaluate` with the RunPlan. Its return value is the work units, over which compact is mapped."""
DOCTOR_DAG, DOCTOR = "cleantail_doctor", "doctor"
"""The DAG that examines the installation, behind `platform.dag_prefix`, and its task, which returns the findings."""

"""The plan of a group's run as its `evaluate` hands it on, and the packs over which the stations are mapped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from airflow.sdk import Context

from cleantail.codec import Codec
from cleantail.errors import TableError
from cleantail.rounds.pack_results import PackRequest
from cleantail_airflow.airflow_exceptions import AirflowFailException
from cleantail_airflow.task_ids import EVALUATE, PLAN

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PlannedPack:
    """Holds the topics of a pack, the most urgent first. `errors`: topic -> why it cannot be evaluated, of the one pack
    that shows them; it starts no application. `largest_bytes`: what the largest topic has to read, None where that is
    not known."""

    label: str
    topics: tuple[str, ...]
    errors: Mapping[str, str] = field(default_factory=dict)
    largest_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Says what a run is to do with the topics of a group. `now_ms`: its clock (Unix ms); `looked_at`: how many topics
    were evaluated; `left_over`: those that are due and wait for the next run; `to_tell`: those of which something has
    to be told though nothing is due; `skipped`: stations that had nothing to do when the run was planned."""

    now_ms: int
    reason: str
    looked_at: int = 0
    force: bool = False
    partition: int | None = None
    reconcile: bool = False
    packs: tuple[PlannedPack, ...] = ()
    left_over: tuple[str, ...] = ()
    to_tell: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def broken(self) -> dict[str, str]:
        """Returns topic -> why it cannot be evaluated."""
        return {topic: error for pack in self.packs for topic, error in pack.errors.items()}

    @property
    def due(self) -> list[str]:
        """Returns the topics that this run or the next one works on."""
        planned = [topic for pack in self.packs if not pack.errors for topic in pack.topics]
        return [*planned, *self.left_over]

    def request(self, pack: PlannedPack, outcomes: str) -> PackRequest:
        """Returns what the job of a pack is asked for. `outcomes`: the file in CLEANTAIL_HOME that keeps them."""
        return PackRequest(pack.topics, self.now_ms, self.force, self.partition, self.reconcile, outcomes)


GROUP_PLAN_JSON: Codec[GroupPlan] = Codec(GroupPlan)
PLANNED_PACK_JSON: Codec[PlannedPack] = Codec(PlannedPack)


def group_plan_of(context: Context) -> GroupPlan | None:
    """Returns the plan of this run, None where `evaluate` did not come so far. Raises AirflowFailException for an XCom
    that it cannot have written."""
    plan = context["ti"].xcom_pull(task_ids=EVALUATE, key=PLAN)
    return None if plan is None else parsed(GROUP_PLAN_JSON, plan, f"the XCom {PLAN} of {EVALUATE}")


def planned_pack(pack: Mapping[str, Any]) -> PlannedPack:
    """Parses a pack. Raises AirflowFailException for one that `evaluate` cannot have written."""
    return parsed(PLANNED_PACK_JSON, pack, f"a pack of {EVALUATE}")


def parsed(codec: Codec[T], xcom: Any, where: str) -> T:
    """Parses an XCom. Raises AirflowFailException for one that its task cannot have written."""
    try:
        return codec.of_plain(xcom, where)
    except TableError as error:
        raise AirflowFailException(f"{where} is not as its task wrote it. Clear the whole run ({error})") from None

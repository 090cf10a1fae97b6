"""Writes the sentences of a message: its subject about all incidents, and a line for each. It needs no Airflow."""

from __future__ import annotations

from collections.abc import Sequence

from cleantail.config.alert_channels import Event
from cleantail.human import counted, instant
from cleantail.watch.incidents import Incident, Notification

NAMES_SHOWN = 20
"""A subject line names so many partitions, tasks or readers."""


def headline(notification: Notification) -> str:
    """Says `check failed, partitions 2, 4 held back`, and `over: …` only where nothing of the event is left."""
    if not (notification.begun or notification.still):
        return f"over: {_what(notification.event, notification.ended, ('no longer held back', 'waited'))}"
    open_now = _what(notification.event, [*notification.begun, *notification.still], ("held back", "waits"))
    if not notification.ended:
        return open_now
    over = f"over for {_names(notification.event, notification.ended)}"
    return f"{open_now}; {over}" if notification.begun else f"{over}, still open: {open_now}"


def _what(event: Event, incidents: Sequence[Incident], verbs: tuple[str, str]) -> str:
    names, (held_back, waits) = _names(event, incidents), verbs
    return {
        Event.CHECK_FAILED: f"check failed, {names} {held_back}",
        Event.RUN_FAILED: f"{names} failed",
        Event.DEADLINE_MISSED: f"deadline missed, {names}",
        Event.QUARANTINED: f"{names} {held_back}",
        Event.HOLD_CAP: f"tombstones went before {names} had read them",
        Event.ERASURE: f"erasure overdue, {names}",
        Event.GAP: _missed(incidents, names),
        Event.REWRITTEN: "another engine rewrote the history of the table: its logs are cleaned from their starts",
        Event.RECONCILE: f"deletions may be missing, a reconciliation is needed, {names}",
        Event.APPROVAL: f"a round {waits} for approval (Airflow: Browse, Required Actions)",
    }[event]


def _missed(incidents: Sequence[Incident], names: str) -> str:
    """Says what was passed over: records of partitions, or what a source table has changed."""
    if all(i.condition.partition is None for i in incidents):
        return "the source table was changed, or its snapshots had gone before they were read"
    return f"records of the source are missing, {names}"


def _names(event: Event, incidents: Sequence[Incident]) -> str:
    """Names what the incidents are about: `partitions 0, 1`, `compact, publish`, `1 reader (partition 3)`."""
    partitions = sorted({i.condition.partition for i in incidents if i.condition.partition is not None})
    logs = f"partition{'' if len(partitions) == 1 else 's'} {_listed(list(map(str, partitions)))}"
    if event is Event.HOLD_CAP:
        return f"{len(incidents)} reader{'' if len(incidents) == 1 else 's'} ({logs})"
    if event is Event.RUN_FAILED:
        return _listed([i.condition.subject.removeprefix("task ") for i in incidents])
    if event is Event.GAP and not partitions:
        return "the source table"
    return logs if partitions else counted(len(incidents), "round")


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def subjects_of(incidents: Sequence[Incident]) -> tuple[str, ...]:
    """Returns the subjects of all incidents, for machines."""
    return tuple(sorted(i.condition.subject for i in incidents))


def line(incident: Incident) -> str:
    """Says what is wrong, or what no longer is and from when to when it was."""
    if incident.over_ms is None:
        return incident.condition.text
    return f"{_end(incident)} (it was from {instant(incident.since_ms)} to {instant(incident.over_ms)} UTC)"


def _end(incident: Incident) -> str:
    condition = incident.condition
    return {
        Event.CHECK_FAILED: f"partition {condition.partition} is not held back any more",
        Event.RUN_FAILED: f"{condition.subject} does not fail any more",
        Event.DEADLINE_MISSED: f"partition {condition.partition} is not overdue any more",
        Event.QUARANTINED: f"partition {condition.partition} is not held back any more",
        Event.HOLD_CAP: f"{condition.subject} is not behind any more, or not registered",
        Event.ERASURE: f"partition {condition.partition} has no overdue tombstone any more",
        Event.GAP: f"{condition.subject} was read on without another gap for a day",
        Event.REWRITTEN: "no other engine rewrote the history of the table for a day",
        Event.RECONCILE: f"partition {condition.partition} needs no reconciliation any more",
        Event.APPROVAL: "the round does not wait any more",
    }[condition.event]

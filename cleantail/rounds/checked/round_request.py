"""Says what a DAG's tasks hand to the jobs of a round: which branches to check, which round to expire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cleantail.codec import Codec


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """Says what a check is asked for. `branches`: those that compact has staged the round's units on."""

    round: str
    branches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExpiryRequest:
    """Says what an expiry is asked for. `partitions`: the logs that evaluate found due tombstones in; `fresh_from`: as
    in RunPlan; `now_ms`: Unix ms."""

    now_ms: int
    partitions: tuple[int, ...]
    fresh_from: Mapping[int, int] = field(default_factory=dict)


CHECK_REQUEST_JSON: Codec[CheckRequest] = Codec(CheckRequest)
EXPIRY_REQUEST_JSON: Codec[ExpiryRequest] = Codec(ExpiryRequest)

"""A metric and a sample of it, and the spelling of their names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter"]


@dataclass(frozen=True, slots=True)
class Metric:
    """Describes one metric. `labels` are in the order of a sample's; `sent_by` names the tasks that send it."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    kafka: bool = False
    sent_by: str = ""

    @property
    def exposed(self) -> str:
        """Returns its name in a query: Prometheus asks for `_total` at the end of counters."""
        return f"cleantail_{hyphened(self.name).replace('-', '_')}{'_total' if self.kind == 'counter' else ''}"


def hyphened(name: str) -> str:
    """Returns a name with hyphens where Kafka writes bytesRead or DeadThreadCount: bytes-read, dead-thread-count."""
    return re.sub("(?<=[a-z])[A-Z]", lambda capital: f"-{capital[0]}", name).lower()


@dataclass(frozen=True, slots=True)
class Sample:
    """Describes one value of a metric; `labels` are the values of the metric's labels."""

    metric: Metric
    labels: tuple[str, ...]
    value: float

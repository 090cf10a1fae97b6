"""Which brokers have answered nothing a moment ago, so that of many topics only one waits for them.

1. Brokers are known by the settings of the client and by how long it waits: another login may be answered.
2. What is remembered holds for a minute. Then the next topic asks again, so that brokers which come back are found.
3. Brokers that answer with an error are asked again by every topic: the error may be of one topic alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from cleantail.config.topic_source import ADDRESS
from cleantail.errors import SilentBrokersError

REMEMBERED_S = 60
Asked = tuple[object, ...]
"""The settings of a client, in order, and how long it waits (ms)."""


@dataclass(slots=True)
class SilentBrokers:
    """Remembers them, for several threads. `now_s` is a clock that never goes back, in seconds."""

    now_s: Callable[[], float] = time.monotonic
    _since_s: dict[Asked, float] = field(default_factory=dict)

    @contextmanager
    def asked(self, settings: Mapping[str, str], stall_timeout_ms: int) -> Iterator[None]:
        """Wraps what asks these brokers. Raises SilentBrokersError at once, which names no topic, where they have
        answered nothing within the last minute."""
        asked = (*sorted(settings.items()), stall_timeout_ms)
        since_s = self._since_s.get(asked)
        if since_s is not None and self.now_s() - since_s < REMEMBERED_S:
            raise SilentBrokersError(
                f"{settings[ADDRESS]}: the brokers do not answer, as a moment ago; nothing was appended"
            )
        try:
            yield
        except SilentBrokersError:
            self._since_s[asked] = self.now_s()
            raise

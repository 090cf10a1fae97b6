"""Holds what a restore has fixed, as the branch says it that keeps the records: which topic gets which of them. Pure.

1. The branch is at the records that are written: of `log` at a snapshot as it is, of `latest` at one where all but the
   latest record of every key are deleted. As long as it is there its files are, whatever reclaim does.
2. Its name begins with a hash of the topic, by the cluster's id and the topic's own: a topic that was recreated is
   another one. So a restore that was killed is found again, and only by the topic that it began to write.
3. It goes when the restore is verified, or a week after it began, when whoever began it has given up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cleantail.codec import Codec

Mode = Literal["log", "latest"]
PIN = "cleantail.restore"
"""Where the summary of the branch's commit has it."""


@dataclass(frozen=True, slots=True)
class RestorePin:
    """Says what is written where.

    cluster_id, topic, topic_id  the topic in Kafka that it is written into
    mode         log: every live record; latest: the latest record of every key, without tombstones
    snapshot_id  the archive's snapshot that it is of
    now_ms       the clock of the latest records: of the bound on future timestamps, and of remembered deletions
    partitions   how many the archive has
    starts       partition -> the first offset that a reader may see, where retention has moved it
    """

    cluster_id: str
    topic: str
    topic_id: str
    mode: Mode
    snapshot_id: int
    now_ms: int
    partitions: int
    starts: Mapping[int, int]


RESTORE_PIN_JSON: Codec[RestorePin] = Codec(RestorePin)


def pin_stem(cluster_id: str, topic: str, topic_id: str) -> str:
    """Returns how the name of the branch begins; the time of its creation follows."""
    whole = "\n".join((cluster_id, topic, topic_id))
    return f"re_{hashlib.sha256(whole.encode()).hexdigest()[:16]}"

"""The table of a group's limits: how much its packs hold, and how much one run does."""

from __future__ import annotations

from cleantail.config.settings.config_model import CLEANTAIL, INT_MAX, LONG_MAX, Configs, config


class GroupLimits(Configs):
    """Describes the `limits:` of a group. How many packs are worked on at once is the platform's:
    `log.cleaner.threads`."""

    pack_max_bytes: int = config(
        "pack.max.bytes",
        1 << 30,
        "How much the topics of a pack have to read together. A topic that has more is a pack of its own.",
        CLEANTAIL,
        low=1,
        high=LONG_MAX,
    )
    pack_max_topics: int = config(
        "pack.max.topics",
        250,
        "How many topics share a pack, which is one Spark application.",
        CLEANTAIL,
        low=1,
        high=1000,
    )
    run_max_packs: int = config(
        "run.max.packs",
        64,
        "How many packs a run does, the most urgent first. What is left over is first in the next run.",
        CLEANTAIL,
        low=1,
        high=1000,
    )
    run_max_ms: int = config(
        "run.max.ms",
        3_600_000,
        "How long a run begins new packs. One that was begun is ended; what is left over is first in the next run.",
        CLEANTAIL,
        low=1,
        high=INT_MAX,
    )

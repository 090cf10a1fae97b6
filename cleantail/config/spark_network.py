"""Says whether what a Spark application sends is for its own processes only: who may connect, and who can read along.
Pure.

A driver takes commands from whoever reaches its ports, and hands secrets of catalog and store to its executors. On a
local master the ports are on the loopback interface, where other users of the machine are. On a cluster they are on the
network.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MASTER = "spark.master"
"""A name that platform.spark.conf may not have: it would win over the master that was looked at, which Airflow's
connection may name as well."""
AUTHENTICATE = "spark.authenticate"
ENCRYPTIONS = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
"""Spark's two ways to encrypt what its processes send each other; one is enough."""


def runs_in_one_process(master: str) -> bool:
    """Returns whether Spark makes a secret of its own for the master: local and local[n], but not local-cluster[…]."""
    return re.fullmatch(r"local(\[[^\[\]]*\])?", master) is not None


def authentication(master: str) -> dict[str, str]:
    """Returns settings that keep other users of the machine out; they cost nothing and need no secret from anybody."""
    return {AUTHENTICATE: "true"} if runs_in_one_process(master) else {}


def network_problem(master: str, conf: Mapping[str, str], insecure: bool) -> str | None:
    """Returns what a master lacks, in words of what is allowed; None where it lacks nothing, or where `insecure` is
    written.

    A local master lacks nothing unless the settings switch authentication off.
    """
    if insecure:
        return None
    if runs_in_one_process(master):
        if AUTHENTICATE not in conf or _is_on(conf, AUTHENTICATE):
            return None
        return (
            f"under platform.spark.conf {AUTHENTICATE}: true, which a local master has by itself: else every user of "
            f"the machine can command the driver. A machine without other users: insecure: true"
        )
    missing = [] if _is_on(conf, AUTHENTICATE) else [f"{AUTHENTICATE}: true"]
    if not any(_is_on(conf, name) for name in ENCRYPTIONS):
        missing.append(f"{ENCRYPTIONS[0]}: true (or {ENCRYPTIONS[1]})")
    if not missing:
        return None
    return (
        f"a local master, or under platform.spark.conf {' and '.join(missing)}, with the secret in "
        f"CLEANTAIL_SPARK_SECRET: else anybody on the network can command the driver, and the secrets of catalog and "
        f"store are sent in clear. A network that is closed by other means: insecure: true"
    )


def _is_on(conf: Mapping[str, str], name: str) -> bool:
    return conf.get(name, "").strip().lower() == "true"

"""Mutants that may survive: survivors.md has a line `- SIGNATURE` for each, and the reason below it."""

from __future__ import annotations

import functools
from pathlib import Path

from tests.mutation.changes import Mutant

SURVIVORS = Path(__file__).with_name("survivors.md")


def is_explained(mutant: Mutant) -> bool:
    return mutant.signature in explained()


def without_a_mutant(mutants: list[Mutant]) -> list[str]:
    """Signatures of these modules that no mutant has: the line was changed since, and its reason may not hold any more."""
    modules, known = {mutant.module for mutant in mutants}, {mutant.signature for mutant in mutants}
    return sorted(text for text in explained() if text.partition(":")[0] in modules and text not in known)


@functools.cache
def explained() -> frozenset[str]:
    lines = SURVIVORS.read_text().splitlines()
    return frozenset(line.removeprefix("- ") for line in lines if line.startswith("- "))

"""The reasons of survivors.md are those of lines that are there: `make mutation` would refuse any other at its start."""

from __future__ import annotations

from tests.mutation.__main__ import RULE_MODULES
from tests.mutation.changes import mutants
from tests.mutation.survivors import explained, without_a_mutant
from tests.mutation.worker import ROOT, rule_file


def test_each_reason_is_that_of_a_mutant_that_is_made():
    every = [m for module in RULE_MODULES for m in mutants(module, (ROOT / rule_file(module)).read_text())]
    assert without_a_mutant(every) == []


def test_each_reason_is_that_of_a_module_that_is_mutated():
    assert {signature.partition(":")[0] for signature in explained()} <= set(RULE_MODULES)

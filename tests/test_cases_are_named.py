"""Every case of semantics.md part 4 is a test that has its name."""

import re
from pathlib import Path

CASES = 23


def test_every_case_of_the_specification_has_a_test_of_its_name():
    text = "\n".join(f.read_text() for f in Path(__file__).parent.rglob("test_*.py"))
    named = {int(n) for name in re.findall(r"def (test_\w+)", text) for n in re.findall(r"case_(\d+)", name)}
    assert named == set(range(1, CASES + 1))

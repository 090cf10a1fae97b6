"""The modules that hold the rules of a log tell them in numbered prose, as Kafka's cleaner does.

Every module of cleantail/log is one: also those that are mostly a type say by which rules its numbers are meant. The
package files, which hold a docstring alone, are none.
"""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

import cleantail.log

RULES = Path(cleantail.log.__file__).parent
MODULES = sorted(str(p.relative_to(RULES)) for p in RULES.rglob("*.py") if p.name != "__init__.py")
LEAST_SHARE = 0.25
"""Of the lines that are not blank, so many at least are docstring or comment."""
SECOND = re.compile(r"^2\. ", re.MULTILINE)
"""A list has two rules at least, which begin at the margin of the docstring."""


def prose_lines(text):
    """The numbers of the lines with a docstring, of an attribute too, or a comment."""
    statements = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
    strings = [s for s in statements if isinstance(s, ast.Constant) and isinstance(s.value, str)]
    comments = {t.start[0] for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT}
    return comments | {number for s in strings for number in range(s.lineno, s.end_lineno + 1)}


def share_of_prose(text):
    lines, prose = text.splitlines(), prose_lines(text)
    filled = [number for number, line in enumerate(lines, 1) if line.strip()]
    return sum(number in prose for number in filled) / len(filled)


@pytest.mark.parametrize("module", MODULES)
def test_a_rule_module_tells_its_rules_in_numbered_sentences(module):
    docstring = ast.get_docstring(ast.parse((RULES / module).read_text())) or ""
    rules = re.split(r"^(?=\d+\. )", docstring, flags=re.MULTILINE)[1:]
    assert SECOND.search(docstring), f"{module} has no numbered list in its docstring"
    assert [int(rule.partition(".")[0]) for rule in rules] == list(range(1, len(rules) + 1))
    assert all(rule.partition("\n\n")[0].rstrip().endswith(".") for rule in rules)


@pytest.mark.parametrize("module", MODULES)
def test_a_quarter_of_a_rule_module_is_docstring_and_comment(module):
    assert share_of_prose((RULES / module).read_text()) >= LEAST_SHARE


@pytest.mark.parametrize(
    ("text", "share"),
    [
        pytest.param('"""A.\n\nB."""\n\nX = 1\nY = 2\n', 0.5, id="a docstring without its blank line"),
        pytest.param('X = 1\n"""Of X."""\n', 0.5, id="an attribute's"),
        pytest.param("X = 1  # why\nY = 2\n", 0.5, id="a comment behind a line"),
        pytest.param('def f():\n    """A."""\n    return "#"\n', 1 / 3, id="no text that is a value"),
    ],
)
def test_the_share_counts_docstrings_and_comments(text, share):
    assert share_of_prose(text) == share

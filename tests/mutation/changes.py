"""Small changes to a rule module, one at a time: a comparison at its boundary, a condition turned round, a number one off.

Not changed, because no rule is in them: texts, annotations, decorators (frozen, slots), `if TYPE_CHECKING`.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
"""A comparison -> its neighbour at the boundary and its opposite."""
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """Change number `variant` to node number `node` of a module's tree, in the order of ast.walk. `at_import`: it is in no
    function's body, so that it runs when the module is imported."""

    module: str
    node: int
    variant: int
    line: int
    end_line: int
    text: str
    original: str
    mutated: str
    at_import: bool

    @property
    def signature(self) -> str:
        """How survivors.md names it: by the text of its line, as numbers move."""
        return f"{self.module}: `{self.text}`: `{self.original}` -> `{self.mutated}`"


def variants(node: ast.AST) -> Iterator[ast.AST]:
    """The node with one change each."""
    match node:
        case ast.Compare(left, ops, comparators):
            for i, op in enumerate(ops):
                for other in COMPARISONS.get(type(op), ()):
                    yield ast.Compare(left, [*ops[:i], other(), *ops[i + 1 :]], comparators)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
            for i in range(len(values)):
                rest = values[:i] + values[i + 1 :]
                yield ast.BoolOp(op, rest) if len(rest) > 1 else rest[0]
        case ast.UnaryOp(ast.Not(), operand):
            yield ast.Call(ast.Name("bool", ast.Load()), [operand], [])
        case ast.BinOp(left, op, right) if type(op) in ARITHMETIC:
            yield ast.BinOp(left, ARITHMETIC[type(op)](), right)
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.Call(ast.Name(name), args, keywords) if name in NAMES:
            yield ast.Call(ast.Name(NAMES[name], ast.Load()), args, keywords)
        case ast.IfExp(_, body, orelse):
            yield from (body, orelse)
        case ast.If(ast.Name("TYPE_CHECKING")):
            pass
        case ast.If(test, body, orelse):
            yield ast.If(test, [ast.Pass()], orelse)
            if orelse:
                yield ast.If(test, body, [ast.Pass()])
        case ast.comprehension(target, iterable, ifs, is_async) if ifs:
            for i in range(len(ifs)):
                yield ast.comprehension(target, iterable, ifs[:i] + ifs[i + 1 :], is_async)


def mutants(module: str, source: str) -> list[Mutant]:
    tree = ast.parse(source)
    lines = source.splitlines()
    passed_over, in_functions = _without_rules(tree), _in_functions(tree)
    return [
        Mutant(
            module,
            n,
            v,
            *_lines(node),
            lines[_lines(node)[0] - 1].strip(),
            _short(node),
            _short(variant),
            id(node) not in in_functions,
        )
        for n, node in enumerate(ast.walk(tree))
        if id(node) not in passed_over
        for v, variant in enumerate(variants(node))
    ]


def mutated_source(source: str, mutant: Mutant) -> str:
    tree = ast.parse(source)
    chosen = list(ast.walk(tree))[mutant.node]
    variant = copy.deepcopy(list(variants(chosen))[mutant.variant])
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is chosen:
                setattr(parent, name, variant)
            elif isinstance(value, list):
                value[:] = [variant if item is chosen else item for item in value]
    return ast.unparse(ast.fix_missing_locations(tree))


def _without_rules(tree: ast.AST) -> set[int]:
    skipped = (
        part
        for node in ast.walk(tree)
        for part in (*getattr(node, "decorator_list", ()), getattr(node, "annotation", None))
        if part is not None
    )
    return {id(node) for part in skipped for node in ast.walk(part)}


def _in_functions(tree: ast.AST) -> set[int]:
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {id(node) for function in functions for part in function.body for node in ast.walk(part)}


def _lines(node: ast.AST) -> tuple[int, int]:
    """First and last line; of a condition those of the condition alone."""
    match node:
        case ast.comprehension(ast.expr() as target, _, [*_, last]):
            return target.lineno, last.end_lineno or last.lineno
        case ast.If(test):
            return node.lineno, test.end_lineno or test.lineno
        case ast.stmt() | ast.expr():
            return node.lineno, node.end_lineno or node.lineno
    return 1, 1


def _short(node: ast.AST) -> str:
    """The node's text; of a statement the first line, with its body if that is one line."""
    lines = ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).strip().splitlines()
    return " ".join(line.strip() for line in lines[:2])

"""Mutation score of the kernel's rules: one small change at a time, and the tests have to notice.

    python -m tests.mutation                     # every module of RULE_MODULES
    python -m tests.mutation triggers offset_map # some of them

A mutant is killed when a test fails, an import fails or the tests take far too long. Its own test file is asked first, then every
other one of tests/cleantail that imports the module, also indirectly. Mutants live in temporary copies, one a worker:
the checkout is never written to. The exit code is 1 when the score is below GOAL or a survivor has no reason in
tests/mutation_survivors.md. One that has a reason there is asked of its own test file only.

Not mutated, because no rule is in them: texts, annotations, decorators (frozen, slots), `if TYPE_CHECKING`.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import importlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.pool import Pool
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = "tests/cleantail"
SURVIVORS = Path(__file__).with_name("mutation_survivors.md")
RULE_MODULES = [
    "segments",
    "log_state",
    "triggers",
    "retention",
    "work_units",
    "partition_state",
    "round_state",
    "tombstones",
    "quarantine",
    "reclaim_plan",
    "offset_map",
    "strategies",
    "versions",
    "winners",
    "spark_sql",
    "shares",
    "reader_positions",
    "reader_properties",
    "reader_registration",
    "latest",
    "evaluate",
    "rules",
    "failed_branches",
    "incidents",
    "alarms",
]
WORKERS = 2
OWN_TESTS_S, ALL_TESTS_S = 60, 300
"""How long a module's own test file may take, and any number of files: of the processor's time, so that a busy machine
kills no mutant."""
GOAL = 0.95

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
PRELOADED = ("pytest", "hypothesis.strategies", "pydantic", "pyarrow.compute", "pyiceberg.catalog.sql", "rich.table")
"""Imported once by a worker, so that each of its mutants starts in milliseconds; nothing of cleantail is among them."""
PYTEST_OPTIONS = ["-x", "--assert=plain", "--tb=no", "-p", "no:cacheprovider", "-W", "ignore"]
"""Only the exit code counts: no rewritten assertions, no tracebacks."""


@dataclass(frozen=True)
class Mutant:
    """Change number `variant` to node number `node` of a module's tree, in the order of ast.walk."""

    module: str
    node: int
    variant: int
    line: int
    text: str
    original: str
    mutated: str

    @property
    def signature(self) -> str:
        """How tests/mutation_survivors.md names it: by the text of its line, as numbers move."""
        return f"{self.module}: `{self.text}`: `{self.original}` -> `{self.mutated}`"


# ---- what is changed


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
    passed_over = _without_rules(tree)
    return [
        Mutant(module, n, v, _line(node), lines[_line(node) - 1].strip(), _short(node), _short(variant))
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


def _line(node: ast.AST) -> int:
    return getattr(node.target if isinstance(node, ast.comprehension) else node, "lineno", 1)


def _short(node: ast.AST) -> str:
    """The node's text; of a statement the first line, with its body if that is one line."""
    lines = ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).strip().splitlines()
    return " ".join(line.strip() for line in lines[:2])


# ---- which tests are asked


@functools.cache
def files_of_tests(module: str) -> list[list[str]]:
    """The module's own test file, then the others that import the module, also indirectly."""
    own = ROOT / TESTS / f"test_{module}.py"
    others = [p for p in sorted((ROOT / TESTS).glob("test_*.py")) if p != own and module in _reached(p)]
    return [[_in_copy(p) for p in group] for group in ([own] if own.exists() else [], others) if group]


def _in_copy(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _reached(path: Path) -> set[str]:
    """Modules of cleantail (and helpers of the tests) that a file imports, and what those import."""
    found: set[str] = set()
    waiting = [path]
    while waiting:
        new = _imported(waiting.pop()) - found
        found |= new
        waiting += [path for name in new for path in _by_name().get(name, ())]
    return found


@functools.cache
def _by_name() -> dict[str, list[Path]]:
    """Name of a module, without its package -> its files."""
    files: dict[str, list[Path]] = {}
    for path in (*(ROOT / "cleantail").rglob("*.py"), *(ROOT / TESTS).glob("*.py")):
        files.setdefault(path.stem, []).append(path)
    return files


def rule_file(module: str) -> Path:
    """Where a rule module is, from the root of the repository."""
    [path] = (ROOT / "cleantail").rglob(f"{module}.py")
    return path.relative_to(ROOT)


@functools.cache
def _imported(path: Path) -> set[str]:
    """Names in import statements, without their package: more than modules, which does no harm."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names |= {(node.module or "").split(".")[-1], *(alias.name for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[-1] for alias in node.names}
    return names


# ---- a worker: one copy of the repository, one process forked for each run of tests


def start_worker(folder: str) -> None:
    place = Path(tempfile.mkdtemp(dir=folder)) / "repository"
    shutil.copytree(ROOT, place, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    os.chdir(place)
    sys.path[:] = [str(place), *(p for p in sys.path if p and Path(p).resolve() != ROOT)]
    os.environ.update(PYTHONPATH=str(place), PYTHONDONTWRITEBYTECODE="1")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.dont_write_bytecode = True
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def is_killed(mutant: Mutant) -> bool:
    path = rule_file(mutant.module)
    source = path.read_text()
    path.write_text(mutated_source(source, mutant))
    asked = files_of_tests(mutant.module)
    try:
        own, others = asked[:1], [] if is_explained(mutant) else asked[1:]
        return any(not passes(files, OWN_TESTS_S) for files in own) or any(not passes(files) for files in others)
    finally:
        path.write_text(source)


def passes(files: list[str], limit_s: int = ALL_TESTS_S) -> bool:
    """Whether these tests pass, in a process of their own that sees the copy as it is now."""
    child = os.fork()
    if child == 0:
        _run(files, limit_s)
    return os.waitpid(child, 0)[1] == 0


def _run(files: list[str], limit_s: int) -> None:
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    code = 1
    try:
        import pytest

        code = int(pytest.main([*PYTEST_OPTIONS, *files]))
        import cleantail

        code = code or int(not Path(cleantail.__file__).is_relative_to(Path.cwd()))
    finally:
        os._exit(code)


# ---- the score


def main(modules: list[str]) -> int:
    unknown = set(modules) - set(RULE_MODULES)
    if unknown:
        print(f"no rule modules: {', '.join(sorted(unknown))}; there are: {', '.join(RULE_MODULES)}")
        return 2
    with (
        tempfile.TemporaryDirectory(prefix="mutation-") as folder,
        multiprocessing.get_context("fork").Pool(WORKERS, start_worker, (folder,)) as pool,
    ):
        if not pool.apply(passes, ([TESTS],)):
            print(f"{TESTS} fails without any mutant: no score")
            return 2
        counts = [score(module, pool) for module in modules or RULE_MODULES]
    killed, total, open_ = (sum(column) for column in zip(*counts, strict=True))
    print(f"{killed} of {total} killed: {killed / total:.1%}; {open_} survivors without a reason in {SURVIVORS.name}")
    return int(killed < GOAL * total or open_ > 0)


def score(module: str, pool: Pool) -> tuple[int, int, int]:
    """Mutants killed, mutants in all, survivors without a reason; and a line for each survivor."""
    started = time.monotonic()
    every = mutants(module, (ROOT / rule_file(module)).read_text())
    dead = pool.map(is_killed, every, chunksize=1)
    alive = [m for m, was_killed in zip(every, dead, strict=True) if not was_killed]
    for m in alive:
        mark = "explained" if is_explained(m) else "SURVIVOR"
        print(f"{mark} {rule_file(module)}:{m.line} {m.signature}")
    print(f"{module}: {sum(dead)} of {len(every)} killed in {time.monotonic() - started:.0f} s", flush=True)
    return sum(dead), len(every), sum(not is_explained(m) for m in alive)


def is_explained(mutant: Mutant) -> bool:
    return mutant.signature in _survivors()


@functools.cache
def _survivors() -> str:
    return SURVIVORS.read_text() if SURVIVORS.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

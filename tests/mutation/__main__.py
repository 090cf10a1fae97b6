"""Mutation score of the kernel's rules: one small change at a time, and the tests have to notice.

    python -m tests.mutation                       # every module of RULE_MODULES
    python -m tests.mutation triggers task_shares  # some of them

Mutants live in temporary copies, one a worker: the checkout is never written to. The exit code is 1 when the score is below
GOAL, a survivor has no reason in survivors.md or a reason there is of a line that has changed.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from multiprocessing.pool import Pool

from tests.mutation.asked import TESTS, Seen
from tests.mutation.changes import Mutant, mutants
from tests.mutation.survivors import SURVIVORS, is_explained, without_a_mutant
from tests.mutation.worker import ROOT, is_killed, rule_file, start_worker, watched

RULE_MODULES = [
    "segments",
    "log_state",
    "triggers",
    "due_work",
    "work_units",
    "topic_packs",
    "partition_state",
    "round_state",
    "horizons",
    "quarantine",
    "task_shares",
    "winners",
    "own_namespace",
    "latest_state",
    "reader_positions",
    "releases",
    "evaluate",
    "reclaim_plan",
    "run_plan",
    "rules",
    "incidents",
    "alarms",
]
WORKERS = 2
GOAL = 0.95


def main(modules: list[str]) -> int:
    unknown = set(modules) - set(RULE_MODULES)
    if unknown:
        print(f"no rule modules: {', '.join(sorted(unknown))}; there are: {', '.join(RULE_MODULES)}")
        return 2
    modules = modules or RULE_MODULES
    every = {module: mutants(module, (ROOT / rule_file(module)).read_text()) for module in modules}
    if stale := without_a_mutant([mutant for of_module in every.values() for mutant in of_module]):
        print(f"{SURVIVORS.name} explains what is no mutant any more:", *stale, sep="\n  ")
        return 2
    with (
        tempfile.TemporaryDirectory(prefix="mutation-") as folder,
        multiprocessing.get_context("fork").Pool(WORKERS, start_worker, (folder,)) as pool,
    ):
        seen = what_tests_run(modules, pool)
        if seen is None:
            print(f"{TESTS} fails without any mutant: no score")
            return 2
        counts = [score(module, every[module], seen, pool) for module in modules]
    killed, total, open_ = (sum(column) for column in zip(*counts, strict=True))
    print(f"{killed} of {total} killed: {killed / total:.1%}; {open_} survivors without a reason in {SURVIVORS.name}")
    return int(killed < GOAL * total or open_ > 0)


def what_tests_run(modules: list[str], pool: Pool) -> Seen | None:
    """The tests of each line, from one run of all tests of the kernel; None where one fails."""
    started = time.monotonic()
    files = [str(path.relative_to(ROOT)) for path in sorted((ROOT / TESTS).rglob("test_*.py"))]
    shares = [(files[n :: 4 * WORKERS], modules) for n in range(4 * WORKERS)]
    parts = pool.starmap(watched, shares, chunksize=1)
    if None in parts:
        return None
    print(f"the tests of the kernel were watched for {time.monotonic() - started:.0f} s", flush=True)
    return Seen.of([part for part in parts if part is not None])


def score(module: str, every: list[Mutant], seen: Seen, pool: Pool) -> tuple[int, int, int]:
    """Mutants killed, mutants in all, survivors without a reason; and a line for each survivor."""
    started = time.monotonic()
    file = str(rule_file(module))
    asked = [(mutant, list(seen.asked(mutant, file, own_only=is_explained(mutant)))) for mutant in every]
    dead = pool.starmap(is_killed, asked, chunksize=1)
    alive = [m for m, was_killed in zip(every, dead, strict=True) if not was_killed]
    for m in alive:
        mark = "explained" if is_explained(m) else "SURVIVOR"
        print(f"{mark} {file}:{m.line} {m.signature}")
    print(f"{module}: {sum(dead)} of {len(every)} killed in {time.monotonic() - started:.0f} s", flush=True)
    return sum(dead), len(every), sum(not is_explained(m) for m in alive)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Mutation testing of the pure modules that decide, for a person to run now and then: `make mutants`.

One process collects and runs the tests once and notes which of them reach which line. For each
mutant it forks: the child replaces the code of the mutated functions and runs the tests that reach
the changed line, the quick ones first, until one fails. A mutant that all of them pass is a
survivor: either it changes nothing, or a test is missing. What stands at the top of a module, and
is not in a function, is not mutated. The same seed draws the same mutants from the same source."""

import argparse
import functools
import gc
import itertools
import os
import random
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import coverage
import pytest
from _pytest.runner import runtestprotocol

from tests.mutation.mutants import Mutant, mutants

ROOT = Path(__file__).parents[2]
SCHEDULER = ROOT / "central/scheduler"
FOLDERS = ("filters", "placement", "preemption", "queues", "reservation", "state")
FILES = (
    "cycle.py",
    "scheduling_round.py",
    "gang_attempt.py",
    "reserved_capacity.py",
    "binding.py",
    "partial_gangs.py",
    "inventory",
)
TESTS = ("tests/central/scheduler", "tests/simulation/test_stories.py")
PATIENCE = 10  # times as long as without the mutation: a loop without end
CACHE = functools._lru_cache_wrapper
Live = list[Any]  # functions and caches


@dataclass
class Mutation:
    """A plugin of pytest that runs in place of the tests."""

    chosen: list[Mutant]
    report: Path | None = None
    budget_s: float = 0.0  # of CPU time for a mutant's tests; 0: all of them
    reached: dict[tuple[str, int], list[pytest.Item]] = field(default_factory=dict)
    took_s: dict[pytest.Item, float] = field(default_factory=dict)
    survivors: list[Mutant] = field(default_factory=list)

    def pytest_configure(self) -> None:
        from hypothesis import settings

        settings.register_profile("mutation", derandomize=True, database=None)
        settings.load_profile("mutation")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._baseline(session.items)
        live = [each for each in gc.get_objects() if isinstance(each, (FunctionType, CACHE))]
        gc.freeze()
        for number, mutant in enumerate(self.chosen, 1):
            verdict = self._verdict(mutant, live)
            line = f"{number}/{len(self.chosen)} {verdict:8} {mutant}"
            print(line.replace(f"{ROOT}/", ""), file=sys.__stderr__, flush=True)
            if verdict == "SURVIVED":
                self.survivors.append(mutant)
                if self.report:
                    with self.report.open("a") as file:
                        file.write(f"{mutant}\n".replace(f"{ROOT}/", ""))
        return True

    def _baseline(self, items: list[pytest.Item]) -> None:
        cover = coverage.Coverage(data_file=None, include=[f"{ROOT}/central/*"], config_file=False)
        cover.start()
        for index, item in enumerate(items):
            cover.switch_context(str(index))
            begun = time.process_time()
            if not passes(item):
                raise pytest.UsageError(f"{item.nodeid} fails without any mutation")
            self.took_s[item] = time.process_time() - begun
        cover.stop()
        data = cover.get_data()
        for file in data.measured_files():
            for line, contexts in data.contexts_by_lineno(file).items():
                tests = [items[int(each)] for each in contexts if each]
                self.reached[file, line] = sorted(tests, key=self.took_s.__getitem__)

    def _verdict(self, mutant: Mutant, live: Live) -> str:
        found = {
            item for line in mutant.lines for item in self.reached.get((str(mutant.file), line), ())
        }
        tests = sorted(found, key=lambda item: (self.took_s[item], item.nodeid))
        if self.budget_s:
            ends = itertools.accumulate(self.took_s[each] for each in tests)
            tests = [each for each, end in zip(tests, ends, strict=True) if end <= self.budget_s]
        if not tests:
            return "SURVIVED"
        if not (child := os.fork()):
            # Of CPU time, which other work on the machine does not change.
            limit_s = PATIENCE * sum(self.took_s[each] for each in tests) + 10
            signal.setitimer(signal.ITIMER_PROF, limit_s)
            try:
                os._exit(_outcome(mutant, tests, live))
            finally:
                os._exit(3)
        _, status = os.waitpid(child, 0)
        names = {0: "SURVIVED", 3: "skipped"}
        return names.get(os.waitstatus_to_exitcode(status), "killed")


def passes(item: pytest.Item) -> bool:
    return all(report.outcome != "failed" for report in runtestprotocol(item, log=False))


def _outcome(mutant: Mutant, tests: Iterable[pytest.Item], live: Live) -> int:
    """In the child: 0 if all tests pass, 1 if one fails, 3 if no function is changed."""
    if not replace_code(mutant, live):
        return 3
    return int(not all(passes(item) for item in tests))


def replace_code(mutant: Mutant, live: Live) -> int:
    """Gives the live functions of a module the code of the mutant; how many changed."""
    name = str(mutant.file)
    old = compile(mutant.file.read_text(), name, "exec", dont_inherit=True)
    new = compile(mutant.tree, name, "exec", dont_inherit=True)
    before, after = _codes(old), _codes(new)
    changed = {
        a: b
        for key, codes in before.items()
        if len(codes) == len(after[key])  # of unlike numbers, the code around them is changed
        for a, b in zip(codes, after[key], strict=True)
        if a != b
    }
    count = 0
    for each in live:
        if isinstance(each, CACHE):
            each.cache_clear()
        elif each.__code__.co_filename == name and (code := changed.get(each.__code__)):
            each.__code__ = code
            count += 1
    return count


def _codes(code: CodeType) -> dict[tuple[str, int], list[CodeType]]:
    """The code objects inside of one, by name and line."""
    found = defaultdict[tuple[str, int], list[CodeType]](list)
    inside = [code]
    while inside:
        for each in inside.pop().co_consts:
            if isinstance(each, CodeType):
                found[each.co_qualname, each.co_firstlineno].append(each)
                inside.append(each)
    return found


def modules(names: list[str]) -> Iterator[Path]:
    for name in names or (*FOLDERS, *FILES):
        path = SCHEDULER / name
        yield from sorted(path.rglob("*.py")) if path.is_dir() else (path,)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=20, help="how many to draw; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--line", type=int, default=0, help="only those that begin on this line")
    parser.add_argument(
        "--budget",
        type=float,
        default=0,
        help="seconds of tests for a mutant; 0: all that reach it",
    )
    parser.add_argument("--report", type=Path, help="append survivors to this file")
    parser.add_argument("--tests", nargs="*", default=TESTS)
    parser.add_argument("modules", nargs="*", help="files or folders below central/scheduler")
    args = parser.parse_args()
    every = [
        mutant
        for file in modules(args.modules)
        for mutant in mutants(file)
        if args.line in (0, mutant.lines.start)
    ]
    count = min(args.mutants, len(every)) if args.mutants else len(every)
    chosen = random.Random(args.seed).sample(every, count)
    mutation = Mutation(chosen, args.report, args.budget)
    options = ["-m", "not slow", "-p", "no:cacheprovider", "-p", "no:terminal", "--timeout=0"]
    os.chdir(ROOT)
    code = pytest.main([*options, "-o", "addopts=--import-mode=importlib", *args.tests], [mutation])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise SystemExit(code)
    survivors, drawn = mutation.survivors, len(chosen)
    print(f"{len(survivors)} of {drawn} survived (seed {args.seed}, of {len(every)}):")
    print("\n".join(str(each).replace(f"{ROOT}/", "") for each in survivors))


if __name__ == "__main__":
    main()

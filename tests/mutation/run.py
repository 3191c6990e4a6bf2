"""Mutation testing of the modules that decide, for a person to run now and then: `make mutants`.

One process collects the tests and runs none of them, so that it has no threads and can be forked
whatever the tests start (gRPC, watches). A first child runs all tests and tells which of them reach
which line. For each mutant another child replaces the code of the mutated functions and runs the
tests that reach the changed line, those of the module itself first and the quick ones before the
slow, until one fails. A mutant that all of them pass is a survivor: either it changes nothing, or a
test is missing. Programs that a test starts are not mutated, nor is what stands at the top of a
module and is not in a function. The same seed draws the same mutants from the same source."""

import argparse
import contextlib
import functools
import gc
import importlib
import os
import pickle
import random
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
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
FOLDERS = (
    "elastic",
    "filters",
    "placement",
    "preemption",
    "queues",
    "reservation",
    "state",
    "volumes",
)
FILES = (
    "cycle.py",
    "agenda.py",
    "gang_attempt.py",
    "reserved_capacity.py",
    "pass_claims.py",
    "pass_reservations.py",
    "binding.py",
    "containment.py",
    "partial_gangs.py",
    "quarantine.py",
    "work_meter.py",
    "inventory",
)
TESTS = ("tests/central/scheduler", "tests/simulation/test_stories.py")
PATIENCE = 10  # times as long as without the mutation: a loop without end
GRACE_S = 20  # by the clock, beyond that: another process may have the processor
CACHE = functools._lru_cache_wrapper
Took = tuple[float, float]  # seconds of the processor, and of the clock
Live = dict[str, list[FunctionType]]  # the functions of each file


@dataclass
class Mutation:
    """A plugin of pytest that runs in place of the tests."""

    chosen: list[Mutant]
    report: Path | None = None
    budget_s: float = 0  # time of tests for one mutant, by the clock; 0: all that reach it
    reached: dict[tuple[str, int], list[pytest.Item]] = field(default_factory=dict)
    took_s: dict[pytest.Item, Took] = field(default_factory=dict)
    survivors: list[Mutant] = field(default_factory=list)
    tally: dict[Path, Counter[str]] = field(default_factory=dict)

    def pytest_configure(self) -> None:
        from hypothesis import settings

        settings.register_profile("mutation", derandomize=True, database=None)
        settings.load_profile("mutation")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for path in sorted({mutant.file for mutant in self.chosen}):
            # Commands import what they need when they run, here in a child, whose modules this process does not see.
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        gc.unfreeze()  # what tests/conftest.py has frozen would not be found
        live, caches = live_functions()
        gc.freeze()
        self._baseline(session.items, caches)
        for number, mutant in enumerate(self.chosen, 1):
            verdict = self._verdict(mutant, live, caches)
            self.tally.setdefault(mutant.file, Counter())[verdict] += 1
            line = f"{number}/{len(self.chosen)} {verdict:8} {mutant}"
            print(line.replace(f"{ROOT}/", ""), file=sys.__stderr__, flush=True)
            if verdict == "SURVIVED":
                self.survivors.append(mutant)
                if self.report:
                    with self.report.open("a") as file:
                        file.write(f"{mutant}\n".replace(f"{ROOT}/", ""))
        return True

    def _baseline(self, items: list[pytest.Item], caches: list[Any]) -> None:
        with tempfile.NamedTemporaryFile() as file:
            files = sorted({str(mutant.file) for mutant in self.chosen})
            child = forked(lambda: _measure(items, files, caches, Path(file.name)))
            _wait(child, None)
            took_s, reached = pickle.loads(Path(file.name).read_bytes())
        self.took_s = {items[index]: seconds for index, seconds in took_s.items()}
        for place, found in reached.items():
            self.reached[place] = [items[each] for each in found if each in took_s]

    def _verdict(self, mutant: Mutant, live: Live, caches: list[Any]) -> str:
        tests = self._tests(mutant)
        if not tests:
            return "SURVIVED"
        longest_s = PATIENCE * sum(self.took_s[each][1] for each in tests) + GRACE_S
        code = _wait(forked(lambda: self._outcome(mutant, tests, live, caches)), longest_s)
        return {0: "SURVIVED", 3: "skipped"}.get(code, "killed")

    def _tests(self, mutant: Mutant) -> list[pytest.Item]:
        """Those that reach the mutant, the nearest and the quickest first."""
        found = {
            item for line in mutant.lines for item in self.reached.get((str(mutant.file), line), ())
        }
        own, folder = f"test_{mutant.file.stem}", ROOT / "tests" / mutant.file.parent

        def rank(item: pytest.Item) -> tuple[bool, bool, float, str]:
            beside = item.path.parent == folder
            return item.path.stem != own, not beside, self.took_s[item][1], item.nodeid

        tests = sorted(found, key=rank)
        if not self.budget_s:
            return tests
        chosen, left_s = [], self.budget_s
        for item in tests:
            if self.took_s[item][1] <= left_s:
                chosen.append(item)
                left_s -= self.took_s[item][1]
        return chosen

    def _outcome(
        self, mutant: Mutant, tests: Iterable[pytest.Item], live: Live, caches: list[Any]
    ) -> int:
        """In the child: 0 if all tests pass, 1 if one fails, 3 if no function is changed."""
        if not replace_code(mutant, live):
            return 3
        for cache in caches:
            cache.cache_clear()
        for item in tests:
            signal.setitimer(signal.ITIMER_PROF, PATIENCE * self.took_s[item][0] + 2)
            if not passes(item):
                return 1
        return 0


def _measure(items: list[pytest.Item], files: list[str], caches: list[Any], to: Path) -> int:
    """In the child: which tests pass, how long they take, and which of them reach a line."""
    cover = coverage.Coverage(data_file=None, include=files, config_file=False)
    took_s: dict[int, Took] = {}
    reached: dict[tuple[str, int], list[int]] = {}
    cover.start()
    for index, item in enumerate(items):
        cover.switch_context(str(index))
        for cache in caches:
            cache.cache_clear()  # else only the first test reaches what is behind it
        begun = time.process_time(), time.monotonic()
        if passes(item):
            took_s[index] = time.process_time() - begun[0], time.monotonic() - begun[1]
        else:
            print(f"{item.nodeid} fails without any mutation", file=sys.__stderr__)
    cover.stop()
    data = cover.get_data()
    for file in data.measured_files():
        for line, contexts in data.contexts_by_lineno(file).items():
            reached[file, line] = [int(each) for each in contexts if each]
    to.write_bytes(pickle.dumps((took_s, reached)))
    return 0


def forked(work: Callable[[], int]) -> int:
    """The process id of a child, in a session of its own, that ends with what `work` returns."""
    if child := os.fork():
        return child
    try:
        os.setsid()
        os._exit(work())
    finally:
        os._exit(4)


def _wait(child: int, longest_s: float | None) -> int:
    """How the child ended; after `longest_s` it is ended, as are all that it has started."""
    with open(os.pidfd_open(child), closefd=True) as process:  # noqa: PTH123  (a descriptor)
        select.select([process], [], [], longest_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def passes(item: pytest.Item) -> bool:
    return all(report.outcome != "failed" for report in runtestprotocol(item, log=False))


def live_functions() -> tuple[Live, list[Any]]:
    """The functions of this repository, by file, and the caches of its functions."""
    live: Live = {}
    caches = []
    for each in gc.get_objects():
        if isinstance(each, CACHE):
            code = getattr(getattr(each, "__wrapped__", None), "__code__", None)
            if isinstance(code, CodeType) and _ours(code):
                caches.append(each)
        elif isinstance(each, FunctionType) and _ours(each.__code__):
            live.setdefault(each.__code__.co_filename, []).append(each)
    return live, caches


def _ours(code: CodeType) -> bool:
    return code.co_filename.startswith(str(ROOT)) and "/.venv/" not in code.co_filename


def replace_code(mutant: Mutant, live: Live) -> int:
    """Gives the live functions of a module the code of the mutant; how many changed."""
    changed = {_name(code): code for code in _codes(mutant.code())}
    count = 0
    for each in live.get(str(mutant.file), ()):
        code = changed.get(_name(each.__code__))
        if code is not None and code != each.__code__:
            each.__code__ = code
            count += 1
    return count


def _name(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def modules(names: list[str]) -> Iterator[Path]:
    for name in names or (*FOLDERS, *FILES):
        path = SCHEDULER / name
        if not path.exists():
            path = ROOT / name
        yield from sorted(path.rglob("*.py")) if path.is_dir() else (path,)


def drawn(args: argparse.Namespace) -> list[Mutant]:
    every = [
        mutant
        for file in modules(args.modules)
        for mutant in mutants(file)
        if args.line in (0, mutant.lines.start)
    ]
    if args.again:
        named = set(args.again.read_text().splitlines())
        every = [each for each in every if f"{each}".replace(f"{ROOT}/", "") in named]
    if args.each:
        groups = [[each for each in every if each.file == file] for file in modules(args.modules)]
        return [mutant for group in groups for mutant in sample(group, args.each, args.seed)]
    return sample(every, args.mutants or len(every), args.seed)


def sample(every: list[Mutant], count: int, seed: int) -> list[Mutant]:
    return random.Random(seed).sample(every, min(count, len(every)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=20, help="how many to draw; 0: all")
    parser.add_argument("--each", type=int, default=0, help="how many to draw of each module")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--line", type=int, default=0, help="only those that begin on this line")
    parser.add_argument("--report", type=Path, help="append survivors to this file")
    parser.add_argument("--again", type=Path, help="only those that such a file names")
    parser.add_argument(
        "--budget", type=float, default=0, help="seconds of tests for one mutant; 0: all"
    )
    parser.add_argument("--tests", nargs="*", default=TESTS)
    parser.add_argument("modules", nargs="*", help="files or folders, as below central/scheduler")
    args = parser.parse_args()
    os.environ.setdefault("LOCKSTEP_SEED", "all")  # mutants survive by no seed of the day
    chosen = drawn(args)
    mutation = Mutation(chosen, args.report, args.budget)
    options = ["-m", "not slow", "-p", "no:cacheprovider", "-p", "no:terminal", "--timeout=0"]
    os.chdir(ROOT)
    code = pytest.main([*options, "-o", "addopts=--import-mode=importlib", *args.tests], [mutation])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise SystemExit(code)
    for file, counts in mutation.tally.items():
        print(f"{file}: {dict(counts)}".replace(f"{ROOT}/", ""))
    print(f"{len(mutation.survivors)} of {len(chosen)} survived (seed {args.seed}):")
    print("\n".join(str(each).replace(f"{ROOT}/", "") for each in mutation.survivors))


if __name__ == "__main__":
    main()

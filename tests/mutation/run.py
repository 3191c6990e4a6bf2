"""Mutation testing of the pure modules that decide, for a person to run now and then: `make mutants`.

Changes one operator or number at a time in a copy of the repository and runs the module's own tests,
then those of the scheduler and its simulation. A mutant that all of them pass is a survivor: either
it changes nothing, or a test is missing. The same seed draws the same mutants from the same source."""

import argparse
import ast
import copy
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCHEDULER = "central/scheduler"
WIDER = ("tests/central/scheduler", "tests/simulation/test_stories.py")
OWN_TESTS = {
    "queues/fair_share.py": ("queues/test_fair_share.py",),
    "queues/quota.py": ("queues/test_quota.py",),
    "queues/order.py": ("queues/test_quota.py", "queues/test_fifo.py"),
    "preemption/least_harm.py": ("preemption/test_least_harm.py",),
    "preemption/exact_search.py": (
        "preemption/test_least_harm.py",
        "preemption/test_preemption.py",
    ),
    "preemption/victims.py": ("preemption",),
    "placement/domain_choice.py": ("placement",),
    "placement/packing.py": ("placement/test_packing.py",),
    "placement/fewest.py": ("placement/test_fewest.py", "placement/test_preferred_level.py"),
    "placement/search.py": ("placement",),
    "reserved_capacity.py": ("reservation",),
    "reservation/reservation.py": ("reservation",),
    "inventory/gpu_shares.py": (
        "inventory/test_gpu_shares.py",
        "placement/test_shares_placement.py",
    ),
    "inventory/nic_limits.py": ("inventory/test_nic_limits.py",),
    "inventory/cluster_node.py": ("inventory",),
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True)
class Mutant:
    module: str  # below central/scheduler
    line: int
    old: str
    new: str
    start: int  # in the source, as UTF-8
    end: int

    def __str__(self) -> str:
        return f"{SCHEDULER}/{self.module}:{self.line}: {self.old} -> {self.new}"


def changed(node: ast.AST) -> ast.AST | None:
    """The expression with one operator or constant changed; None: nothing to change."""
    new = copy.deepcopy(node)
    match new:
        case ast.Compare(ops=[op, *_]) if type(op) in COMPARISONS:
            new.ops[0] = COMPARISONS[type(op)]()
        case ast.BinOp(op=op) if type(op) in ARITHMETIC:
            new.op = ARITHMETIC[type(op)]()
        case ast.BoolOp(op=op):
            new.op = ast.Or() if isinstance(op, ast.And) else ast.And()
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
        case ast.Constant(value=bool(value)):
            new.value = not value
        case ast.Constant(value=int(value)):
            new.value = value + 1
        case ast.Call(func=ast.Name(id="min" | "max" as name) as function):
            function.id = "max" if name == "min" else "min"
        case _:
            return None
    return new


def mutants(module: str) -> Iterator[Mutant]:
    source = (ROOT / SCHEDULER / module).read_text()
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    inert: set[int] = set()
    tree = ast.parse(source)
    for node in ast.walk(tree):  # annotations decide nothing
        for name in ("annotation", "returns"):
            if (annotation := getattr(node, name, None)) is not None:
                inert |= {id(each) for each in ast.walk(annotation)}
    for node in ast.walk(tree):
        new = None if id(node) in inert else changed(node)
        if new is not None and isinstance(node, ast.expr) and node.end_lineno is not None:
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + (node.end_col_offset or 0)
            old = " ".join((ast.get_source_segment(source, node) or "").split())
            yield Mutant(module, node.lineno, old, f"({ast.unparse(new)})", start, end)


def killed(mutant: Mutant, repository: Path, timeout_s: float) -> bool:
    file = repository / SCHEDULER / mutant.module
    original = file.read_bytes()
    new = mutant.new.encode()
    file.write_bytes(original[: mutant.start] + new + original[mutant.end :])
    own = [f"tests/{SCHEDULER}/{each}" for each in OWN_TESTS[mutant.module]]
    try:
        return not (passes(repository, own, timeout_s) and passes(repository, WIDER, timeout_s))
    finally:
        file.write_bytes(original)


def passes(repository: Path, tests: list[str] | tuple[str, ...], timeout_s: float) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-n", "2", *tests]
    command += ["-p", "no:cacheprovider", "--maxfail=1"]
    try:
        done = subprocess.run(
            command, cwd=repository, capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return False  # a loop without end is noticed, too
    return done.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=20, help="how many to draw")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--timeout", type=float, default=300.0, help="seconds for each run of tests"
    )
    parser.add_argument("modules", nargs="*", default=sorted(OWN_TESTS), help="below " + SCHEDULER)
    args = parser.parse_args()
    every = [mutant for module in args.modules for mutant in mutants(module)]
    drawn = random.Random(args.seed).sample(every, min(args.mutants, len(every)))
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder)
        for name in ("agent", "central", "protos", "tests", "daemonset", "docs"):
            shutil.copytree(ROOT / name, repository / name)
        shutil.copy(ROOT / "pyproject.toml", repository)
        for number, mutant in enumerate(drawn, 1):
            dead = killed(mutant, repository, args.timeout)
            print(
                f"{number}/{len(drawn)} {'killed  ' if dead else 'SURVIVED'} {mutant}", flush=True
            )
            survivors += [] if dead else [mutant]
    print(f"{len(survivors)} of {len(drawn)} survived (seed {args.seed}, of {len(every)}):")
    print("\n".join(map(str, survivors)))


if __name__ == "__main__":
    main()

"""How many examples and seeds a property test tries: fewer than `make nightly`, the fewest in `make check`."""

import os
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
FEWEST = 20
FAST = bool(os.environ.get("LOCKSTEP_FAST"))
TODAY = os.environ.get("LOCKSTEP_SEED", "all")
ALL_SEEDS = TODAY == "all"  # only then all kinds of cases are sure to be among them


def examples(full: int) -> int:
    """A quarter of `full`, but not fewer than FEWEST; `full` with LOCKSTEP_SEED=all."""
    return full if ALL_SEEDS else min(full, max(FEWEST, full // 4))


def seeds(full: int) -> range:
    """Seeds of a property that plays many cases in one test: a third of `full`, in the fast lanes a tenth, another part
    each day; `full` with LOCKSTEP_SEED=all."""
    count = full if ALL_SEEDS else max(full // (10 if FAST else 3), 1)
    first = random.Random(f"{TODAY} {full}").randint(0, full - count)
    return range(first, first + count)


def some(cases: Sequence[T]) -> list[T]:
    """A third of the cases, in the fast lanes a tenth, others each day; all with LOCKSTEP_SEED=all."""
    count = len(seeds(len(cases)))
    return random.Random(f"{TODAY} {len(cases)}").sample(cases, count)

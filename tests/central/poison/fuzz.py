"""Random hostile objects against the decoders and the core. As a program: python -m tests.central.poison.fuzz SEED
COUNT."""

import sys
import time
from collections.abc import Iterator
from dataclasses import replace

from central.model.facts import Fact, QueueSeen
from central.model.json_types import Json
from central.model.resources import ROOT
from tests.central.poison.generator import objects
from tests.central.poison.world import CYCLE_S, READ_S, World, read

TOGETHER = 25  # objects in one cycle
CYCLES = 20  # of one scheduler


def run(seed: int, count: int) -> float:
    """Reads the objects and runs them through cycles in which another tenant's gang must be placed. Returns the
    longest time to read one. Raises AssertionError with the object."""
    world, pending, longest = World(), list[Fact](), 0.0
    for number, (kind, raw) in enumerate(objects(seed, count)):
        try:
            found = read(kind, raw)
        except Exception as error:
            raise AssertionError(f"seed {seed}, {number}: {kind}: {error!r}") from error
        longest = max(longest, found.spent_s)
        assert found.spent_s < READ_S, f"seed {seed}, {number}: {found.spent_s:.2f} s: {kind}"
        if found.fact is not None:
            pending.append(_of_administrator(found.fact))
        if len(pending) == TOGETHER:
            _cycle(world, pending, f"seed {seed}, up to {number}")
            pending.clear()
            if world.gangs >= CYCLES:
                world = World()
    return longest


def _of_administrator(fact: Fact) -> Fact:
    """A capability of the root queue holds for everybody, the healthy tenant too: the administrator's word."""
    if isinstance(fact, QueueSeen) and fact.name == ROOT:
        return replace(fact, capability=())
    return fact


def _cycle(world: World, facts: list[Fact], where: str) -> None:
    try:
        _, spent_s = world.cycle(*facts)
    except Exception as error:
        raise AssertionError(f"{where}: {error!r}: {facts!s:.5000}") from error
    assert spent_s < CYCLE_S * 2, f"{where}: a cycle of {spent_s:.2f} s: {facts!s:.5000}"


def main() -> Iterator[str]:
    seed, count = map(int, sys.argv[1:3])
    began = time.monotonic()
    longest = run(seed, count)
    yield f"{count} objects in {time.monotonic() - began:.0f} s, longest {longest * 1000:.0f} ms"


if __name__ == "__main__":
    print(*main())


__all__ = ["Json", "run"]

"""Tenants that flood the cluster with pods: another tenant's gang waits for a bounded number of attempts, and a slice
costs what it tries, not what is pending. Counted in attempts and calls: no clock, so that noise decides nothing."""

import sys
from collections.abc import Iterable
from dataclasses import replace
from types import FrameType

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision
from central.model.facts import Fact, PodGone, PodSeen, QueueSeen
from central.scheduler.agenda import FLOOD_TRIES
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from tests.central import factories

NODES = 32  # with 8 GPUs each, all of them in use
SLICE = 20  # attempts


class Attempts:
    """A budget of so many attempts, the first included."""

    def __init__(self) -> None:
        self._left = SLICE - 1

    def __call__(self) -> bool:
        self._left -= 1
        return self._left < 0


class World:
    def __init__(self, flood: list[PodSeen], *queues: QueueSeen) -> None:
        self.scheduler: Scheduler = new_scheduler(factories.LEVELS)
        self.now = 0.0
        full = [factories.pod(f"f{i}", 8, node=f"n{i}", phase="Running") for i in range(NODES)]
        nodes = [factories.node(f"n{i}", rack=f"r{i // 8}") for i in range(NODES)]
        schedule_once(self.scheduler, [*queues, *nodes, *full, *flood], self.now, Attempts())

    def slice(self, *facts: Fact) -> list[Decision]:
        self.now += 0.25
        return schedule_once(self.scheduler, facts, self.now, Attempts())

    def slices_until_bound(self, namespace: str, facts: list[Fact]) -> int:
        """Something ends in each slice, so the round never has an end of its own."""
        for number in range(1, 20):
            gone = PodGone(f"uid-f{number}")
            if any(each.namespace == namespace for each in binds(self.slice(*facts, gone))):
                return number
            facts = []
        raise AssertionError(f"nothing of {namespace} was bound")


def binds(decisions: Iterable[Decision]) -> list[Bind]:
    return [each for each in decisions if isinstance(each, Bind)]


def flood(pods: int, *, unlike: bool, queue: str = "") -> list[PodSeen]:
    """Pods that fit nowhere: each asks for nearly all memory of a node that has less."""
    found = []
    for number in range(pods):
        cpu = 10_000_000 + (number if unlike else number % 50)
        pod = factories.pod(f"e{number}", 1, cpu=cpu, created=float(number))
        found.append(replace(pod, namespace="evil", queue=queue))
    return found


def good(queue: str = "") -> list[Fact]:
    """A gang of two small pods that fits at once, younger than all others."""
    pods = [factories.pod(f"g{i}", 0, gang="good", created=1e6) for i in range(2)]
    group = replace(factories.gang("good", 2, created=1e6, queue=queue), namespace="good")
    return [group, *(replace(pod, namespace="good") for pod in pods)]


@pytest.mark.parametrize("queues", [False, True])
@pytest.mark.parametrize(
    ("pods", "unlike"), [(4000, True), pytest.param(20_000, False, marks=pytest.mark.slow)]
)
@pytest.mark.timeout(240)
def test_a_gang_of_another_tenant_waits_for_few_attempts(
    pods: int, unlike: bool, queues: bool
) -> None:
    own, others = ("a", "b") if queues else ("", "")
    world = World(
        flood(pods, unlike=unlike, queue=others),
        *(QueueSeen(name) for name in ("a", "b") if queues),
    )
    for _ in range(3):
        world.slice()
    assert world.scheduler.state.pending.round is not None, "most of it is still to be tried"
    assert world.slices_until_bound("good", good(own)) <= FLOOD_TRIES // SLICE + 1


class Calls:
    """Calls of functions of the scheduler while it is active."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> "Calls":
        sys.setprofile(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        self.count += event == "call" and "/central/" in frame.f_code.co_filename


def calls_of_a_slice(pods: int) -> int:
    world = World(flood(pods, unlike=True))
    for _ in range(FLOOD_TRIES // SLICE + 2):
        world.slice()
    world.slice(*good())
    with Calls() as calls:
        assert world.slice(PodGone("uid-f1")) is not None
    return calls.count


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_what_a_slice_costs_hardly_grows_with_what_is_pending() -> None:
    """Beside the attempts a slice puts the rest in order: a few cheap calls for each gang."""
    few, many = calls_of_a_slice(1000), calls_of_a_slice(5000)
    assert many - few < 8 * 4000

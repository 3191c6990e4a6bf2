"""Queues beside each other with gangs of all sizes: whoever is first by the written order, and could start if what runs
ended, starts within the longest remaining run plus --patience. No gang is evicted on its turn, and no GPU is kept idle for one
that does not get it."""

import random
from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from central.controllers.composite import new_scheduler
from central.model.defaults import USAGE_HALF_LIFE_S
from central.scheduler.preemption import withdrawal
from central.scheduler.queues.queue_claims import FIRST_S
from central.simulator import scenario
from central.simulator.documents import SourceLocation
from central.simulator.simulation import Simulation
from tests import effort
from tests.central import factories
from tests.experiments.backfill.days import Day, Job
from tests.experiments.backfill.lockstep import Play
from tests.simulation.first_in_line import FirstInLine

GPUS, PATIENCE_S, AFTER_S = 8, 600.0, 3600.0
GROUP = "scheduling.k8s.io/group-name"
Json = dict[str, Any]


def node(name: str) -> Json:
    has = {"nvidia.com/gpu": str(GPUS), "cpu": "64", "memory": "256Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": has, "conditions": ready},
    }


def queue(name: str, **spec: object) -> Json:
    version = "scheduling.volcano.sh/v1beta1"
    return {"apiVersion": version, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def gang(
    name: str, queue: str, at_s: int, pods: tuple[int, int], lasts_s: int, *, priority: int = 0
) -> list[Json]:
    """pods: how many, and the GPUs of each"""
    count, gpus = pods
    arrives = {"lockstep.dev/arrives-at": f"{at_s}s"}
    meta = {"namespace": "default", "annotations": arrives}
    found: list[Json] = [
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name, **meta},
            "spec": {"minMember": count, "queue": queue},
        }
    ]
    notes = {**arrives, GROUP: name, "lockstep.dev/runs-for": f"{lasts_s}s"}
    limits = {"nvidia.com/gpu": str(gpus), "cpu": "1"}
    spec: Json = {"schedulerName": "lockstep", "priority": priority}
    spec["containers"] = [{"name": "main", "resources": {"limits": limits}}]
    for rank in range(count):
        named = {"name": f"{name}-{rank}", "namespace": "default", "annotations": notes}
        found += [{"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": spec}]
    return found


def stream(name: str, count: int, every_s: int, lasts_s: int, **given: Any) -> list[Json]:
    """Gangs of the queue that arrive one after the other."""
    pods = given.pop("pods", (1, 1))
    made = (gang(f"{name}{i}", name, i * every_s, pods, lasts_s, **given) for i in range(count))
    return [each for documents in made for each in documents]


def played(
    documents: list[Json], **policy: Any
) -> tuple[FirstInLine, dict[str, float], Simulation]:
    """The watch, and when each gang started."""
    placed = [(SourceLocation("day", index), raw) for index, raw in enumerate(documents)]
    scheduler = new_scheduler((), patience_s=PATIENCE_S, **policy)

    def ends(now: float) -> list[float]:
        pods = (pod for pod in scheduler.state.pods.values() if pod.node and pod.alive)
        return [(pod.since or now) + (pod.seen.runs_for_s or inf) for pod in pods]

    watch = FirstInLine(scheduler, ends, PATIENCE_S)
    simulation = Simulation(scenario.read(placed, ("lockstep",), ()), scheduler)
    result = simulation.run(lambda sim: watch.look(sim.now))
    starts: dict[str, float] = {}
    for each in result.placed:
        starts.setdefault(each.gang, each.at_s)
    return watch, starts, simulation


NODES = [node("n0"), node("n1")]


@pytest.mark.parametrize("weights", [(1, 1), (3, 1), (1, 3)])
@pytest.mark.parametrize(("half_life_s", "priority"), [(0.0, 5), (86400.0, 0)])
def test_a_stream_of_small_gangs_of_another_queue_does_not_drain_and_win(
    weights: tuple[int, int], half_life_s: float, priority: int
) -> None:
    """The gang takes all GPUs, so its queue exceeds its share; the stream never ends before."""
    small, large = weights
    documents = [*NODES, queue("s", weight=small), queue("l", weight=large)]
    documents += stream("s", 60, 60, 1000, priority=priority)
    watch, starts, simulation = played(
        documents + gang("big", "l", 970, (2, 8), 1000), half_life_s=half_life_s
    )
    assert starts["big"] <= 2000.0
    assert not simulation.result.evicted
    assert not watch.scheduler.state.pending.wakeups[withdrawal.WITHDRAWN]


def test_nothing_is_reserved_for_a_gang_that_a_deserved_amount_would_reclaim() -> None:
    """The other queue has work for what it deserves at all times, and the rest of its work uses what is left."""
    documents = [*NODES, queue("l"), queue("s", deserved={"nvidia.com/gpu": 8})]
    documents += stream("s", 60, 60, 1000)
    _, starts, simulation = played(documents + gang("big", "l", 970, (2, 8), 1000))
    assert not simulation.result.evicted
    assert starts["s16"] == 1000.0
    assert max(starts[f"s{i}"] - 60 * i for i in range(60)) <= 300.0, "no GPU waits for the gang"
    assert starts["big"] >= 59 * 60 + 1000


def day(seed: int) -> tuple[list[Json], dict[str, Any]]:
    dice = random.Random(seed)
    nodes = dice.choice((2, 3, 4))
    documents = [node(f"n{index}") for index in range(nodes)]
    reclaimable = dice.random() < 0.7
    names = [f"q{index}" for index in range(dice.choice((2, 2, 3, 4)))]
    large = dice.sample(names, dice.choice((1, 1, len(names))))
    for name in names:
        documents.append(queue(name, weight=dice.choice((1, 1, 2, 5)), reclaimable=reclaimable))
        number = 0
        at_s = dice.randrange(900)
        while at_s < 6000:
            count = dice.choice((1, nodes - 1, nodes)) if name in large else 1
            pods = (count, GPUS) if name in large else (1, dice.choice((1, 2, 4)))
            lasts_s, priority = dice.choice((300, 900, 1800)), dice.choice((0, 0, 5))
            documents += gang(f"{name}-{number}", name, at_s, pods, lasts_s, priority=priority)
            at_s += dice.randrange(60, 900) if name in large else dice.randrange(20, 200)
            number += 1
    return documents, {"preempt_across": dice.choice(("namespaces", "none"))}


def mixed_day(seed: int) -> tuple[list[Json], dict[str, Any]]:
    """Queues of all priorities, some of them below departments, each with gangs of all sizes."""
    dice = random.Random(seed)
    nodes = dice.choice((2, 3, 4))
    documents = [node(f"n{index}") for index in range(nodes)]
    departments = dice.choice(((), (), ("d0",), ("d0", "d1")))
    reclaimable, priorities = dice.random() < 0.7, dice.choice(((0,), (0, 0, 1)))
    documents += [
        queue(name, weight=dice.choice((1, 2)), priority=dice.choice(priorities))
        for name in departments
    ]
    for number in range(dice.choice((2, 3, 4, 5))):
        name, parent = f"q{number}", dice.choice(("", *departments))
        terms = {"weight": dice.choice((1, 1, 2, 5)), "priority": dice.choice(priorities)}
        above = {"parent": parent} if parent else {}
        documents.append(queue(name, reclaimable=reclaimable, **terms, **above))
        sizes = dice.choice(((1,), (1, 2, 4), (1, 8, 8 * nodes), (8, 8 * nodes)))
        at_s, busy_s = dice.randrange(900), dice.choice((90, 300, 900))
        while at_s < 4000:
            gpus = dice.choice(sizes)
            each = gpus if gpus <= GPUS else dice.choice((4, GPUS))
            lasts_s, priority = dice.choice((300, 900, 1800)), dice.choice((0, 0, 5))
            gang_name = f"{name}-{at_s}"
            documents += gang(
                gang_name, name, at_s, (gpus // each, each), lasts_s, priority=priority
            )
            at_s += dice.randrange(1, 2 * busy_s)
    return documents, {"preempt_across": dice.choice(("namespaces", "none"))}


@pytest.mark.parametrize("drawn", [day, mixed_day])
@pytest.mark.parametrize("seed", effort.seeds(24))
def test_whoever_is_first_starts_within_the_longest_remaining_run_and_patience(
    seed: int, drawn: Callable[[int], tuple[list[Json], dict[str, Any]]]
) -> None:
    documents, policy = drawn(seed)
    half_life_s = USAGE_HALF_LIFE_S if seed % 4 else 0.0
    watch, _, _ = played(documents, half_life_s=half_life_s, **policy)
    assert drawn is mixed_day or watch.firsts > 3
    assert not watch.evicted_on_turn
    assert watch.in_vain <= 0.1 * watch.kept, (
        "GPUs are kept idle for a gang that does not start there"
    )


def undeclared(day: Day, idle: float) -> tuple[FirstInLine, dict[str, float]]:
    """Plays a day on which few or no gangs say how long they run. Returns the watch, and how long each gang waits.
    idle: --reserve-idle, which grows to all GPUs in so many days that it is as much again in each."""
    weights = {name: 1 + number % 3 for number, name in enumerate(day.queues)}
    scheduler = new_scheduler(factories.LEVELS, reserve_after_s=AFTER_S, reserve_idle=idle)
    play = Play(day, scheduler, weights=weights)
    longest_s = max(job.runs_s for job in day.jobs)
    watch = FirstInLine(
        scheduler, lambda now: [now + longest_s], AFTER_S + FIRST_S * (1 / idle - 1)
    )
    return watch, play.run(lambda each: watch.look(each.now))


def test_a_gang_of_all_nodes_starts_though_nobody_says_how_long_streams_of_others_run() -> None:
    jobs = [
        Job(f"{name}{index}", index * 300.0 + number, 1, 2, 3600.0, None, name)
        for number, name in enumerate(("a", "b", "c"))
        for index in range(150)
    ]
    big = Job("big", 5000.0, 4, GPUS, 3600.0, None, "big")
    ordered = sorted([*jobs, big], key=lambda job: job.arrives_s)
    _, waits = undeclared(Day(4, tuple(ordered)), 1.0)
    assert waits["big"] <= AFTER_S + 3600.0 + 60.0


def undeclared_day(seed: int) -> Day:
    dice = random.Random(seed)
    nodes, declared, jobs = dice.choice((2, 3, 4, 6)), dice.choice((0.0, 0.0, 0.5)), list[Job]()
    for number in range(dice.choice((2, 3, 4, 5))):
        whole = GPUS * nodes
        sizes = dice.choice(((1,), (1, 2, 4), (1, GPUS, whole), (GPUS, whole), (whole - GPUS,)))
        at_s, busy_s = dice.randrange(3600), dice.choice((300, 900, 3600))
        while at_s < 6 * 3600:
            gpus, runs_s = dice.choice(sizes), float(dice.choice((900, 1800, 5400)))
            each, says_s = min(gpus, GPUS), runs_s if dice.random() < declared else None
            name = f"q{number}-{len(jobs)}"
            jobs.append(Job(name, at_s, gpus // each, each, runs_s, says_s, f"q{number}"))
            at_s += dice.randrange(1, 2 * busy_s)
    return Day(nodes, tuple(sorted(jobs, key=lambda job: job.arrives_s)))


@pytest.mark.parametrize("seed", effort.seeds(24))
def test_without_run_times_whoever_is_first_starts_once_reserve_after_and_the_longest_run_are_over(
    seed: int,
) -> None:
    """Where ends are unknown, a gang may start elsewhere than on the nodes that were kept for it."""
    drawn = undeclared_day(seed)
    watch, _ = undeclared(drawn, 1.0 if seed % 3 else 0.5)
    assert watch.firsts > 1
    assert watch.in_vain <= 0.04 * GPUS * drawn.nodes * watch.now

"""What harm counts, and in which order; and that a victim does not evict others in turn."""

import random
from dataclasses import replace

import pytest

from central.model.facts import Fact, PodSeen, PodSpec
from central.scheduler.inventory.pods import Pod, Work
from central.scheduler.preemption.harm import Harm, HarmScale, gpus, plus
from protos.names import GPU, GPU_SHARE
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job
from tests.effort import examples

GIB = 1 << 30
NOW = 1000.0


def of(priority: int, *, count: int = 1, ran: float = 100.0, breaks: bool = True) -> Harm:
    """A gang of 1-GPU pods, among gangs of priority 0, 1 and 2."""
    pods = [
        Pod(factories.pod(f"p-{i}", 1, created=NOW - ran), factories.spec(1)) for i in range(count)
    ]
    for pod in pods:
        pod.work = Work(since=NOW - ran)
    return HarmScale((0, 1, 2), NOW).of(priority, pods, breaks=breaks)


def test_the_highest_priority_decides_before_all_else() -> None:
    surplus_of_2 = of(2, breaks=False, ran=0.0)
    two_of_1 = plus(of(1, count=9), of(1, count=9))
    assert of(0, count=99, ran=900.0) < of(1, ran=0.0)
    assert two_of_1 < surplus_of_2


def test_gangs_then_work_then_pods_each_by_priority() -> None:
    assert plus(of(2), of(0, count=50)) < plus(of(2), of(1))
    assert plus(of(1, breaks=False), of(1, breaks=False)) < of(1, ran=0.0)
    assert of(1, count=2, ran=10.0) < of(1, count=1, ran=30.0)
    assert of(1, count=1, ran=0.0) < of(1, count=2, ran=0.0)
    more_of_2 = plus(of(2, ran=20.0), of(0, ran=10.0))
    assert plus(of(2, ran=10.0), of(0, ran=900.0)) < more_of_2


@pytest.mark.parametrize(
    ("annotated", "reported", "lost_s"),
    [
        (None, None, 100),
        (NOW - 10, None, 10),
        (None, NOW - 10, 10),
        (NOW - 10, NOW - 30, 10),  # the newer one counts, whoever says it
        (NOW - 30, NOW - 10, 10),
        (None, NOW - 900, 100),  # of an earlier run: this one has run for 100 s
        (None, NOW + 60, 0),  # by a clock that is ahead
    ],
)
def test_work_is_lost_since_the_newest_checkpoint_of_this_run(
    annotated: float | None, reported: float | None, lost_s: int
) -> None:
    pod = Pod(factories.pod("p-0", 1, created=NOW - 100, checkpoint=annotated), factories.spec(1))
    pod.work = Work(NOW - 100, reported)
    assert HarmScale((0,), NOW).of(0, [pod], breaks=True)[2] == lost_s * gpus(pod.spec)


def test_a_victim_costs_what_stands_idle_until_it_is_gone() -> None:
    pod = Pod(replace(factories.pod("p-0", 2), grace_s=30), factories.spec(2))
    ten_years = Pod(replace(pod.seen, grace_s=3 * 10**8), pod.spec)
    assert HarmScale((0,), NOW).of(0, [pod], breaks=True)[2] == 30 * gpus(pod.spec)
    assert HarmScale((0,), NOW, 60.0).of(0, [ten_years], breaks=True)[2] == 60 * gpus(pod.spec)


@pytest.mark.parametrize(
    ("requests", "worth"),
    [
        ({GPU: 2}, 2.0),
        ({GPU_SHARE: 50}, 0.5),
        ({GPU: 1, "cpu": 64_000}, 4.0),
        ({"cpu": 8_000}, 0.5),
        ({"cpu": 1_000, "memory": 64 * GIB}, 0.5),
        ({"nvidia.com/mig-3g.20gb": 1}, 3 / 7),
        ({"nvidia.com/mig-1c.3g.20gb": 2}, 2 / 7),
        ({"example.com/unknown": 5}, 0.0),
    ],
)
def test_processors_memory_and_parts_of_gpus_are_work_too(
    requests: dict[str, int], worth: float
) -> None:
    assert gpus(PodSpec(tuple(sorted(requests.items())))) == int(worth * 1_000_000)


def on_processors(name: str, cpu: int, **other: object) -> list[Fact]:
    return [
        replace(f, spec=factories.spec(cpu=cpu)) if isinstance(f, PodSeen) else f
        for f in job(name, 1, gpus=0, **other)  # type: ignore[arg-type]  # a test's shorthand
    ]


def test_of_two_that_use_processors_alone_the_smaller_goes() -> None:
    for names in (("large", "small"), ("small", "large")):
        world = World(factories.node("n", gpus=0, cpu=20_000))
        for number, name in enumerate(names):
            cpu = 16_000 if name == "large" else 4_000
            world.step(1.0, *on_processors(name, cpu, created=float(number)))
        world.step(50.0, *on_processors("urgent", 4_000, priority=5, created=50.0))
        assert world.evicted == ["small-0"]


def test_of_equals_the_youngest_goes() -> None:
    world = World(*(factories.node(name) for name in "ab"))
    world.step(5.0, *job("second", 1, created=2.0), *job("first", 1, created=1.0))
    world.step(9.0, *job("urgent", 1, priority=5, created=9.0))
    assert world.evicted == ["second-0"]


@pytest.mark.parametrize("seed", range(examples(40)))
def test_victims_of_one_size_evict_nobody_in_turn(seed: int) -> None:
    """Each victim comes back, and waits: had there been somebody less urgent, that one would have gone."""
    dice = random.Random(seed)
    world = World(*(factories.node(f"n{i}", gpus=4) for i in range(2)))
    for number in range(8):
        world.step(float(number), *job(f"g{number}", 1, gpus=1, priority=dice.choice((0, 10, 100))))
    world.step(100.0, *job("urgent", dice.choice((1, 2, 3)), gpus=1, priority=200))
    gone = list(world.evicted)
    assert gone
    again = [
        replace(
            world.running[f"uid-{name}"],
            uid=f"again-{name}",
            node="",
            phase="Pending",
            deleting=False,
        )
        for name in gone
    ]
    for now in (106.0, 112.0, 130.0):
        world.step(now, *again)
    assert world.evicted == gone

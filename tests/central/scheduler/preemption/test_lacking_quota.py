"""The victims by which a queue has quota again, against every set of them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from random import Random

import numpy as np
import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, GangSeen, PodSeen, PodSpec, QueueSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.inventory.pods import EvictionBackoff, Pod
from central.scheduler.placement import PlacementRequest
from central.scheduler.preemption import evictable, preemption_plan
from central.scheduler.preemption.harm import NO_HARM, Harm, HarmScale, plus
from central.scheduler.preemption.preemption_request import PreemptionRequest
from central.scheduler.queues.shortfall import GANGS, Shortfall
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.small_cluster import job
from tests.effort import examples

NOW = 1000.0
Option = tuple[Gang, tuple[Pod, ...], bool]  # whether it falls below its minimum


def drawn(dice: Random, *, covered: bool) -> Scheduler:
    facts: list[Fact] = [QueueSeen("q", min_runtime_s=dice.choice((None, 100.0))), QueueSeen("p")]
    facts += [factories.node("n", gpus=64), factories.budget("kept", dice.randrange(3))]
    for number in range(dice.randint(2, 4)):
        count = dice.randint(1, 3)
        made = job(
            f"g{number}",
            count,
            dice.choice((1, 2)),
            least=dice.randint(1, count),
            queue=dice.choice("qqqp"),
            created=dice.choice((0.0, 500.0)),
            preemptable=dice.choice((None, None, False)) if count > 1 else None,
            priority=dice.choice((0, 1)),
        )
        for fact in made:
            if isinstance(fact, PodSeen):
                labels = (("app", "kept"),) if covered and dice.random() < 0.5 else ()
                placed = replace(fact, labels=labels, node="n", phase="Running")
                facts.append(replace(placed, started=dice.choice((100.0, 950.0))))
            elif isinstance(fact, GangSeen):
                minima = (("", min(count, 2)),) if dice.random() < 0.2 else ()
                facts.append(replace(fact, task_min=minima))
    scheduler = new_scheduler(factories.LEVELS)
    schedule_once(scheduler, [*facts, *job("new", 1, 99, priority=5, queue="q")], NOW)
    return scheduler


def options(scheduler: Scheduler, gang: Gang) -> Iterator[Option]:
    """None of it goes, some above its minima, or all."""
    pods = gang.counts.placed
    least = max(gang.minimum, sum(each for _, each in gang.task_min))
    free = [pod for pod in pods if evictable.may_leave(gang, pod)]
    for count in range(max(0, len(pods) - least) + 1):
        for some in combinations(free, count):
            yield gang, some, False
    if not evictable.MinRuntimes(scheduler.preemption).why_whole(gang, NOW):
        yield gang, tuple(pods), True


def harm_of(scheduler: Scheduler, chosen: Sequence[Option]) -> Harm:
    scale, total = HarmScale({gang.priority for gang in inside(scheduler)}, NOW), NO_HARM
    for gang, pods, breaks in chosen:
        if pods:
            total = plus(total, scale.of(gang.priority, pods, breaks=breaks))
    return total


def inside(scheduler: Scheduler) -> list[Gang]:
    queues = scheduler.queues.by_name
    return [gang for gang in queues["q"].gangs.values() if gang.counts.placed]


def frees(chosen: Sequence[Option], amounts: dict[str, int]) -> bool:
    gpus = sum(pod.spec.request(GPU) for _, pods, _ in chosen for pod in pods)
    whole = sum(breaks for _, _, breaks in chosen)
    return gpus >= amounts.get(GPU, 0) and whole >= amounts.get(GANGS, 0)


def within_budgets(scheduler: Scheduler, chosen: Sequence[Option]) -> bool:
    app = Counter(dict(pod.seen.labels).get("app") for _, pods, _ in chosen for pod in pods)
    (budget,) = scheduler.budgets.seen.values()
    return app["kept"] <= budget.allowed


def as_options(scheduler: Scheduler, pods: Sequence[Pod]) -> list[Option]:
    found: dict[str, tuple[Gang, list[Pod]]] = {}
    for pod in pods:
        gang = scheduler.state.gang_of(pod)
        assert gang is not None
        found.setdefault(gang.key[1], (gang, []))[1].append(pod)
    return [(gang, (*own,), len(own) == len(gang.counts.placed)) for gang, own in found.values()]


def request_of(
    gang: Gang, quota: Sequence[Shortfall], *, ignore_budgets: bool = False
) -> PreemptionRequest:
    """For a pod that fits, so that quota is all that is lacking."""
    placement = PlacementRequest(((PodSpec((("pods", 1),)), 1),))
    rows = np.zeros(0, dtype=np.int64)
    return PreemptionRequest(
        gang, placement, NOW, rows, lambda *_: True, quota=quota, ignore_budgets=ignore_budgets
    )


def victims(scheduler: Scheduler, request: PreemptionRequest) -> tuple[Pod, ...] | None:
    found = preemption_plan.find_victims(scheduler.preemption, request)
    return found.victims if found is not None else None


@pytest.mark.long
@pytest.mark.parametrize("covered", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_no_set_covers_the_quota_with_less_harm(seed: int, covered: bool) -> None:
    met = refused = 0
    for number in range(examples(60)):
        dice = Random(1000 * seed + number)
        scheduler = drawn(dice, covered=covered)
        amounts = {GPU: dice.randint(1, 5)} | ({GANGS: 1} if dice.random() < 0.3 else {})
        ignored = dice.random() < 0.2
        queue = scheduler.queues.by_name["q"]
        new = next(gang for gang in queue.gangs.values() if not gang.counts.placed)
        request = request_of(new, [Shortfall(queue, amounts)], ignore_budgets=ignored)
        gangs = inside(scheduler)
        sets = [
            each
            for each in product(*(options(scheduler, gang) for gang in gangs))
            if frees(each, amounts) and (ignored or within_budgets(scheduler, each))
        ]
        found = victims(scheduler, request)
        assert (found is not None) == bool(sets), (seed, number)
        refused += found is None
        if found is not None:
            best = min(harm_of(scheduler, each) for each in sets)
            assert harm_of(scheduler, as_options(scheduler, found)) == best, (seed, number)
            assert frees(as_options(scheduler, found), amounts)
            assert ignored or within_budgets(scheduler, as_options(scheduler, found))
            met += 1
    assert met > 2
    assert refused > 2


def test_of_equal_members_the_last_ranks_leave() -> None:
    facts: list[Fact] = [QueueSeen("q"), factories.node("n", gpus=64)]
    scheduler = new_scheduler(factories.LEVELS)
    schedule_once(scheduler, [*facts, *job("g", 4, 1, least=2, queue="q")], NOW)
    queue = scheduler.queues.by_name["q"]
    (gang,) = queue.gangs.values()

    def leaving(gpus: int) -> set[str]:
        asks = request_of(Gang(("ns", "x", True)), [Shortfall(queue, {GPU: gpus})])
        return {pod.seen.name for pod in victims(scheduler, asks) or ()}

    assert leaving(1) == {"g-3"}
    assert leaving(2) == {"g-2", "g-3"}
    assert leaving(3) == {"g-0", "g-1", "g-2", "g-3"}
    next(iter(gang.members.values())).evict_backoff = EvictionBackoff(1, NOW + 1)
    assert leaving(2) == {"g-2", "g-3"}
    assert not leaving(3), "an eviction of one of its members was refused a moment ago"

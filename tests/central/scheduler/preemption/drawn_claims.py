"""Small clusters with a claim, drawn at random; an exact solver says with how little harm each claim can be met."""

import random
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, GangSeen, PodSeen
from central.scheduler import placement
from central.scheduler.apply import apply
from central.scheduler.cycle import schedule_once
from central.scheduler.placement import PlacementRequest
from central.scheduler.preemption import preemption_plan
from central.scheduler.preemption.preemption_request import PreemptionRequest
from central.scheduler.scheduler import Scheduler
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from protos.names import GPU_SHARE, RACK
from tests.central import factories
from tests.central.scheduler.exact.victims import Victims
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.small_cluster import BY_PRIORITY, job

NOW = 200.0
MIN_RUNTIME_S = 150.0  # gangs that begin at 100 are younger
URGENT = 5


class Claim(NamedTuple):
    cluster: Scheduler
    request: PreemptionRequest


def claim(dice: random.Random, *, covered: bool) -> Claim | None:
    """A gang of priority 5 that does not fit, among gangs of other priorities. covered: by disruption
    budgets. None: it fits."""
    cluster = new_scheduler(factories.LEVELS, min_runtime_s=MIN_RUNTIME_S)
    cpu = dice.random() < 0.25  # a claim for processors alone
    nodes = [
        factories.node(f"n{i}", rack=f"r{i % 2}", gpus=4, cpu=32_000, shares=True)
        for i in range(dice.randint(1, 4))
    ]
    schedule_once(cluster, nodes, 0.0)
    for number in range(dice.randint(1, 5)):
        schedule_once(cluster, _gang(dice, number, cpu=cpu), dice.choice((0.0, 0.0, 50.0, 100.0)))
    running = [pod for pod in cluster.state.pods.values() if pod.node]
    begun = [replace(pod.seen, node=pod.node, phase="Running") for pod in running]
    schedule_once(cluster, begun, 100.0)
    pods, level = dice.choice((1, 2, 3)), dice.choice(("", RACK, "node"))
    gpus = 0 if cpu else dice.choice((2, 4))
    wanted = job("urgent", pods, gpus=gpus, priority=URGENT, topology_required=level, created=99.0)
    if cpu:
        wanted = _with_cpu(wanted, dice.choice((8_000, 16_000, 28_000)))
    for fact in (*wanted, *(_budgets(dice) if covered else ())):
        apply(cluster, fact)
    gang = cluster.state.gangs["ns", "urgent", True]
    want = PlacementRequest(((gang.counts.waiting[0].spec, pods),), level)
    leaving = any(pod.evicting for pod in cluster.state.pods.values())
    if leaving or _fits(cluster, want):
        return None
    return Claim(
        cluster, PreemptionRequest(gang, want, NOW, np.zeros(0, dtype=np.int64), BY_PRIORITY)
    )


def check(asked: Claim) -> bool:
    """Whether the claim can be met; fails if the scheduler could have met it with less harm."""
    cluster, request = asked
    victims = Victims(cluster, request, MIN_RUNTIME_S)
    best = victims.least()
    plan = preemption_plan.find_victims(cluster.preemption, request)
    assert (plan is None) == (best is None), f"the least harm is {best}"
    if plan is not None:
        assert victims.of(plan.victims) == best
    check_invariants(cluster)
    return plan is not None


def _fits(cluster: Scheduler, want: PlacementRequest) -> bool:
    draft = Draft(cluster.state.snapshot)
    try:
        placement.fit(draft, want)
    except DoesNotFit:
        return False
    draft.undo()
    return True


def _gang(dice: random.Random, number: int, *, cpu: bool) -> list[Fact]:
    size = dice.choice((1, 1, 2, 3))
    facts = job(
        f"g{number}",
        size,
        gpus=0 if cpu and dice.random() < 0.7 else dice.choice((1, 2, 4)),
        priority=dice.choice((0, 0, 1, 3, 4, 9)),
        least=dice.randint(1, size),
        created=float(number),
        labels=(("app", dice.choice("xyz")),),
        checkpoint=dice.choice((None, None, 190.0)),
        preemptable=dice.choice((None, None, None, None, True, False)),
    )
    if cpu:
        facts = _with_cpu(facts, dice.choice((4_000, 8_000, 16_000)))
    elif dice.random() < 0.2:
        facts = _with_shares(facts, dice.choice((30, 50, 100)))
    return _with_roles(facts, dice) if dice.random() < 0.3 else facts


def _with_cpu(facts: list[Fact], cpu: int) -> list[Fact]:
    return _requesting(facts, {"cpu": cpu})


def _with_shares(facts: list[Fact], share: int) -> list[Fact]:
    whole = [replace(f, spec=factories.spec()) if isinstance(f, PodSeen) else f for f in facts]
    return [
        replace(f, spec=replace(f.spec, share_containers=(("main", share),)))
        if isinstance(f, PodSeen)
        else f
        for f in _requesting(whole, {GPU_SHARE: share})
    ]


def _requesting(facts: list[Fact], more: dict[str, int]) -> list[Fact]:
    def changed(pod: PodSeen) -> PodSeen:
        requests = tuple(sorted({**dict(pod.spec.requests), **more}.items()))
        return replace(pod, spec=replace(pod.spec, requests=requests))

    return [changed(fact) if isinstance(fact, PodSeen) else fact for fact in facts]


def _with_roles(facts: list[Fact], dice: random.Random) -> list[Fact]:
    """Servers and workers, each with a minimum; the gang's own may be below their sum."""
    group, *pods = facts
    assert isinstance(group, GangSeen)
    split = [replace(pod, task=dice.choice("sw")) for pod in pods if isinstance(pod, PodSeen)]
    have = Counter(pod.task for pod in split)
    least = tuple((task, dice.randint(1, count)) for task, count in sorted(have.items()))
    return [replace(group, task_min=least), *split]


def _budgets(dice: random.Random) -> list[Fact]:
    """z has none."""
    return [factories.budget("x", dice.randint(0, 2)), factories.budget("y", dice.randint(0, 4))]

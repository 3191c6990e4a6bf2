"""A small cluster with a claim, and the least harm by which the claim can be met: brute force over all sets of
pods, written apart from the scheduler's own measure and search."""

import random
from collections import Counter
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, GangSeen, PodSeen
from central.scheduler import placement
from central.scheduler.apply import apply
from central.scheduler.cycle import schedule_once
from central.scheduler.invariants import check_invariants
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import PlacementRequest
from central.scheduler.preemption import preemption_plan
from central.scheduler.preemption.preemption_request import PreemptionRequest
from central.scheduler.reservation.release_forecast import ReleasablePods
from central.scheduler.scheduler import Scheduler
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.state.gangs import Gang
from protos.names import GPU, GPU_SHARE, RACK
from tests.central import factories
from tests.central.scheduler.small_cluster import BY_PRIORITY, job

Harm = tuple[object, ...]
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
    if leaving or _fits(cluster, (), want):
        return None
    return Claim(
        cluster, PreemptionRequest(gang, want, NOW, np.zeros(0, dtype=np.int64), BY_PRIORITY)
    )


def check(asked: Claim) -> bool:
    """Whether the claim can be met; fails if the scheduler could have met it with less harm."""
    cluster, request = asked
    best = brute(cluster, request)
    plan = preemption_plan.find_victims(cluster.preemption, request)
    assert (plan is None) == (best is None), f"the least harm is {best}"
    if plan is not None:
        assert harm(cluster, plan.victims, request.now) == best
    check_invariants(cluster)
    return plan is not None


def brute(cluster: Scheduler, request: PreemptionRequest) -> Harm | None:
    """The least harm of all sets of pods whose leaving lets the gang in."""
    lower = [
        gang
        for gang in cluster.state.gangs.values()
        if gang.priority < request.gang.priority and gang.counts.placed
    ]
    pods = [pod for gang in lower for pod in gang.counts.placed]
    best: Harm | None = None
    for size in range(len(pods) + 1):
        for chosen in combinations(pods, size):
            own = harm(cluster, chosen, request.now)
            if own is None or (best is not None and own >= best) or _overspent(cluster, chosen):
                continue
            if _fits(cluster, chosen, request.placement):
                best = own
    return best


def harm(cluster: Scheduler, chosen: tuple[Pod, ...], now: float) -> Harm | None:
    """None: a gang would be broken in part, or too early, or a pod goes that is not preemptable. The highest priority, then gangs broken, work, and pods, each by
    priority, then capacity, run time and age."""
    gangs = cluster.state.gangs.values()
    priorities = sorted({gang.priority for gang in gangs}, reverse=True)
    broken: Counter[int] = Counter()
    work: Counter[int] = Counter()
    pods: Counter[int] = Counter()
    size = ran = age = 0
    for gang in gangs:
        gone = [pod for pod in chosen if pod.seen.uid in gang.members]
        lacks = _lacks(gang, gone)
        if gone and (lacks or len(gang.counts.placed) - len(gone) < gang.minimum):
            if len(gone) != len(gang.counts.placed):
                return None
            broken[gang.priority] += 1
            if now - min(pod.since or 0.0 for pod in gang.counts.placed) < MIN_RUNTIME_S:
                return None
        for pod in gone:
            if pod.seen.preemptable is False:
                return None
            worth, seconds = _worth(pod), int(now - (pod.since or 0.0))
            saved = pod.seen.checkpoint
            lost = seconds if saved is None else min(seconds, int(now - saved))
            work[gang.priority] += worth * lost
            pods[gang.priority] += 1
            size, ran, age = size + worth, ran + seconds, age + int(now - pod.seen.created)
    return (
        max(pods, default=-1),
        *([kind[each] for each in priorities] for kind in (broken, work, pods)),
        size,
        ran,
        age,
    )


def _worth(pod: Pod) -> int:
    """In millionths of a GPU; 16 cores or 128 GiB are as much as one."""
    requests = dict(pod.spec.requests)
    devices = requests.get(GPU, 0) * 1_000_000 + requests.get(GPU_SHARE, 0) * 10_000
    return max(
        devices, requests.get("cpu", 0) * 125 // 2, requests.get("memory", 0) * 10**6 // 2**37
    )


def _lacks(gang: Gang, gone: list[Pod]) -> bool:
    """Whether a role would be below its minimum."""
    left = Counter(pod.seen.task for pod in gang.counts.placed if pod not in gone)
    tasks = gang.object.task_min if gang.object is not None else ()
    return any(left[task] < least for task, least in tasks)


def _overspent(cluster: Scheduler, chosen: tuple[Pod, ...]) -> bool:
    apps = [dict(pod.seen.labels).get("app") for pod in chosen if pod.seen.phase == "Running"]
    budgets = cluster.budgets.seen.values()
    return any(apps.count(b.name.removeprefix("keep-")) > b.allowed for b in budgets)


def _fits(cluster: Scheduler, chosen: tuple[Pod, ...], want: PlacementRequest) -> bool:
    leavers = ReleasablePods(cluster.state, list(chosen))
    with leavers.without(np.arange(len(chosen))) as snapshot:
        draft = Draft(snapshot)
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

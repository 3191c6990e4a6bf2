"""How long the core takes to decide one gang, and a backlog, on one processor. In process, no I/O, so
it is the thread's processor time that counts: what else the machine does stays out of it."""

import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Evict
from central.model.facts import Fact, GangGone, GangSeen, PodGone, PodSeen, QueueSeen
from central.scheduler.apply import apply
from central.scheduler.cycle import decide, due, schedule_once
from central.scheduler.scheduler import Scheduler
from central.server.loop import collect_seldom, freeze_gc
from protos.names import BLOCK, RACK
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

RACK_SIZE, BLOCK_SIZE = 16, 256
WARM_UP = 5


@dataclass(frozen=True)
class Decided:
    p50_ms: float
    p99_ms: float


def of_nodes(nodes: int) -> list[Fact]:
    """Nodes with eight GPUs, in racks and blocks, each with its agent's report."""
    topology = factories.topology(8)
    facts: list[Fact] = []
    for number in range(nodes):
        name = f"node-{number:05}"
        rack, block = f"r{number // RACK_SIZE}", f"b{number // BLOCK_SIZE}"
        facts += [factories.node(name, rack=rack, block=block), factories.report(name, topology)]
    return facts


def scheduler(nodes: int) -> Scheduler:
    made = new_scheduler((BLOCK, RACK))
    schedule_once(made, of_nodes(nodes), 0.0)
    freeze_gc()  # as the loop does once all is listed
    return made


def settle(made: Scheduler, now: float) -> None:
    """Cycles until all that changed is read, as some seconds after a start."""
    while made.preemption.candidates.table._unread:
        schedule_once(made, [], now)


def gang(name: str, pods: int, gpus: int, required: str = "") -> list[Fact]:
    members = [factories.pod(f"{name}-{rank}", gpus, name) for rank in range(pods)]
    return [factories.gang(name, pods, topology_required=required), *members]


def one_gang(nodes: int, pods: int, rounds: int = 40) -> Decided:
    """A gang of 8-GPU pods on a cluster that small gangs fill to a third; the facts are applied
    outside of the clock, the snapshot is as the last turn left it. Each gang goes before the next
    comes. The first rounds warm up."""
    made, dice, times = scheduler(nodes), random.Random(1), []
    filled = 0
    while filled < nodes // 3:
        size = dice.choice((1, 2, 4, 8))
        _decided(made, gang(f"fill-{filled}", size, 8), size)
        filled += size
    for number in range(rounds + WARM_UP):
        facts = gang(f"g{number}", pods, 8)
        spent = _decided(made, facts, pods)
        if number >= WARM_UP:
            times.append(spent * 1e3)
        for fact in facts:
            if isinstance(fact, PodSeen):
                apply(made, PodGone(fact.uid))
            elif isinstance(fact, GangSeen):
                apply(made, GangGone(fact.namespace, fact.name))
        decide(made, 0.0)
    check_invariants(made)
    return Decided(statistics.median(times), sorted(times)[int(len(times) * 0.99)])


def _decided(made: Scheduler, facts: list[Fact], pods: int) -> float:
    """Seconds."""
    for fact in facts:
        apply(made, fact)
    began = time.thread_time()
    decisions = decide(made, 0.0)
    spent = time.thread_time() - began
    assert sum(isinstance(decision, Bind) for decision in decisions) == pods
    return spent


def backlog(nodes: int, gangs: int, pods: int, required: str) -> float:
    """Pods decided per second when all of them wait at once."""
    made = scheduler(nodes)
    facts = [fact for number in range(gangs) for fact in gang(f"g{number}", pods, 8, required)]
    for fact in facts:
        apply(made, fact)
    began = time.thread_time()
    decisions = decide(made, 0.0)
    spent = time.thread_time() - began
    assert sum(isinstance(decision, Bind) for decision in decisions) == gangs * pods
    check_invariants(made)
    return gangs * pods / spent


def singles(nodes: int, pods: int) -> float:
    """Pods of three kinds without a gang, decided per second when all of them wait at once."""
    waiting = [
        factories.pod(f"p-{number}", number % 3 + 1, created=float(number))
        for number in range(pods)
    ]
    return _at_once(nodes, waiting)


def of_kinds(kinds: int, pods: int) -> list[PodSeen]:
    """Pods without a gang that differ in their GPUs and CPUs, in random order."""
    dice = random.Random(1)
    found = []
    for number in range(pods):
        kind = dice.randrange(kinds)
        gpus, cpu = (1, 2, 4, 8)[kind % 4], 1000 * (1 + kind // 4)
        found.append(factories.pod(f"p-{number}", gpus, cpu=cpu, created=float(number)))
    return found


def kinds_at_once(nodes: int, kinds: int, pods: int) -> float:
    """Pods of many kinds decided per second when all of them wait at once."""
    return _at_once(nodes, of_kinds(kinds, pods))


def _at_once(nodes: int, waiting: Sequence[PodSeen]) -> float:
    made = scheduler(nodes)
    for pod in waiting:
        apply(made, pod)
    began = time.thread_time()
    decisions = decide(made, 0.0)
    spent = time.thread_time() - began
    assert sum(isinstance(decision, Bind) for decision in decisions) == len(waiting)
    check_invariants(made)
    return len(waiting) / spent


def kinds_one_by_one(nodes: int, kinds: int, pods: int) -> float:
    """Pods of many kinds decided per second, each in a whole cycle of its own. A fifth as many came before."""
    made, spent = scheduler(nodes), 0.0
    first = pods // 5
    for number, pod in enumerate(of_kinds(kinds, first + pods)):
        began = time.thread_time()
        (bind,) = schedule_once(made, [pod], float(number))[:1]
        spent += (time.thread_time() - began) * (number >= first)
        assert isinstance(bind, Bind)
    check_invariants(made)
    return pods / spent


def first_cycle_ms(nodes: int) -> float:
    """Milliseconds of the cycle that reads so many nodes with their agents' reports, and places one gang."""
    collect_seldom()  # as the loop does from its start
    made = new_scheduler((BLOCK, RACK))
    facts = [*of_nodes(nodes), *gang("first", 8, 8)]
    began = time.thread_time()
    decisions = schedule_once(made, facts, 0.0)
    spent = (time.thread_time() - began) * 1e3
    assert sum(isinstance(decision, Bind) for decision in decisions) == 8
    return spent


def too_big(nodes: int, rounds: int = 10) -> Decided:
    """Milliseconds to tell a gang that no node has as many GPUs as one of its pods requests. Each is told anew, and
    the ones before still wait."""
    return _refused(nodes, rounds, pods=8, gpus=16)


def too_many(nodes: int, level: str, rounds: int = 10) -> Decided:
    """The same of a gang that needs more nodes than a rack or block has."""
    pods = {RACK: RACK_SIZE + 1, BLOCK: 400}[level]
    return _refused(nodes, rounds, pods=pods, gpus=8, required=level)


def _refused(nodes: int, rounds: int, *, pods: int, gpus: int, required: str = "") -> Decided:
    made, times = scheduler(nodes), []
    for number in range(rounds + WARM_UP):
        for fact in gang(f"g{number}", pods, gpus, required):
            apply(made, fact)
        began = time.thread_time()
        decisions = decide(made, 1.0 + number)
        if number >= WARM_UP:
            times.append((time.thread_time() - began) * 1e3)
        assert not any(isinstance(decision, Bind) for decision in decisions)
    return Decided(statistics.median(times), max(times))


def full(nodes: int, priority: int = 0) -> Scheduler:
    """Every GPU is held by a pod of its own."""
    made = scheduler(nodes)
    facts: list[Fact] = [
        factories.pod(
            f"s-{number}",
            1,
            node=f"node-{number // 8:05}",
            phase="Running",
            priority=priority,
            started=float(number % 977),
        )
        for number in range(8 * nodes)
    ]
    schedule_once(made, facts, 1000.0)
    return made


def claim(made: Scheduler, pods: int, attempts: int = 1) -> tuple[float, int]:
    """Milliseconds to decide on an urgent gang of 8-GPU pods, and how many pods are evicted. attempts: a search that
    reaches the work limit of one decision begins again in a later cycle, with twice the limit."""
    group, *members = gang("urgent", pods, 8)
    assert isinstance(group, GangSeen)
    for fact in (replace(group, priority=10), *members):
        apply(made, fact)
    spent, evicted, now = 0.0, 0, 1001.0
    for _ in range(attempts):
        began = time.thread_time()
        decisions = schedule_once(made, [], now)
        spent += (time.thread_time() - began) * 1e3
        evicted += sum(isinstance(decision, Evict) for decision in decisions)
        if evicted or (following := due(made, now)) is None:
            break
        now = following
    check_invariants(made)
    return spent, evicted


def changes(nodes: int, pods: int, rounds: int = 20) -> Decided:
    """A cluster at work: of its one-GPU pods fifty end and fifty come in each turn. The whole turn
    counts, with the facts."""
    made, times = scheduler(nodes), []
    assert pods >= 50 * (rounds + WARM_UP)
    ran = [
        factories.pod(f"s-{number}", 1, node=f"node-{number % nodes:05}", phase="Running")
        for number in range(pods)
    ]
    schedule_once(made, ran, 0.0)
    settle(made, 0.0)
    for number in range(rounds + WARM_UP):
        facts: list[Fact] = [PodGone(pod.uid) for pod in ran[50 * number : 50 * number + 50]]
        facts += [factories.pod(f"n-{number}-{each}", 1) for each in range(50)]
        began = time.thread_time()
        decisions = schedule_once(made, facts, 1.0 + number)
        if number >= WARM_UP:
            times.append((time.thread_time() - began) * 1e3)
        assert sum(isinstance(decision, Bind) for decision in decisions) == 50
    check_invariants(made)
    return Decided(statistics.median(times), max(times))


def line(
    queues: int, gangs: int, nodes: int = 250, rounds: int = 10, *, deep: bool = False
) -> Decided:
    """A full cluster, and so many gangs of two waiting in so many queues: one GPU is freed, and whose
    turn it is is decided. deep: the queues are in three levels, and time passes, so that all search victims."""
    made, times = scheduler(nodes), []
    facts: list[Fact] = (
        [*queue_tree(queues)] if deep else [QueueSeen(f"q{n}") for n in range(queues)]
    )
    facts += running_everywhere(nodes, queues)
    for number in range(gangs):
        name = f"w{number}"
        facts += [factories.gang(name, 2, queue=f"q{number % queues}", created=float(number))]
        facts += [factories.pod(f"{name}-{rank}", number % 4 + 1, name) for rank in range(2)]
    schedule_once(made, facts, 1000.0)
    for number in range(rounds):
        now = 1010.0 + 10 * number
        apply(made, PodGone(f"uid-s-{number * 8}"))
        if deep:
            made.pass_time(now)
        began = time.thread_time()
        decide(made, now)
        times.append((time.thread_time() - began) * 1e3)
    check_invariants(made)
    return Decided(statistics.median(times), max(times))


def unlike_line(kinds: int, gangs: int, nodes: int = 250, rounds: int = 10) -> Decided:
    """A full cluster without queues, and so many gangs of two that differ in their GPUs and CPUs: one GPU is freed."""
    made, times = full(nodes), []
    facts: list[Fact] = []
    for number in range(gangs):
        name, kind = f"w{number}", number % kinds
        gpus, cpu = kind % 4 + 1, 1000 + kind // 4
        facts += [factories.gang(name, 2, created=float(number))]
        facts += [factories.pod(f"{name}-{rank}", gpus, name, cpu=cpu) for rank in range(2)]
    schedule_once(made, facts, 1000.0)
    for number in range(rounds + 1):
        apply(made, PodGone(f"uid-s-{number * 8}"))
        began = time.thread_time()
        schedule_once(made, [], 1010.0 + 10 * number)
        times.append((time.thread_time() - began) * 1e3)
    check_invariants(made)
    return Decided(statistics.median(times[1:]), max(times[1:]))


def running_everywhere(nodes: int, queues: int) -> list[Fact]:
    """One pod on each GPU, of the queues in turn."""
    return [
        factories.pod(
            f"s-{number}",
            1,
            node=f"node-{number // 8:05}",
            phase="Running",
            queue=f"q{number % queues}",
            started=float(number % 977),
        )
        for number in range(8 * nodes)
    ]


def queue_tree(leaves: int, **terms: Any) -> list[QueueSeen]:
    """Queues q0, q1 and so on below a tenth as many teams in ten departments. terms: of these queues."""
    teams = max(leaves // 10, 10)
    return [
        *(QueueSeen(f"department{number}") for number in range(10)),
        *(QueueSeen(f"team{number}", parent=f"department{number % 10}") for number in range(teams)),
        *(QueueSeen(f"q{n}", parent=f"team{n % teams}", **terms) for n in range(leaves)),
    ]


def reference_ms() -> float:
    """A fixed piece of Python, so that turns can be compared between machines."""
    began = time.thread_time()
    table: dict[int, int] = {}
    for number in range(100_000):
        table[number % 997] = table.get(number % 991, 0) + number
    return (time.thread_time() - began) * 1e3

"""How long preemption and reclaim take where many claim at once: in slices, as the loop runs them. Processor
time of the thread, as in turns.py."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from central.model.decisions import Bind, Evict
from central.model.facts import Fact, GangSeen, QueueSeen
from central.scheduler.apply import apply
from central.scheduler.cycle import decide, schedule_once
from central.scheduler.scheduler import Scheduler
from central.server.loop import SliceBudget
from protos.names import GPU, RACK
from tests.benchmarks import turns
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

NOW = 1001.0
SETTLED = 16  # cycles before: a cluster has them in 8 s, if nothing happens


@dataclass(frozen=True)
class Claimed:
    first_ms: float  # until the first decision leaves
    longest_ms: float  # of the cycles
    total_ms: float
    decided: int  # bindings and evictions


def claimed(made: Scheduler, facts: list[Fact]) -> Claimed:
    """Decides on what arrives, cut into slices as by the loop. The facts are applied outside of the clock."""
    for _ in range(SETTLED):
        decide(made, NOW, SliceBudget(time.thread_time))
    for fact in facts:
        apply(made, fact)
    cycles: list[float] = []
    decided, first = 0, 0.0
    while not cycles or made.state.pending.round is not None:
        began = time.thread_time()
        decisions = decide(made, NOW + sum(cycles), SliceBudget(time.thread_time))
        cycles.append(time.thread_time() - began)
        acts = sum(isinstance(decision, Bind | Evict) for decision in decisions)
        if acts and not decided:
            first = sum(cycles)
        decided += acts
    check_invariants(made)
    return Claimed(first * 1e3, max(cycles) * 1e3, sum(cycles) * 1e3, decided)


def urgent_pods(nodes: int, pods: int) -> Claimed:
    """So many urgent pods of one GPU, each its own gang, on nodes full of pods of one GPU."""
    made = turns.full(nodes)
    return claimed(
        made,
        [
            factories.pod(f"u-{number}", 1, priority=10, created=float(number))
            for number in range(pods)
        ],
    )


def urgent_gangs(nodes: int, gangs: int) -> Claimed:
    """Urgent gangs of eight nodes in one rack, on nodes full of pods of one GPU."""
    made = turns.full(nodes)
    facts: list[Fact] = []
    for number in range(gangs):
        group, *members = turns.gang(f"u{number}", 8, 8, RACK)
        assert isinstance(group, GangSeen)
        facts += [replace(group, priority=10, created=float(number)), *members]
    return claimed(made, facts)


def services(nodes: int, pods: int) -> Claimed:
    """Services that return: pods of one GPU above the elastic surplus of gangs that fill the cluster."""
    made = turns.scheduler(nodes)
    facts: list[Fact] = []
    for number in range(nodes):
        name = f"e{number}"
        facts.append(factories.gang(name, 4))
        facts += [
            factories.pod(
                f"{name}-{rank}",
                1,
                name,
                node=f"node-{(number + rank) % nodes:05}",
                phase="Running",
                started=float((number * 8 + rank) % 977),
            )
            for rank in range(8)
        ]
    schedule_once(made, facts, 1000.0)
    return claimed(
        made,
        [
            factories.pod(f"u-{number}", 1, priority=10, created=float(number))
            for number in range(pods)
        ],
    )


def _full_queue(nodes: int, *queues: QueueSeen) -> Scheduler:
    """Every GPU is held by a pod of its own, of queue a."""
    made = turns.scheduler(nodes)
    facts: list[Fact] = [*queues]
    facts += [
        factories.pod(
            f"s-{number}",
            1,
            node=f"node-{number // 8:05}",
            phase="Running",
            queue="a",
            started=float(number % 977),
        )
        for number in range(8 * nodes)
    ]
    schedule_once(made, facts, 1000.0)
    return made


def _halves(nodes: int) -> tuple[QueueSeen, QueueSeen]:
    owned = ((GPU, 4 * nodes),)
    return QueueSeen("a", deserved=owned), QueueSeen("b", deserved=owned)


def reclaim(nodes: int, victims: int) -> Claimed:
    """One gang takes back what its queue deserves from a queue that uses everything."""
    made = _full_queue(nodes, *_halves(nodes))
    group, *members = turns.gang("claim", victims, 1)
    assert isinstance(group, GangSeen)
    return claimed(made, [replace(group, queue="b"), *members])


def reclaiming_pods(nodes: int, pods: int) -> Claimed:
    """The same by so many pods of one GPU, each its own gang."""
    made = _full_queue(nodes, *_halves(nodes))
    return claimed(made, _pods(pods, queue="b"))


def reclaiming_queues(nodes: int, queues: int) -> Claimed:
    """Half of so many queues in three levels use everything; gangs of the others reclaim half of it, ten in each."""
    own = 8 * nodes // queues
    made = turns.scheduler(nodes)
    facts: list[Fact] = [*turns.queue_tree(queues, deserved=((GPU, own),))]
    facts += turns.running_everywhere(nodes, queues // 2)
    schedule_once(made, facts, 1000.0)
    claims: list[Fact] = []
    for number in range(10 * (queues - queues // 2)):
        name, queue = f"c{number}", f"q{queues // 2 + number % (queues - queues // 2)}"
        claims += [factories.gang(name, own // 10, queue=queue, created=float(number))]
        claims += [factories.pod(f"{name}-{rank}", 1, name) for rank in range(own // 10)]
    return claimed(made, claims)


def urgent_in_queue(nodes: int, pods: int, *, limited: bool = False) -> Claimed:
    """So many urgent pods of one GPU in the queue that uses everything. limited: it may use no more."""
    most = ((GPU, 8 * nodes),) if limited else ()
    made = _full_queue(nodes, QueueSeen("a", capability=most), QueueSeen("b"))
    return claimed(made, _pods(pods, queue="a", priority=10))


def _pods(count: int, **settings: Any) -> list[Fact]:
    return [
        factories.pod(f"u-{number}", 1, created=float(number), **settings)
        for number in range(count)
    ]


Case = tuple[Callable[[], Claimed], str]  # and the aim for all of it

CASES: dict[str, Case] = {
    "300 urgent pods, 500 full nodes": (lambda: urgent_pods(500, 300), ""),
    "20 urgent pods, 2000 full nodes": (lambda: urgent_pods(2000, 20), ""),
    "20 gangs of 8 x 8 in a rack, 2000 full nodes": (lambda: urgent_gangs(2000, 20), ""),
    "1000 urgent pods, 5000 full nodes": (lambda: urgent_pods(5000, 1000), "<= 2,000 ms"),
    "4000 urgent pods, 5000 full nodes": (lambda: urgent_pods(5000, 4000), "<= 8,000 ms"),
    "100 service pods above surplus, 133 nodes": (lambda: services(133, 100), ""),
    "300 service pods above surplus, 399 nodes": (lambda: services(399, 300), ""),
    "reclaim of 2000 victims, 500 nodes": (lambda: reclaim(500, 2000), "<= 100 ms"),
    "reclaim of 8000 victims, 2000 nodes": (lambda: reclaim(2000, 8000), "<= 400 ms"),
    "800 pods reclaim, 1000 nodes": (lambda: reclaiming_pods(1000, 800), ""),
    "500 gangs of 100 queues reclaim, 500 nodes": (
        lambda: reclaiming_queues(500, 100),
        "<= 1,000 ms",
    ),
    "300 urgent pods in a queue, 2000 full nodes": (lambda: urgent_in_queue(2000, 300), ""),
    "... that is at its capability": (lambda: urgent_in_queue(2000, 300, limited=True), ""),
}


def main() -> None:
    """The cases whose names contain an argument; without arguments all."""
    for name, (case, _) in CASES.items():
        if any(word in name for word in sys.argv[1:]) or len(sys.argv) == 1:
            print(f"{name}: {case()}", flush=True)


if __name__ == "__main__":
    main()

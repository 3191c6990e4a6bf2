"""How processor time grows with each dimension of a cluster: the time at one, two and four times a size, and the
exponent of the last doubling, which is 1 where time grows with its work. Small sizes hide behind what does not grow.

    python -m tests.benchmarks.bench --growth          all dimensions; a * marks exponents above MOST
    python -m tests.benchmarks.growth nodes queues     those whose names contain a word
"""

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from central.model.decisions import Bind
from central.model.facts import Fact, HyperNodeSeen, Member, PodGone, QueueSeen
from central.scheduler.apply import apply
from central.scheduler.cycle import decide, schedule_once
from central.scheduler.scheduler import Scheduler
from tests.benchmarks import claims, elastic_sizes, first_cycles, turns
from tests.central import factories
from tests.central.scheduler.volumes import test_local_volumes

MOST = 1.2
ROUNDS = 8


class Grown(NamedTuple):
    dimension: str
    sizes: Sequence[int]
    spent_ms: Sequence[float]

    @property
    def exponent(self) -> float:
        return math.log2(self.spent_ms[-1] / self.spent_ms[-2])


def _timed(step: Callable[[], object]) -> float:
    began = time.thread_time()
    step()
    return (time.thread_time() - began) * 1e3


def _bound(made: Scheduler, facts: list[Fact], pods: int) -> float:
    """Milliseconds to bind all of these pods, which wait at once."""
    for fact in facts:
        apply(made, fact)
    found: list[object] = []
    spent = _timed(lambda: found.extend(decide(made, 1000.0)))
    assert sum(isinstance(each, Bind) for each in found) == pods
    return spent


def _hosts(nodes: int) -> float:
    """As many pods as nodes, each of which names its host."""
    pods: list[Fact] = []
    for number in range(nodes):
        plain = factories.pod(f"h-{number}", 1)
        chosen = ((factories.HOST, f"node-{number:05}"),)
        pods.append(replace(plain, spec=replace(plain.spec, node_selector=chosen)))
    return _bound(turns.scheduler(nodes), pods, nodes)


def _apart(pods: int) -> float:
    """Pods with a term of anti-affinity each, ten of an app, on 2,000 nodes."""
    waiting: list[Fact] = [
        replace(
            factories.pod(
                f"a-{number}", 1, rules=factories.apart(f"app{number // 10}", factories.HOST)
            ),
            labels=(("app", f"app{number // 10}"),),
        )
        for number in range(pods)
    ]
    return _bound(turns.scheduler(2000), waiting, pods)


def _volumes(pods: int) -> float:
    """Pods with a local volume each, on as many nodes as pods."""
    facts: list[Fact] = [test_local_volumes.LOCAL]
    for number in range(pods):
        facts.append(test_local_volumes.volume(f"v{number}", f"node-{number:05}"))
        facts.append(test_local_volumes.claim(f"c{number}"))
        facts.append(factories.pod(f"v-{number}", 1, claims=(f"c{number}",)))
    return _bound(turns.scheduler(pods), facts, pods)


def _hypernodes(nodes: int) -> float:
    """One node is seen anew where each 16 are a HyperNode by an expression."""
    made = turns.scheduler(nodes)
    for rack in range(nodes // turns.RACK_SIZE):
        first = rack * turns.RACK_SIZE
        names = "|".join(f"node-{first + at:05}" for at in range(turns.RACK_SIZE))
        apply(made, HyperNodeSeen(f"s{rack}", 1, (Member("Node", pattern=names),)))
    schedule_once(made, [], 1.0)
    spent = []
    for number in range(ROUNDS):
        node = factories.node(f"node-{number:05}", rack="r0", block="b0", labels={"x": str(number)})
        spent.append(_timed(lambda node=node, at=2.0 + number: schedule_once(made, [node], at)))  # type: ignore[misc]
    return statistics.median(spent)


def _levels(levels: int) -> float:
    """A GPU is freed, 2,000 gangs wait in 100 queues, each below so many others."""
    made = turns.scheduler(250)
    facts: list[Fact] = []
    for queue in range(100):
        above = ""
        for level in range(levels - 1):
            facts.append(QueueSeen(f"l{queue}-{level}", parent=above))
            above = f"l{queue}-{level}"
        facts.append(QueueSeen(f"q{queue}", parent=above))
    facts += turns.running_everywhere(250, 100)
    for number in range(2000):
        facts.append(
            factories.gang(f"w{number}", 2, queue=f"q{number % 100}", created=float(number))
        )
        facts += [factories.pod(f"w{number}-{rank}", 4, f"w{number}") for rank in range(2)]
    return _gpus_freed(made, facts, 1000.0)


def _gpus_freed(made: Scheduler, facts: list[Fact], now: float) -> float:
    """Milliseconds of the cycle after a GPU is freed, where these gangs wait."""
    schedule_once(made, facts, now)
    spent = []
    for number in range(ROUNDS):
        apply(made, PodGone(f"uid-s-{number * 8}"))
        spent.append(_timed(lambda at=now + 10.0 + number: decide(made, at)))  # type: ignore[misc]
    return statistics.median(spent)


def _reservations(gangs: int) -> float:
    """A GPU is freed where so many large gangs wait with a reservation each, before 2,000 small ones."""
    made = turns.full(1000)
    facts: list[Fact] = []
    for number in range(gangs):
        facts.append(factories.gang(f"big{number}", 2, created=float(number)))
        facts += [factories.pod(f"big{number}-{rank}", 8, f"big{number}") for rank in range(2)]
    facts += [factories.pod(f"small-{at}", 2, created=1e4 + at) for at in range(2000)]
    return _gpus_freed(made, facts, 2000.0)


def _elastic(jobs: int) -> float:
    return elastic_sizes.events(nodes=10 * jobs, rounds=ROUNDS, jobs=jobs, members=40).p50_ms


DIMENSIONS: dict[str, tuple[Callable[[int], float], Sequence[int]]] = {
    "nodes, a gang of 64": (lambda n: turns.one_gang(n, 64, 10).p50_ms, (5000, 10_000, 20_000)),
    "pods of a gang, 20,000 nodes": (
        lambda n: turns.one_gang(20_000, n, 5).p50_ms,
        (1024, 2048, 4096),
    ),
    "pods of a node, 100 changes on 1,000": (
        lambda n: turns.changes(1000, 1000 * n).p50_ms,
        (2, 4, 8),
    ),
    "pending gangs, a GPU freed": (
        lambda n: turns.line(20, n, rounds=ROUNDS).p50_ms,
        (5000, 10_000, 20_000),
    ),
    "kinds of 10,000 pending gangs": (
        lambda n: turns.unlike_line(n, 10_000).p50_ms,
        (1000, 2000, 4000),
    ),
    "queues, 10,000 pending gangs": (
        lambda n: turns.line(n, 10_000, rounds=ROUNDS).p50_ms,
        (250, 500, 1000),
    ),
    "levels of 100 queues": (_levels, (2, 4, 8)),
    "nodes in HyperNodes by expression": (_hypernodes, (2500, 5000, 10_000)),
    "reservations": (_reservations, (50, 100, 200)),
    "elastic Jobs, ten nodes each": (_elastic, (100, 200, 400)),
    "victims of a claim": (lambda n: claims.reclaim(n // 4, n).total_ms, (2000, 4000, 8000)),
    "urgent pods, 4,000 full nodes": (
        lambda n: claims.urgent_pods(4000, n).total_ms,
        (1000, 2000, 4000),
    ),
    "pods that reclaim, 1,000 nodes": (
        lambda n: claims.reclaiming_pods(1000, n).total_ms,
        (500, 1000, 2000),
    ),
    "queues, half of them reclaim": (
        lambda n: claims.reclaiming_queues(5 * n, n).total_ms,
        (50, 100, 200),
    ),
    "local volumes": (_volumes, (500, 1000, 2000)),
    "terms of anti-affinity": (_apart, (500, 1000, 2000)),
    "pods that name their host": (_hosts, (1000, 2000, 4000)),
    "gangs in line after a restart": (
        lambda n: first_cycles.longest_ms(1000, n),
        (2500, 5000, 10_000),
    ),
}


def grown(words: Sequence[str], say: Callable[[str], None]) -> Iterator[Grown]:
    """The dimensions whose names contain one of the words; without words all."""
    for name, (measure, sizes) in DIMENSIONS.items():
        if not words or any(word in name for word in words):
            spent = []
            for size in sizes:
                say(f"{name}: {size:,}")
                spent.append(measure(size))
            yield Grown(name, sizes, spent)


def main() -> None:
    for row in grown(sys.argv[1:], lambda _: None):
        print(
            f"{row.dimension}: {[round(each, 2) for each in row.spent_ms]} ms: {row.exponent:.2f}"
        )


if __name__ == "__main__":
    main()

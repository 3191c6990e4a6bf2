"""How long the cycles after a restart take, with many gangs in line: in slices, as the loop runs them."""

import time

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, QueueSeen
from central.scheduler.apply import apply
from central.scheduler.cycle import decide
from central.scheduler.scheduler import Scheduler
from central.server.loop import SliceBudget, freeze_gc
from protos.names import BLOCK, RACK
from tests.benchmarks.turns import BLOCK_SIZE, RACK_SIZE
from tests.central import factories

QUEUES = 20


def restarted(nodes: int, gangs: int) -> Scheduler:
    """After the first list: full nodes, and gangs of eight in line."""
    facts: list[Fact] = [QueueSeen(f"q{number}") for number in range(QUEUES)]
    topology = factories.topology(8)
    for number in range(nodes):
        name = f"node-{number:05}"
        rack, block = f"r{number // RACK_SIZE}", f"b{number // BLOCK_SIZE}"
        facts += [factories.node(name, rack=rack, block=block), factories.report(name, topology)]
    for number in range(8 * nodes):
        name, queue = f"node-{number // 8:05}", f"q{number % QUEUES}"
        facts.append(
            factories.pod(f"s-{number}", 1, node=name, phase="Running", queue=queue, started=1.0)
        )
    for number in range(gangs):
        queue = f"q{number % QUEUES}"
        facts.append(factories.gang(f"w{number}", 8, queue=queue, created=float(number)))
        facts += [
            factories.pod(f"w{number}-{rank}", number % 4 + 1, f"w{number}") for rank in range(8)
        ]
    made = new_scheduler((BLOCK, RACK))
    made.state.now = made.queues.now = 1000.0
    for fact in facts:
        apply(made, fact)
    freeze_gc()
    return made


def longest_ms(nodes: int, gangs: int, most: int = 200) -> float:
    """Of the cycles until nothing is left to do."""
    made, cycles = restarted(nodes, gangs), list[float]()
    while (not cycles or made.state.pending.round is not None) and len(cycles) < most:
        began = time.thread_time()
        decide(made, 1000.0 + sum(cycles), SliceBudget(time.thread_time))
        cycles.append((time.thread_time() - began) * 1e3)
    return max(cycles)


if __name__ == "__main__":
    print(f"5,000 nodes, 10,000 gangs in line: {longest_ms(5000, 10_000):.0f} ms")
